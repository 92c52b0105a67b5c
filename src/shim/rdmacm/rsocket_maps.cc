// Streams: maps memory into which the peer may write where it wants, and writes into the maps of
// the peer.

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "shim/rdmacm/rsocket_stream.h"

namespace tulle::shim::rdmacm {
namespace {

constexpr std::size_t piece_max = 64 << 10;

}  // namespace

MapEntry* Stream::maps() const {
  return reinterpret_cast<MapEntry*>(targets_.data() + target_entries * sizeof(TargetEntry));
}

const MapEntry* Stream::find_map(std::uint64_t offset) const {
  const MapEntry* begin = maps();
  const MapEntry* end = begin + settings_.maps;
  const MapEntry* found = std::find_if(begin, end, [offset](const MapEntry& map) {
    return offset >= map.offset && offset - map.offset < map.target.bytes;
  });
  return found != end ? found : nullptr;
}

// An offset of -1 means that the buffer's address is its offset.
int Stream::map(void* buffer, std::size_t bytes, int protection, std::int64_t& offset) {
  const Lock lock(mutex_);
  if (buffer == nullptr || bytes == 0 || (protection & ~PROT_WRITE) != 0) return EINVAL;
  if (!is_connected() || id_->pd == nullptr) return EINVAL;
  Map map;
  int access = IBV_ACCESS_LOCAL_WRITE;
  if ((protection & PROT_WRITE) != 0) {
    access |= IBV_ACCESS_REMOTE_WRITE;
    const auto is_taken = [this](std::int32_t index) {
      return std::any_of(maps_.begin(), maps_.end(),
                         [index](const Map& each) { return each.index == index; });
    };
    map.index = 0;
    while (is_taken(map.index)) ++map.index;
    if (static_cast<std::uint32_t>(map.index) >= remote_maps_.bytes) return ENOMEM;
    map.is_told = false;
  }
  map.region = ibv_reg_mr(id_->pd, buffer, bytes, access);
  if (map.region == nullptr) return errno;
  if (offset == -1) offset = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(buffer));
  map.offset = static_cast<std::uint64_t>(offset);
  maps_.push_back(map);
  return 0;
}

int Stream::unmap(void* buffer, std::size_t bytes) {
  const Lock lock(mutex_);
  const auto found = std::find_if(maps_.begin(), maps_.end(), [&](const Map& each) {
    return each.region->addr == buffer && each.region->length == bytes;
  });
  if (found == maps_.end()) return EINVAL;
  ibv_dereg_mr(found->region);
  maps_.erase(found);
  return 0;
}

// Tells the peer of new maps, before anything that is sent after they were made.
int Stream::send_maps(Lock& lock, int call_flags) {
  for (;;) {
    auto map =
        std::find_if(maps_.begin(), maps_.end(), [](const Map& each) { return !each.is_told; });
    if (map == maps_.end()) return 0;
    const std::uint32_t need = sizeof(MapEntry);
    if (!can_send()) {
      if (const int error = await_room(lock, call_flags); error != 0) return error;
      continue;  // the lock was released: look again
    }
    MapEntry entry = {map->offset,
                      {reinterpret_cast<std::uint64_t>(map->region->addr), map->region->rkey,
                       static_cast<std::uint32_t>(map->region->length)}};
    if (swaps_entries_) {
      entry = {__builtin_bswap64(entry.offset),
               {__builtin_bswap64(entry.target.address), __builtin_bswap32(entry.target.key),
                __builtin_bswap32(entry.target.bytes)}};
    }
    if (inline_bytes_ < need) return ENOTSUP;
    std::array<std::byte, sizeof entry> bytes;
    std::memcpy(bytes.data(), &entry, sizeof entry);
    map->is_told = true;
    ++messages_sent_;
    --sends_free_;
    const auto index = static_cast<std::uint32_t>(map->index);
    const int error = post_write(bytes, MessageType::map, index,
                                 remote_maps_.address + std::uint64_t{index} * sizeof entry,
                                 remote_maps_.key, true);
    if (error != 0) {
      end(State::broken, error);
      return error;
    }
  }
}

int Stream::write_mapped(const std::byte* from, std::size_t count, std::int64_t offset,
                         int call_flags, std::size_t& bytes) {
  Lock lock(mutex_);
  bytes = 0;
  if (const int error = ensure_connected(call_flags, lock); error != 0) return error;
  int error = send_maps(lock, call_flags);
  while (error == 0 && bytes < count) {
    error = await_room(lock, call_flags);
    if (error != 0) break;
    const std::uint64_t at = static_cast<std::uint64_t>(offset) + bytes;
    const MapEntry* map = find_map(at);
    if (map == nullptr) break;  // write only as far as memory is mapped
    const std::uint64_t into = at - map->offset;
    const std::size_t length = std::min(
        {count - bytes, piece_max, std::size_t{map->target.bytes - into},
         std::size_t{settings_.send_buffer_bytes - send_head_}, std::size_t{send_free_bytes_}});
    std::byte* copy = send_buffer_.data() + send_head_;
    std::memcpy(copy, from + bytes, length);
    --sends_free_;
    const auto ring_bytes = static_cast<std::uint32_t>(length);
    take_ring(ring_bytes);
    error = post_write({copy, length}, MessageType::direct, ring_bytes, map->target.address + into,
                       map->target.key, false, ring_bytes);
    if (error != 0) end(State::broken, error);
    bytes += length;
  }
  return bytes > 0 ? 0 : error;
}

}  // namespace tulle::shim::rdmacm

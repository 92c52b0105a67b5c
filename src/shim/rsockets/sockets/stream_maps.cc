// Streams: maps memory into which the peer may write where it wants, and writes into the maps of
// the peer.

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>

#include "shim/rsockets/sockets/stream.h"

namespace tulle::rsockets {

// An offset of -1 means that the buffer's address is its offset.
int Stream::map(void* buffer, std::size_t bytes, int protection, std::int64_t& offset) {
  const Lock lock(mutex_);
  if (buffer == nullptr || bytes == 0 || (protection & ~PROT_WRITE) != 0) return EINVAL;
  if (bytes > std::numeric_limits<std::uint32_t>::max()) return EINVAL;
  if (!is_connected()) return EINVAL;
  const bool is_writable = (protection & PROT_WRITE) != 0;
  if (is_writable && !protocol_.maps().has_room()) return ENOMEM;
  Map map{{static_cast<std::byte*>(buffer), bytes}, nullptr};
  if (const int error = connection_->register_memory(map.memory, is_writable, map.region);
      error != 0) {
    return error;
  }
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(buffer));
  if (offset == -1) offset = static_cast<std::int64_t>(address);
  protocol_.maps().add(static_cast<std::uint64_t>(offset),
                       {address, map.region->remote_key(), static_cast<std::uint32_t>(bytes)},
                       is_writable);
  maps_.push_back(std::move(map));
  return 0;
}

int Stream::unmap(void* buffer, std::size_t bytes) {
  const Lock lock(mutex_);
  const auto found = std::find_if(maps_.begin(), maps_.end(), [&](const Map& each) {
    return each.memory.data() == buffer && each.memory.size() == bytes;
  });
  if (found == maps_.end()) return EINVAL;
  protocol_.maps().remove(found->region->remote_key());
  maps_.erase(found);
  return 0;
}

// Tells the peer of new maps, before anything that is sent after they were made.
int Stream::send_maps(Lock& lock, int call_flags) {
  while (protocol_.maps().has_news()) {
    if (!protocol_.can_send()) {
      if (const int error = await_room(lock, call_flags); error != 0) return error;
      continue;  // the lock was released: look again
    }
    const std::optional<StreamWrite> write = protocol_.write_map();
    if (!write) return ENOTSUP;
    if (const int error = post(*write); error != 0) return error;
  }
  return 0;
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
    const std::optional<StreamWrite> write = protocol_.write_mapped(
        {from + bytes, count - bytes}, static_cast<std::uint64_t>(offset) + bytes);
    if (!write) break;  // write only as far as memory is mapped
    error = post(*write);
    bytes += write->bytes.size();
  }
  return bytes > 0 ? 0 : error;
}

}  // namespace tulle::rsockets

#include "shim/rsockets/sockets/mapped_memory.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tulle::rsockets {

int MappedMemory::map(QueuePair& queue_pair, StreamMaps& maps, std::span<std::byte> memory,
                      bool is_writable, std::int64_t& offset) {
  if (is_writable && !maps.has_room()) return ENOMEM;
  Map map{memory, nullptr};
  if (const int error = queue_pair.register_memory(memory, is_writable, map.region); error != 0) {
    return error;
  }
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(memory.data()));
  if (offset == -1) offset = static_cast<std::int64_t>(address);
  maps.add(static_cast<std::uint64_t>(offset),
           {address, map.region->remote_key(), static_cast<std::uint32_t>(memory.size())},
           is_writable);
  maps_.push_back(std::move(map));
  return 0;
}

int MappedMemory::unmap(StreamMaps& maps, std::span<const std::byte> memory) {
  const auto found = std::ranges::find_if(maps_, [&](const Map& each) {
    return each.memory.data() == memory.data() && each.memory.size() == memory.size();
  });
  if (found == maps_.end()) return EINVAL;
  maps.remove(found->region->remote_key());
  maps_.erase(found);
  return 0;
}

}  // namespace tulle::rsockets

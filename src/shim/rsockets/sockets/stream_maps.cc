// Streams: maps memory into which the peer may write where it wants, and writes into the maps of
// the peer.

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>

#include "shim/rsockets/sockets/stream.h"

namespace tulle::rsockets {

int Stream::map(void* buffer, std::size_t bytes, int protection, std::int64_t& offset) {
  const Lock lock(mutex_);
  if (buffer == nullptr || bytes == 0 || (protection & ~PROT_WRITE) != 0) return EINVAL;
  if (bytes > std::numeric_limits<std::uint32_t>::max()) return EINVAL;
  if (!is_connected()) return EINVAL;
  return maps_.map(*connection_, endpoint_.protocol().maps(),
                   {static_cast<std::byte*>(buffer), bytes}, (protection & PROT_WRITE) != 0,
                   offset);
}

int Stream::unmap(void* buffer, std::size_t bytes) {
  const Lock lock(mutex_);
  return maps_.unmap(endpoint_.protocol().maps(), {static_cast<const std::byte*>(buffer), bytes});
}

int Stream::write_mapped(const std::byte* from, std::size_t count, std::int64_t offset,
                         int call_flags, std::size_t& bytes) {
  Lock lock(mutex_);
  bytes = 0;
  if (const int error = ensure_connected(call_flags, lock); error != 0) return error;
  int error = endpoint_.send_maps(lock, patience(call_flags));
  while (error == 0 && bytes < count) {
    error = endpoint_.await_room(lock, patience(call_flags));
    if (error != 0) break;
    const std::optional<StreamWrite> write = endpoint_.protocol().write_mapped(
        {from + bytes, count - bytes}, static_cast<std::uint64_t>(offset) + bytes);
    if (!write) break;  // write only as far as memory is mapped
    error = endpoint_.post(*write);
    bytes += write->bytes.size();
  }
  return bytes > 0 ? 0 : error;
}

}  // namespace tulle::rsockets

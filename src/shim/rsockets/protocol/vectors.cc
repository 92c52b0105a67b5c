#include "shim/rsockets/protocol/vectors.h"

#include <algorithm>
#include <cstring>

namespace tulle::rsockets {
namespace {

// Calls `copy(address, bytes)` for each piece of the vectors' bytes [offset, offset + count).
// Returns the number of bytes that the vectors have there.
template <typename Copy>
std::size_t for_each_piece(std::span<const iovec> vectors, std::size_t offset, std::size_t count,
                           Copy copy) {
  std::size_t done = 0;
  for (const iovec& each : vectors) {
    if (done == count) break;
    if (offset >= each.iov_len) {
      offset -= each.iov_len;
      continue;
    }
    const std::size_t piece = std::min(count - done, each.iov_len - offset);
    copy(static_cast<std::byte*>(each.iov_base) + offset, done, piece);
    done += piece;
    offset = 0;
  }
  return done;
}

}  // namespace

std::size_t total_bytes(std::span<const iovec> vectors) {
  std::size_t bytes = 0;
  for (const iovec& each : vectors) bytes += each.iov_len;
  return bytes;
}

void gather(std::span<const iovec> from, std::size_t offset, std::span<std::byte> to) {
  for_each_piece(from, offset, to.size(),
                 [to](const std::byte* at, std::size_t done, std::size_t bytes) {
                   std::memcpy(to.data() + done, at, bytes);
                 });
}

std::size_t scatter(std::span<const std::byte> from, std::span<const iovec> to,
                    std::size_t offset) {
  return for_each_piece(to, offset, from.size(),
                        [from](std::byte* at, std::size_t done, std::size_t bytes) {
                          std::memcpy(at, from.data() + done, bytes);
                        });
}

}  // namespace tulle::rsockets

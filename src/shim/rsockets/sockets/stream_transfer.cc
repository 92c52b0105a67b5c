// Streams: moves data.

#include <algorithm>
#include <cerrno>
#include <optional>

#include "shim/rsockets/protocol/vectors.h"
#include "shim/rsockets/sockets/stream.h"

namespace tulle::rsockets {

namespace {

// A transfer starts with small pieces, so that the peer has something to do early. They grow.
constexpr std::size_t first_piece_bytes = 2048;
constexpr std::size_t last_piece_bytes = 64 << 10;

}  // namespace

int Stream::send(std::span<const iovec> from, int call_flags, const sockaddr_storage* to,
                 std::size_t& bytes) {
  if (to != nullptr) return EISCONN;
  Lock lock(mutex_);
  if (const int error = ensure_connected(call_flags, lock); error != 0) return error;
  const std::size_t total = total_bytes(from);
  bytes = 0;
  std::size_t piece_max = first_piece_bytes;
  int error = endpoint_.send_maps(lock, patience(call_flags));
  while (error == 0 && bytes < total) {
    error = endpoint_.await_room(lock, patience(call_flags));
    if (error != 0) break;
    const StreamWrite write =
        endpoint_.protocol().write_data(from, bytes, std::min(total - bytes, piece_max));
    error = endpoint_.post(write);
    bytes += write.bytes.size();
    piece_max = std::min(2 * piece_max, last_piece_bytes);
  }
  return bytes > 0 ? 0 : error;
}

int Stream::receive(std::span<const iovec> into, int call_flags, sockaddr_storage* from,
                    std::size_t& bytes) {
  Lock lock(mutex_);
  if (const int error = ensure_connected(call_flags, lock); error != 0) return error;
  if (from != nullptr) *from = connection_->peer_address();
  StreamProtocol& protocol = endpoint_.protocol();
  const std::size_t room = total_bytes(into);
  const bool peek = (call_flags & MSG_PEEK) != 0;
  const bool wants_all = (call_flags & MSG_WAITALL) != 0;
  // Bytes that stay must all be there at once.
  const std::size_t at_once = peek && wants_all ? std::max<std::size_t>(room, 1) : 1;
  bytes = 0;
  int error = 0;
  do {
    error = endpoint_.await_data(lock, patience(call_flags), at_once);
    if (error != 0 && !protocol.has_data()) break;
    // tcp(7): MSG_TRUNC discards.
    bytes = (call_flags & MSG_TRUNC) != 0 ? protocol.skip(room, bytes, peek)
                                          : protocol.read(into, bytes, peek);
  } while (wants_all && !peek && bytes < room && (protocol.is_readable() || protocol.has_data()));
  if (const std::optional<StreamWrite> credits = protocol.next_credits()) endpoint_.post(*credits);
  if (bytes > 0) return 0;
  if (error != 0) return error;
  return room > 0 && protocol.is_broken() ? protocol.error() : 0;
}

short Stream::ready(short events) {
  Lock lock(mutex_);
  if (is_opening()) advance();
  if (state_ == State::listening) {
    if (backlog_.is_stopped()) return static_cast<short>((events & POLLIN) | POLLHUP);
    return static_cast<short>(backlog_.is_empty() ? 0 : events & POLLIN);
  }
  if (state_ == State::refused) return static_cast<short>((events & (POLLIN | POLLOUT)) | POLLERR);
  if (!was_connected()) return 0;
  endpoint_.make_progress();
  int out = 0;
  if (endpoint_.protocol().has_data() || !endpoint_.protocol().is_readable())
    out |= events & POLLIN;
  if (!endpoint_.protocol().is_readable()) out |= events & POLLRDHUP;
  if (endpoint_.protocol().is_writable() && endpoint_.protocol().can_send())
    out |= events & POLLOUT;
  // POLLHUP waits until all data is read, because programs give up as soon as they see it.
  if (endpoint_.protocol().is_disconnected() && !endpoint_.protocol().has_data()) out |= POLLHUP;
  if (endpoint_.protocol().is_broken()) out |= POLLERR;
  return static_cast<short>(out);
}

int Stream::arm() {
  const Lock lock(mutex_);
  if (state_ == State::listening) return backlog_.fd();
  if (!was_connected() || !connection_->has_queue_pair()) return fd();
  return endpoint_.arm();
}

void Stream::drain() {
  const Lock lock(mutex_);
  if (!was_connected() || !connection_->has_queue_pair()) return;
  endpoint_.drain();
}

}  // namespace tulle::rsockets

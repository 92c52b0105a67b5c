// Streams: moves data. The protocol says what to post, and is told of completions.

#include <sys/epoll.h>

#include <algorithm>
#include <array>
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

int Stream::post(const StreamWrite& write) {
  const int error = connection_->post(write, send_buffer_.local_key());
  if (error != 0) fail(error);
  return error;
}

void Stream::poll_completions() {
  if (!connection_->has_queue_pair()) return;
  std::array<Completion, 16> completions;
  const bool was_connected = is_connected();
  const bool was_readable = protocol_.is_readable();
  std::uint32_t received = 0;
  for (;;) {
    const int count = connection_->poll(completions);
    if (count < 0) return fail(EIO);
    for (const Completion& each : std::span(completions).first(static_cast<std::size_t>(count))) {
      if (!each.is_receive) {
        protocol_.handle_sent(each.work_id, each.succeeded);
      } else if (each.succeeded) {
        ++received;
        // A SEND, which brings no such immediate, is not of the protocol.
        if (!each.is_write) protocol_.fail(EPROTO);
        protocol_.handle_message(each.immediate, each.bytes);
      }
    }
    if (count < static_cast<int>(completions.size())) break;
  }
  if (was_connected && !is_connected()) sleepers_.wake();
  if ((received > 0 && protocol_.has_data()) || was_readable != protocol_.is_readable()) {
    note_edge(*this, EPOLLIN);
  }
  // A peer that breaks the protocol writes no more.
  if (was_connected && protocol_.is_broken()) connection_->stop();
  if (received == 0 || !is_connected()) return;
  if (const int error = connection_->post_receives(received); error != 0) fail(error);
}

// Takes completions, and tells the peer of room. Credits come first as well, since they may not
// have been allowed before.
void Stream::make_progress() {
  const auto send_credits = [this] {
    if (const std::optional<StreamWrite> credits = protocol_.next_credits()) post(*credits);
  };
  send_credits();
  poll_completions();
  send_credits();
}

// Takes the events of completions. The caller holds the lock.
void Stream::take_events() {
  if (!connection_->take_events()) return;
  is_armed_ = false;
  sleepers_.wake();
  wake_pollers();
}

int Stream::await(Lock& lock, bool may_block, const std::function<bool()>& condition) {
  const Clock::time_point start = Clock::now();
  for (;;) {
    make_progress();
    if (condition()) return 0;
    if (!may_block) return EAGAIN;
    if (Clock::now() - start < settings_.polling) {
      // Another thread may need the lock to do what this one waits for.
      lock.unlock();
      lock.lock();
      continue;
    }
    if (!is_armed_) {
      is_armed_ = true;
      connection_->arm();
      continue;
    }
    const int error =
        sleepers_.sleep(lock, connection_->completion_fd(), [this] { take_events(); });
    if (error != 0) return error;
  }
}

int Stream::await_room(Lock& lock, int call_flags) {
  const auto has_room = [this] { return protocol_.can_send() || !protocol_.is_writable(); };
  if (!has_room()) {
    if (const int error = await(lock, !never_blocks(call_flags), has_room); error != 0) {
      return error;
    }
  }
  if (protocol_.is_writable()) return 0;
  return protocol_.is_broken() && protocol_.error() != 0 ? protocol_.error() : ECONNRESET;
}

int Stream::send(std::span<const iovec> from, int call_flags, const sockaddr_storage* to,
                 std::size_t& bytes) {
  if (to != nullptr) return EISCONN;
  Lock lock(mutex_);
  if (const int error = ensure_connected(call_flags, lock); error != 0) return error;
  const std::size_t total = total_bytes(from);
  bytes = 0;
  std::size_t piece_max = first_piece_bytes;
  int error = send_maps(lock, call_flags);
  while (error == 0 && bytes < total) {
    error = await_room(lock, call_flags);
    if (error != 0) break;
    const StreamWrite write = protocol_.write_data(from, bytes, std::min(total - bytes, piece_max));
    error = post(write);
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
  const std::size_t room = total_bytes(into);
  const bool peek = (call_flags & MSG_PEEK) != 0;
  const bool wants_all = (call_flags & MSG_WAITALL) != 0 && !peek;
  const auto has_news = [this] { return protocol_.has_data() || !protocol_.is_readable(); };
  bytes = 0;
  int error = 0;
  do {
    if (!protocol_.has_data()) {
      error = await(lock, !never_blocks(call_flags), has_news);
      if (error != 0) break;
    }
    bytes = protocol_.read(into, bytes, peek);
  } while (wants_all && bytes < room && (protocol_.is_readable() || protocol_.has_data()));
  if (const std::optional<StreamWrite> credits = protocol_.next_credits()) post(*credits);
  if (bytes > 0 || room == 0) return 0;
  if (error != 0) return error;
  return protocol_.is_broken() ? protocol_.error() : 0;
}

short Stream::ready(short events) {
  Lock lock(mutex_);
  if (is_opening()) advance();
  if (state_ == State::listening) {
    if (has_stopped_) return static_cast<short>((events & POLLIN) | POLLHUP);
    return static_cast<short>(accepted_.empty() ? 0 : events & POLLIN);
  }
  if (state_ == State::refused) return static_cast<short>((events & (POLLIN | POLLOUT)) | POLLERR);
  if (!was_connected()) return 0;
  make_progress();
  int out = 0;
  if (protocol_.has_data() || !protocol_.is_readable()) out |= events & POLLIN;
  if (!protocol_.is_readable()) out |= events & POLLRDHUP;
  if (protocol_.is_writable() && protocol_.can_send()) out |= events & POLLOUT;
  // POLLHUP waits until all data is read, because programs give up as soon as they see it.
  if (protocol_.is_disconnected() && !protocol_.has_data()) out |= POLLHUP;
  if (protocol_.is_broken()) out |= POLLERR;
  return static_cast<short>(out);
}

int Stream::arm() {
  const Lock lock(mutex_);
  if (state_ == State::listening) return accepted_fd_;
  if (!was_connected() || !connection_->has_queue_pair()) return fd();
  if (!is_armed_) {
    is_armed_ = true;
    connection_->arm();
  }
  return connection_->completion_fd();
}

void Stream::drain() {
  const Lock lock(mutex_);
  if (!was_connected() || !connection_->has_queue_pair()) return;
  if (!sleepers_.has_one_on_descriptor()) take_events();
}

}  // namespace tulle::rsockets

#include "shim/rsockets/sockets/stream_endpoint.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <optional>
#include <span>

namespace tulle::rsockets {

int StreamEndpoint::open(SocketSettings& settings) {
  if (connection_.has_queue_pair()) return 0;
  if (const int error = connection_.open_queue_pair(settings); error != 0) return error;
  settings.receive_buffer_bytes -= settings.receive_buffer_bytes % 2;
  int error = send_buffer_.create(connection_, StreamSender::buffer_bytes(settings), false);
  if (error == 0) {
    error = targets_.create(connection_, StreamProtocol::targets_bytes(settings), true);
  }
  if (error == 0) {
    error = receive_buffer_.create(connection_, settings.receive_buffer_bytes, true);
  }
  if (error != 0) return error;
  protocol_.start({send_buffer_.bytes(),
                   {receive_buffer_.bytes(), receive_buffer_.remote_key()},
                   {targets_.bytes(), targets_.remote_key()}},
                  settings);
  return connection_.post_receives(settings.receive_queue);
}

// A queue pair allocates with its first request. The program's first may come from a signal
// handler, which must not allocate.
void StreamEndpoint::establish() {
  is_established_ = true;
  send_keep_alive();
}

void StreamEndpoint::close() {
  connection_.close();
  send_buffer_.reset();
  receive_buffer_.reset();
  targets_.reset();
}

void StreamEndpoint::fail(int error) {
  protocol_.fail(error);
  sleepers_.wake();
}

int StreamEndpoint::post(const StreamWrite& write) {
  const int error = connection_.post(write, send_buffer_.local_key());
  if (error != 0) fail(error);
  return error;
}

void StreamEndpoint::poll_completions() {
  if (!connection_.has_queue_pair()) return;
  std::array<Completion, 16> completions;
  const bool was_connected = is_connected();
  const bool was_readable = protocol_.is_readable();
  std::uint32_t received = 0;
  for (;;) {
    const int count = connection_.poll(completions);
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
    note_edge(socket_, EPOLLIN);
  }
  // A peer that breaks the protocol writes no more.
  if (was_connected && protocol_.is_broken()) connection_.stop();
  if (received == 0 || !is_connected()) return;
  if (const int error = connection_.post_receives(received); error != 0) fail(error);
}

// Credits come first as well, since they may not have been allowed before.
void StreamEndpoint::make_progress() {
  const auto send_credits = [this] {
    if (const std::optional<StreamWrite> credits = protocol_.next_credits()) post(*credits);
  };
  send_credits();
  poll_completions();
  send_credits();
}

void StreamEndpoint::stop() {
  connection_.arm();
  connection_.stop();
}

void StreamEndpoint::take_events() {
  if (!connection_.take_events()) return;
  is_armed_ = false;
  sleepers_.wake();
  wake_pollers();
}

int StreamEndpoint::arm() {
  if (!is_armed_) {
    is_armed_ = true;
    connection_.arm();
  }
  return connection_.completion_fd();
}

int StreamEndpoint::await(Lock& lock, Patience patience, const std::function<bool()>& condition) {
  const Clock::time_point start = Clock::now();
  for (;;) {
    make_progress();
    if (condition()) return 0;
    if (!patience.may_block) return EAGAIN;
    if (Clock::now() - start < patience.polling) {
      // Another thread may need the lock to do what this one waits for.
      lock.unlock();
      lock.lock();
      continue;
    }
    if (!is_armed_) {
      arm();
      continue;
    }
    const int error = sleepers_.sleep(lock, connection_.completion_fd(), [this] { take_events(); });
    if (error != 0) return error;
  }
}

int StreamEndpoint::await_room(Lock& lock, Patience patience) {
  const auto has_room = [this] { return protocol_.can_send() || !protocol_.is_writable(); };
  if (!has_room()) {
    if (const int error = await(lock, patience, has_room); error != 0) return error;
  }
  if (protocol_.is_writable()) return 0;
  if (protocol_.has_shut_writing()) return EPIPE;
  return protocol_.is_broken() && protocol_.error() != 0 ? protocol_.error() : ECONNRESET;
}

int StreamEndpoint::await_data(Lock& lock, Patience patience, std::size_t count) {
  const auto has_enough = [this, count] {
    return protocol_.waiting_bytes() >= count || !protocol_.is_readable() || protocol_.is_full();
  };
  return protocol_.waiting_bytes() >= count ? 0 : await(lock, patience, has_enough);
}

int StreamEndpoint::send_maps(Lock& lock, Patience patience) {
  while (protocol_.maps().has_news()) {
    if (!protocol_.can_send()) {
      if (const int error = await_room(lock, patience); error != 0) return error;
      continue;  // the lock was released: look again
    }
    const std::optional<StreamWrite> write = protocol_.write_map();
    if (!write) return ENOTSUP;
    if (const int error = post(*write); error != 0) return error;
  }
  return 0;
}

void StreamEndpoint::send_keep_alive() {
  poll_completions();
  if (protocol_.can_control() && is_connected()) {
    post(protocol_.write_control(Control::keep_alive));
  }
}

void StreamEndpoint::shut(int how) {
  if (const std::optional<Control> control = protocol_.shut(how)) goodbye_ = control;
}

bool StreamEndpoint::try_goodbye() {
  poll_completions();
  if (is_connected() && goodbye_ && protocol_.can_control()) {
    post(protocol_.write_control(*goodbye_));
    goodbye_.reset();
    poll_completions();
  }
  if (is_connected() && (goodbye_ || !protocol_.all_sent())) return false;
  if (protocol_.is_disconnected()) stop();
  return true;
}

}  // namespace tulle::rsockets

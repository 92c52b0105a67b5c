// Streams: connecting, accepting, shutting down and closing.

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "shim/rsockets/sockets/lingering_sockets.h"
#include "shim/rsockets/sockets/stream.h"

namespace tulle::rsockets {

namespace {

using std::chrono::milliseconds;

constexpr int resolve_retries_max = 6;
// How long shutdown() and close() of a socket that blocks wait for the peer, and how long a stream
// that is closed waits for it meanwhile. TCP does not wait in either, and gives up after minutes.
constexpr milliseconds longest_goodbye{2'000};
constexpr milliseconds longest_close{200};
constexpr milliseconds between_tries{2};

bool is_readable(int fd) {
  pollfd readable{fd, POLLIN, 0};
  return poll(&readable, 1, 0) == 1;
}

}  // namespace

int create_stream(Device& device, int domain, std::shared_ptr<Socket>& out) {
  std::unique_ptr<Connection> connection;
  if (const int error = device.create_connection(domain, connection); error != 0) return error;
  out = std::make_shared<Stream>(default_settings(), std::move(connection));
  return 0;
}

Stream::~Stream() {
  forget(fd());
  maps_.clear();
  endpoint_.close();
}

int Stream::bind(const sockaddr_storage& address) {
  const Lock lock(mutex_);
  if (state_ != State::idle) return EINVAL;
  if (const int error = connection_->bind(address); error != 0) return error;
  state_ = State::bound;
  return 0;
}

int Stream::listen(int backlog) {
  const Lock lock(mutex_);
  if (state_ == State::listening) return 0;
  if (state_ != State::idle && state_ != State::bound) return EINVAL;
  if (const int error = connection_->listen(backlog); error != 0) return error;
  if (const int error = backlog_.open(backlog); error != 0) return error;
  watch(fd(), shared_from_this());
  state_ = State::listening;
  return 0;
}

int Stream::accept(std::shared_ptr<Socket>& out) {
  for (;;) {
    {
      const Lock lock(mutex_);
      if (state_ != State::listening || backlog_.is_stopped()) return EINVAL;
      if (auto stream = backlog_.take()) {
        out = std::move(stream);
        if (backlog_.take_room()) watch(fd(), shared_from_this());
        return 0;
      }
    }
    if (never_blocks(0)) return EAGAIN;
    if (const int error = wait_readable(backlog_.fd()); error != 0) return error;
  }
}

// The service calls this function when requests wait at a listener.
void Stream::accept_requests() {
  for (;;) {
    {
      const Lock lock(mutex_);
      if (!backlog_.may_take_request()) return forget(fd());
    }
    // A request that is taken without descriptors for it is lost.
    if (is_readable(connection_->events_fd())) make_room();
    std::unique_ptr<Connection> request;
    if (const int error = connection_->take_request(request); error != 0) {
      // Only ENODEV, the end of the host agent, means that no more requests come.
      if (error == ENODEV) forget(fd());
      return;
    }
    auto stream = std::make_shared<Stream>(settings_, std::move(request));
    stream->listener_ = weak_from_this();
    {
      const Lock lock(mutex_);
      backlog_.begin_answer();
    }
    // The device may look for the way to the peer, which need not exist.
    const bool is_answered = run_aside(Aside::answers, [stream] {
      if (const auto listener = stream->listener_.lock()) listener->answer(stream);
    });
    if (is_answered) continue;
    stream->connection_->reject();
    const Lock lock(mutex_);
    backlog_.end_answer();
  }
}

void Stream::answer(const std::shared_ptr<Stream>& stream) {
  std::shared_ptr<Stream> oldest;
  {
    const Lock lock(mutex_);
    if (is_closed_) return;
    oldest = backlog_.take_half_open(backlog_.most_half_open());
  }
  oldest.reset();
  make_room();
  int error = ENOMEM;
  try {
    error = stream->answer_request();
  } catch (const std::bad_alloc&) {
  }
  const bool lacks_room = error == EMFILE || error == ENFILE || error == ENOMEM;
  {
    const Lock lock(mutex_);
    backlog_.end_answer();
    if (is_closed_) return;
    if (backlog_.take_room()) watch(fd(), shared_from_this());
    if (error == EAGAIN) add_half_open(stream);
    if (lacks_room) oldest = backlog_.take_half_open(1);
  }
  if (error != EAGAIN) deliver(stream, error);
}

void Stream::add_half_open(const std::shared_ptr<Stream>& stream) {
  backlog_.add_half_open(stream);
  watch(stream->fd(), stream);
  set_timer(stream->fd(), Clock::now() + settings_.half_open);
}

// Ends the oldest half-open stream if there are too few descriptors for another stream.
void Stream::make_room() {
  if (backlog_.has_descriptors()) return;
  std::shared_ptr<Stream> oldest;
  const Lock lock(mutex_);
  oldest = backlog_.take_half_open(1);
}

int Stream::answer_request() {
  const Lock lock(mutex_);
  const std::span<const std::byte> peer_data = connection_->peer_data();
  int error = StreamProtocol::is_known(peer_data) ? endpoint_.open(settings_) : EINVAL;
  if (error == 0) error = endpoint_.protocol().open(peer_data);
  if (error == 0) {
    const ConnectionData data = endpoint_.protocol().own_data();
    error = connection_->accept(std::as_bytes(std::span(&data, 1)));
  }
  if (error == EAGAIN) {
    state_ = State::accepting;
    is_waiting_ = true;
    return EAGAIN;
  }
  if (error == 0) return finish_step();
  connection_->reject();
  return error;
}

// A stream that this listener made is connected, or failed with `error`. A connected one waits for
// accept() from now on.
void Stream::deliver(std::shared_ptr<Stream> stream, int error) {
  {
    const Lock lock(mutex_);
    backlog_.remove_half_open(stream);
    if (error != 0 || is_closed_) return;
    backlog_.add(std::move(stream));
    note_edge(*this, EPOLLIN);
  }
  wake_pollers();
}

int Stream::connect(const sockaddr_storage& address) {
  Lock lock(mutex_);
  if (is_connected() || state_ == State::listening) return EISCONN;
  if (is_opening()) return EALREADY;
  if (address.ss_family == AF_UNSPEC) return 0;  // there is nothing to dissolve
  if (state_ != State::idle && state_ != State::bound) return EINVAL;
  destination_ = address;
  state_ = State::resolving_address;
  const int error = advance();
  if (error != EAGAIN) return error;
  if (never_blocks(0)) {
    watch(fd(), shared_from_this());
    return EINPROGRESS;
  }
  return ensure_connected(0, lock);
}

int Stream::start_step() {
  const int timeout = 1000 << retries_;
  switch (state_) {
    case State::resolving_address:
      return connection_->resolve_address(destination_, timeout);
    case State::resolving_route:
      return options_.route().empty() ? connection_->resolve_route(timeout)
                                      : connection_->use_route(options_.route());
    case State::connecting: {
      if (const int error = endpoint_.open(settings_); error != 0) return error;
      const ConnectionData data = endpoint_.protocol().own_data();
      return connection_->connect(std::as_bytes(std::span(&data, 1)));
    }
    default:
      return EINVAL;
  }
}

// Finishes the step that was under way, and enters the next state.
int Stream::finish_step() {
  retries_ = 0;
  switch (state_) {
    case State::resolving_address:
      state_ = State::resolving_route;
      return 0;
    case State::resolving_route:
      state_ = State::connecting;
      return 0;
    case State::connecting:
      if (const int error = endpoint_.protocol().open(connection_->peer_data()); error != 0)
        return error;
      break;
    default:
      break;
  }
  state_ = State::established;
  endpoint_.establish();
  // The service learns that the peer has gone away, also while the program waits for data.
  watch(fd(), shared_from_this());
  if (options_.keeps_alive()) schedule_keep_alive();
  endpoint_.wake();
  return 0;
}

int Stream::advance() {
  while (is_opening()) {
    int error = is_waiting_ ? connection_->finish() : start_step();
    if (error == EAGAIN) {
      is_waiting_ = true;
      return EAGAIN;
    }
    if (error == EINTR) return error;
    is_waiting_ = false;
    const bool is_resolving =
        state_ == State::resolving_address || state_ == State::resolving_route;
    if (error == ETIMEDOUT && is_resolving && ++retries_ <= resolve_retries_max) continue;
    if (error == 0) error = finish_step();
    if (error != 0) return fail_connecting(error);
  }
  return 0;
}

int Stream::fail_connecting(int error) {
  state_ = State::refused;
  error_ = error;
  endpoint_.wake();
  return error;
}

void Stream::end_opening(Lock& lock, int error) {
  const auto self = shared_from_this();
  const auto listener = listener_.lock();
  lock.unlock();
  if (error != 0) forget(fd());
  if (listener != nullptr) listener->deliver(self, error);
  wake_pollers();
}

// Calls that need a connection call this function, which finishes a connection that is under way.
int Stream::ensure_connected(int call_flags, Lock& lock) {
  while (is_opening()) {
    const int error = advance();
    if (error != EAGAIN) return error;
    if (never_blocks(call_flags)) return EAGAIN;
    lock.unlock();
    const int interrupted = wait_readable(fd());
    lock.lock();
    if (interrupted != 0) return interrupted;
  }
  return was_connected() ? 0 : ENOTCONN;
}

// Ends the connection if the connection manager reports that the peer is gone, perhaps without a
// message from it, or if the host agent is gone.
void Stream::notice_disconnect() {
  Lock lock(mutex_);
  for (;;) {
    const int error = connection_->finish();
    if (error == EAGAIN || error == EINTR) return;
    const bool is_over = error == ENODEV || connection_->is_over();
    if (error == ENODEV) forget(fd());
    if (!is_over) continue;
    endpoint_.poll_completions();
    endpoint_.protocol().disconnect(error);
    note_edge(*this, EPOLLIN);
    endpoint_.wake();
    endpoint_.stop();
    lock.unlock();
    wake_pollers();
    if (error == ENODEV) return;
    lock.lock();
  }
}

void Stream::on_readable() {
  State state = State::idle;
  {
    Lock lock(mutex_);
    state = state_;
    if (is_closed_ && state != State::established) return;
    if (is_opening()) {
      const int error = advance();
      if (error == EAGAIN || error == EINTR) return;
      return end_opening(lock, error);
    }
  }
  if (state == State::listening) return accept_requests();
  if (state == State::established) return notice_disconnect();
  forget(fd());
}

int Stream::shutdown(int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return EINVAL;
  Lock lock(mutex_);
  if (state_ == State::listening) {
    backlog_.stop();
    lock.unlock();
    wake_pollers();
    return 0;
  }
  if (!was_connected()) return ENOTCONN;
  endpoint_.poll_completions();
  if (is_connected()) {
    endpoint_.shut(how);
    if (!endpoint_.has_goodbye()) return 0;
  }
  // A socket that never blocks leaves the rest to the service.
  const bool is_said = say_goodbye(lock, never_blocks(0) ? milliseconds(0) : longest_goodbye);
  lock.unlock();
  if (!is_said) set_timer(fd(), Clock::now() + between_tries);
  wake_pollers();
  return 0;
}

bool Stream::say_goodbye(Lock& lock, milliseconds longest) {
  const Clock::time_point due = Clock::now() + longest;
  while (!endpoint_.try_goodbye()) {
    if (Clock::now() >= due) return false;
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
  return true;
}

namespace {

// As the program ends, waits a moment for what it sent last.
void wait_for_lingering() { of_process<LingeringSockets>().wait(longest_goodbye); }

}  // namespace

void Stream::wait_in_background() {
  static const int at_exit = std::atexit(wait_for_lingering);
  static_cast<void>(at_exit);
  const auto self = shared_from_this();
  const auto oldest = of_process<LingeringSockets>().add(self);
  if (oldest != nullptr) forget(oldest->fd());
  watch(fd(), self);
  set_timer(fd(), Clock::now() + between_tries);
}

// The service calls this for a stream that has not said goodbye yet, for one to keep alive, and for
// one that has been half-open for too long.
void Stream::on_time() {
  Lock lock(mutex_);
  if (state_ == State::accepting) return end_opening(lock, fail_connecting(ETIMEDOUT));
  const bool is_closed = is_closed_;
  if (!is_closed && !endpoint_.has_goodbye()) return keep_alive();
  bool is_done = endpoint_.try_goodbye();
  lock.unlock();
  if (is_closed) {
    is_done = of_process<LingeringSockets>().is_over(*this, is_done);
    if (is_done) forget(fd());
  }
  if (!is_done) set_timer(fd(), Clock::now() + between_tries);
}

void Stream::close() {
  forget(fd());
  bool lingers = false;
  {
    Lock lock(mutex_);
    is_closed_ = true;
    if (is_connected()) {
      endpoint_.poll_completions();
      endpoint_.shut(SHUT_RDWR);
      lingers = !say_goodbye(lock, never_blocks(0) ? milliseconds(0) : longest_close);
    }
  }
  if (lingers) wait_in_background();
  Backlog<Stream>::Left left;
  {
    const Lock lock(mutex_);
    left = backlog_.take_all();
    if (!was_connected()) state_ = State::refused;
    endpoint_.protocol().shut(SHUT_RDWR);
    endpoint_.wake();
  }
  for (const auto& stream : left.accepted) {
    stream->set_flags(O_NONBLOCK);
    stream->close();
  }
}

void Stream::schedule_keep_alive() { set_timer(fd(), options_.keep_alive_due()); }

// The caller holds the lock.
void Stream::keep_alive() {
  if (!is_connected() || !options_.keeps_alive()) return;
  endpoint_.send_keep_alive();
  schedule_keep_alive();
}

int Stream::set_option(int level, int option, const void* value, socklen_t bytes) {
  const Lock lock(mutex_);
  const StreamOptions::Stage stage{.is_idle = state_ == State::idle,
                                   .has_resources = state_ != State::idle &&
                                                    state_ != State::bound &&
                                                    state_ != State::listening,
                                   .has_send_buffer = endpoint_.has_send_buffer(),
                                   .has_receive_buffer = endpoint_.has_receive_buffer()};
  const int error = options_.set(stage, level, option, value, bytes);
  if (options_.take_new_keep_alive() && is_connected()) schedule_keep_alive();
  return error;
}

int Stream::get_option(int level, int option, void* value, socklen_t& bytes) {
  const Lock lock(mutex_);
  if (level != SOL_SOCKET || (option != SO_ERROR && option != SO_ACCEPTCONN)) {
    return options_.get(level, option, value, bytes);
  }
  int number = state_ == State::listening;
  if (option == SO_ERROR) {
    number = error_ != 0 ? std::exchange(error_, 0) : endpoint_.protocol().take_error();
  }
  bytes = std::min<socklen_t>(bytes, sizeof number);
  std::memcpy(value, &number, bytes);
  return 0;
}

int Stream::local_name(sockaddr_storage& out) {
  const Lock lock(mutex_);
  out = connection_->local_address();
  return 0;
}

int Stream::peer_name(sockaddr_storage& out) {
  const Lock lock(mutex_);
  if (!was_connected()) return ENOTCONN;
  out = connection_->peer_address();
  return 0;
}

int Stream::set_flags(int flags) {
  const Lock lock(mutex_);
  flags_ = flags;
  return 0;
}

}  // namespace tulle::rsockets

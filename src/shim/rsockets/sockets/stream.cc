// Streams: connecting, accepting, shutting down and closing.

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "shim/rsockets/sockets/stream.h"

namespace tulle::rsockets {

namespace {

using std::chrono::milliseconds;

constexpr int resolve_retries_max = 6;
// How long shutdown() and close() of a socket that blocks wait for the peer, and how long a stream
// that is closed waits for it meanwhile. TCP does not wait in either, and gives up after minutes.
constexpr milliseconds longest_goodbye{2'000};
constexpr milliseconds longest_close{200};
constexpr milliseconds longest_lingering{60'000};
constexpr std::size_t lingering_max = 128;  // of a process; each has about five descriptors
constexpr milliseconds between_tries{2};
constexpr std::size_t unanswered_max = 64;   // of a listener; others wait with the agent
constexpr std::size_t descriptors_each = 8;  // at least as many as a stream has

// Returns true if this process may have so many more descriptors.
bool has_descriptors(int of, std::size_t count) {
  std::vector<int> copies;
  while (copies.size() < count) {
    const int copy = fcntl(of, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) break;
    copies.push_back(copy);
  }
  for (const int copy : copies) ::close(copy);
  return copies.size() == count;
}

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
  connection_->close();
  send_buffer_.reset();
  receive_buffer_.reset();
  targets_.reset();
  if (accepted_fd_ >= 0) ::close(accepted_fd_);
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
  backlog_ = static_cast<std::size_t>(std::clamp(backlog, 1, SOMAXCONN));
  // A call that got no memory may be made again.
  if (accepted_fd_ < 0) accepted_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
  if (accepted_fd_ < 0) return errno;
  watch(fd(), shared_from_this());
  state_ = State::listening;
  return 0;
}

int Stream::accept(std::shared_ptr<Socket>& out) {
  for (;;) {
    {
      const Lock lock(mutex_);
      if (state_ != State::listening || has_stopped_) return EINVAL;
      if (!accepted_.empty()) {
        std::uint64_t ignored = 0;
        [[maybe_unused]] const ssize_t taken = read(accepted_fd_, &ignored, sizeof ignored);
        out = std::move(accepted_.front());
        accepted_.pop_front();
        if (std::exchange(is_full_, false)) watch(fd(), shared_from_this());
        return 0;
      }
    }
    if (never_blocks(0)) return EAGAIN;
    if (const int error = wait_readable(accepted_fd_); error != 0) return error;
  }
}

// The service calls this function when requests wait at a listener.
void Stream::accept_requests() {
  for (;;) {
    {
      // What nobody accepts waits with the connection manager, which has a bound.
      const Lock lock(mutex_);
      is_full_ = accepted_.size() >= backlog_ || unanswered_ >= unanswered_max;
      if (is_full_) return forget(fd());
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
      ++unanswered_;
    }
    // The device may look for the way to the peer, which need not exist.
    const bool is_answered = run_aside(Aside::answers, [stream] {
      if (const auto listener = stream->listener_.lock()) listener->answer(stream);
    });
    if (is_answered) continue;
    stream->connection_->reject();
    const Lock lock(mutex_);
    --unanswered_;
  }
}

void Stream::answer(const std::shared_ptr<Stream>& stream) {
  std::shared_ptr<Stream> oldest;
  {
    const Lock lock(mutex_);
    if (is_closed_) return;
    oldest = take_half_open(most_half_open());
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
    --unanswered_;
    if (is_closed_) return;
    if (std::exchange(is_full_, false)) watch(fd(), shared_from_this());
    if (error == EAGAIN) add_half_open(stream);
    if (lacks_room) oldest = take_half_open(1);
  }
  if (error != EAGAIN) deliver(stream, error);
}

void Stream::add_half_open(const std::shared_ptr<Stream>& stream) {
  half_open_.push_back(stream);
  watch(stream->fd(), stream);
  set_timer(stream->fd(), Clock::now() + settings_.half_open);
}

std::shared_ptr<Stream> Stream::take_half_open(std::size_t count) {
  if (half_open_.size() < count) return nullptr;
  std::shared_ptr<Stream> oldest = std::move(half_open_.front());
  half_open_.pop_front();
  return oldest;
}

// Ends the oldest half-open stream if there are too few descriptors for another stream.
void Stream::make_room() {
  if (has_descriptors(accepted_fd_, descriptors_each)) return;
  std::shared_ptr<Stream> oldest;
  const Lock lock(mutex_);
  oldest = take_half_open(1);
}

std::size_t Stream::most_half_open() const {
  const std::size_t wanted = std::max(backlog_, half_open_max);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return half_open_min;
  return std::clamp<std::size_t>(files.rlim_cur / descriptors_each / 2, half_open_min, wanted);
}

int Stream::answer_request() {
  const Lock lock(mutex_);
  const std::span<const std::byte> peer_data = connection_->peer_data();
  int error = StreamProtocol::is_known(peer_data) ? create_endpoint() : EINVAL;
  if (error == 0) error = protocol_.open(peer_data);
  if (error == 0) {
    const ConnectionData data = protocol_.own_data();
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
    half_open_.remove(stream);
    if (error != 0 || is_closed_) return;
    accepted_.push_back(std::move(stream));
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(accepted_fd_, &one, sizeof one);
    note_edge(*this, EPOLLIN);
  }
  wake_pollers();
}

int Stream::connect(const sockaddr_storage& address) {
  Lock lock(mutex_);
  if (is_connected()) return EISCONN;
  if (is_opening()) return EALREADY;
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
      return route_.empty() ? connection_->resolve_route(timeout) : connection_->use_route(route_);
    case State::connecting: {
      if (const int error = create_endpoint(); error != 0) return error;
      const ConnectionData data = protocol_.own_data();
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
      if (const int error = protocol_.open(connection_->peer_data()); error != 0) return error;
      break;
    default:
      break;
  }
  state_ = State::established;
  // The service learns that the peer has gone away, also while the program waits for data.
  watch(fd(), shared_from_this());
  if (keep_alive_ != 0) schedule_keep_alive();
  sleepers_.wake();
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
  sleepers_.wake();
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

int Stream::create_endpoint() {
  if (connection_->has_queue_pair()) return 0;
  if (const int error = connection_->open_queue_pair(settings_); error != 0) return error;
  settings_.receive_buffer_bytes -= settings_.receive_buffer_bytes % 2;
  Connection& connection = *connection_;
  int error = send_buffer_.create(connection, StreamSender::buffer_bytes(settings_), false);
  if (error == 0) {
    error = targets_.create(connection, StreamProtocol::targets_bytes(settings_), true);
  }
  if (error == 0) {
    error = receive_buffer_.create(connection, settings_.receive_buffer_bytes, true);
  }
  if (error != 0) return error;
  protocol_.start({send_buffer_.bytes(),
                   {receive_buffer_.bytes(), receive_buffer_.remote_key()},
                   {targets_.bytes(), targets_.remote_key()}},
                  settings_);
  return connection.post_receives(settings_.receive_queue);
}

void Stream::fail(int error) {
  protocol_.fail(error);
  sleepers_.wake();
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
    poll_completions();
    protocol_.disconnect(error);
    note_edge(*this, EPOLLIN);
    sleepers_.wake();
    // Posted work requests are flushed, which wakes all threads that wait for completions.
    connection_->arm();
    connection_->stop();
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
    has_stopped_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(accepted_fd_, &one, sizeof one);
    lock.unlock();
    wake_pollers();
    return 0;
  }
  if (!was_connected()) return ENOTCONN;
  poll_completions();
  if (is_connected()) {
    if (const std::optional<Control> control = protocol_.shut(how)) goodbye_ = control;
    if (!goodbye_) return 0;
  }
  // A socket that never blocks leaves the rest to the service.
  const bool is_said = say_goodbye(lock, never_blocks(0) ? milliseconds(0) : longest_goodbye);
  lock.unlock();
  if (!is_said) set_timer(fd(), Clock::now() + between_tries);
  wake_pollers();
  return 0;
}

// The peer may never take what was sent: it may be stopped, or hostile.
bool Stream::try_goodbye() {
  poll_completions();
  if (is_connected() && goodbye_ && protocol_.can_control()) {
    post(protocol_.write_control(*goodbye_));
    goodbye_.reset();
    poll_completions();
  }
  if (is_connected() && (goodbye_ || !protocol_.all_sent())) return false;
  if (protocol_.is_disconnected()) {
    connection_->arm();
    connection_->stop();
  }
  return true;
}

bool Stream::say_goodbye(Lock& lock, milliseconds longest) {
  const Clock::time_point due = Clock::now() + longest;
  while (!try_goodbye()) {
    if (Clock::now() >= due) return false;
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
  return true;
}

namespace {

// Streams that are closed and whose last bytes are on their way. The service looks after them.
struct Lingering {
  std::mutex mutex;
  std::condition_variable empty;
  struct One {
    std::shared_ptr<Stream> stream;
    Clock::time_point due;
  };
  std::deque<One> streams;  // the oldest first
};

// As the program ends, waits a moment for what it sent last.
void wait_for_lingering() {
  auto& all = of_process<Lingering>();
  std::unique_lock lock(all.mutex);
  all.empty.wait_for(lock, longest_goodbye, [&all] { return all.streams.empty(); });
}

}  // namespace

void Stream::wait_in_background() {
  static const int at_exit = std::atexit(wait_for_lingering);
  static_cast<void>(at_exit);
  auto& all = of_process<Lingering>();
  const auto self = shared_from_this();
  std::shared_ptr<Stream> oldest;
  {
    const std::lock_guard guard(all.mutex);
    all.streams.push_back({self, Clock::now() + longest_lingering});
    if (all.streams.size() > lingering_max) {
      oldest = std::move(all.streams.front().stream);
      all.streams.pop_front();
    }
  }
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
  if (!is_closed && !goodbye_) return keep_alive();
  bool is_done = try_goodbye();
  lock.unlock();
  if (is_closed) {
    auto& all = of_process<Lingering>();
    const std::lock_guard guard(all.mutex);
    const auto found = std::ranges::find(
        all.streams, this, [](const Lingering::One& one) { return one.stream.get(); });
    is_done = is_done || found == all.streams.end() || Clock::now() >= found->due;
    if (is_done && found != all.streams.end()) all.streams.erase(found);
    if (is_done) forget(fd());
    if (all.streams.empty()) all.empty.notify_all();
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
      poll_completions();
      if (const auto control = protocol_.shut(SHUT_RDWR)) goodbye_ = control;
      lingers = !say_goodbye(lock, never_blocks(0) ? milliseconds(0) : longest_close);
    }
  }
  if (lingers) wait_in_background();
  std::list<std::shared_ptr<Stream>> unwanted;
  std::deque<std::shared_ptr<Stream>> unaccepted;
  {
    const Lock lock(mutex_);
    unwanted.swap(half_open_);
    unaccepted.swap(accepted_);
    if (!was_connected()) state_ = State::refused;
    protocol_.shut(SHUT_RDWR);
    sleepers_.wake();
  }
  for (const auto& stream : unaccepted) {
    stream->set_flags(O_NONBLOCK);
    stream->close();
  }
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

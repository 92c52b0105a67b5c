#include "live/process/event_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "os/cancellation.h"

namespace tulle::live {

namespace {

bool watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

// The eventfd counts the waiting events: it is readable while there are any, and each read takes
// one off. The application sees the epoll around it.
Result<std::unique_ptr<EventChannel>> EventChannel::create() {
  UniqueFd count(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  UniqueFd fd(epoll_create1(EPOLL_CLOEXEC));
  if (!count || !fd || !watch(fd.get(), count.get())) {
    return Error{"cannot make an event channel", errno};
  }
  return std::unique_ptr<EventChannel>(new EventChannel(std::move(fd), std::move(count)));
}

bool EventChannel::is_nonblocking() const { return (fcntl(fd(), F_GETFL) & O_NONBLOCK) != 0; }

void EventChannel::reserve(std::size_t events) {
  const std::lock_guard lock(mutex_);
  items_.reserve(static_cast<std::uint32_t>(events));
}

bool EventChannel::push(Item item) {
  const std::lock_guard lock(mutex_);
  try {
    items_.push(item);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (is_expecting_ && !has_uncounted_) {
    has_uncounted_ = true;
  } else {
    count_one();
  }
  return true;
}

// Wakes somebody who sleeps. The caller holds the lock. A thread that is cancelled must not end
// here, so these are no calls of the C library.
void EventChannel::count_one() {
  const std::uint64_t one = 1;
  // The write fails only at 2^64 - 2 waiting events.
  syscall(SYS_write, count_.get(), &one, sizeof(one));
  if (listeners_.load() == 0) return;
  const char ring = 1;
  const long sent = syscall(SYS_sendto, button_.load(), &ring, sizeof ring,
                            MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
  // The button can be shut down by its holder. The listener must wake all the same.
  if (sent < 0 && errno != EAGAIN) shutdown(bell_.load(), SHUT_RDWR);
}

EventChannel::Expecting::Expecting(EventChannel& channel) : channel_(channel) {
  const std::lock_guard lock(channel_.mutex_);
  channel_.is_expecting_ = true;
}

EventChannel::Expecting::~Expecting() {
  const std::lock_guard lock(channel_.mutex_);
  channel_.is_expecting_ = false;
  if (std::exchange(channel_.has_uncounted_, false) && !channel_.items_.empty()) {
    channel_.count_one();
  }
}

// Takes one off the count if it is not zero, and never blocks. (RWF_NOWAIT is a flag of the call.
// Before Linux 5.8 eventfd does not know it, and a reader that comes between poll() and read()
// makes this call wait.)
bool EventChannel::take_one() {
  std::uint64_t one;
  iovec piece{&one, sizeof(one)};
  if (preadv2(count_.get(), &piece, 1, -1, RWF_NOWAIT) >= 0) return true;
  if (errno == EAGAIN) return false;
  pollfd readable{count_.get(), POLLIN, 0};
  return poll(&readable, 1, 0) > 0 && read(count_.get(), &one, sizeof(one)) >= 0;
}

// Takes the event that one of the count represented. Returns false if it was forgotten between the
// read and the lock.
bool EventChannel::take(Item& item) {
  const std::lock_guard lock(mutex_);
  if (items_.empty()) return false;
  item = items_.front();
  items_.pop();
  return true;
}

bool EventChannel::try_pop(Item& item) {
  {
    const std::lock_guard lock(mutex_);
    // A reader that had taken the count of a forgotten event may have taken this one instead.
    if (std::exchange(has_uncounted_, false) && !items_.empty()) {
      item = items_.front();
      items_.pop();
      return true;
    }
  }
  while (take_one()) {
    if (take(item)) return true;
  }
  return false;
}

// The read that blocks is a plain one, so that a signal acts on it as the application asked
// (SA_RESTART).
int EventChannel::pop(Item& item) {
  for (;;) {
    if (is_nonblocking()) return try_pop(item) ? 0 : EAGAIN;
    std::uint64_t one;
    {
      const CancellationPoint point;
      if (read(count_.get(), &one, sizeof(one)) < 0) return errno;
    }
    if (take(item)) return 0;
  }
}

int EventChannel::forget(void* object) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t before = items_.size();
  items_.erase_if([&](const Item& item) { return item.object == object; });
  const auto count = static_cast<int>(before - items_.size());
  int counted = count;
  if (has_uncounted_ && items_.empty()) {
    has_uncounted_ = false;
    --counted;
  }
  // A reader may already have taken the count of a forgotten event and be waiting for the lock. It
  // then finds fewer events than it expects, and reads again.
  for (int i = 0; i < counted; ++i) static_cast<void>(take_one());
  return count;
}

bool EventChannel::attach(std::span<const int> fds) {
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (fds[i] < 0 || watch(fd(), fds[i])) continue;
    detach(fds.first(i));
    return false;
  }
  return true;
}

void EventChannel::detach(std::span<const int> fds) {
  for (const int each : fds) {
    if (each >= 0) epoll_ctl(fd(), EPOLL_CTL_DEL, each, nullptr);
  }
}

// Like pop(), this blocks in a call that a signal restarts if the application asked for that. No
// such call waits for two things, so a thread that pushes an event rings too.
int EventChannel::await_bell(int bell, int button) {
  bell_.store(bell);
  button_.store(button);
  // A thread that is cancelled listens no longer either.
  struct Listening {
    explicit Listening(std::atomic<int>& count) : count(count) { count.fetch_add(1); }
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
    ~Listening() { count.fetch_sub(1); }
    std::atomic<int>& count;
  };
  const Listening listening(listeners_);
  pollfd counted{count_.get(), POLLIN, 0};
  char ring;
  if (poll(&counted, 1, 0) != 0) return 0;
  const CancellationPoint point;
  const ssize_t rung = recv(bell, &ring, sizeof ring, MSG_PEEK);
  if (rung == 0) return ECONNRESET;
  return rung < 0 ? errno : 0;
}

}  // namespace tulle::live

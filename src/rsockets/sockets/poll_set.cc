// A set's descriptor is an eventfd, which names the set. It is readable while some thread that
// waits has not seen the set's last change, so that this thread looks again.

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "rsockets/sockets/poll.h"
#include "rsockets/sockets/poll_set.h"
#include "rsockets/sockets/socket.h"

namespace tulle::rsockets {
namespace {

// poll and epoll number these events alike, and these are all that both have.
constexpr std::uint32_t events_mask = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLRDNORM |
                                      EPOLLRDBAND | EPOLLWRNORM | EPOLLWRBAND;
static_assert(EPOLLIN == POLLIN && EPOLLPRI == POLLPRI && EPOLLOUT == POLLOUT &&
              EPOLLERR == POLLERR && EPOLLHUP == POLLHUP && EPOLLRDNORM == POLLRDNORM &&
              EPOLLRDBAND == POLLRDBAND && EPOLLWRNORM == POLLWRNORM && EPOLLWRBAND == POLLWRBAND);

class PollSet {
 public:
  explicit PollSet(int fd) : fd_(fd) {}
  ~PollSet() { close(fd_); }
  PollSet(const PollSet&) = delete;
  PollSet& operator=(const PollSet&) = delete;

  int control(int operation, int fd, const epoll_event* event);
  int wait(std::span<epoll_event> events, int timeout_milliseconds, int& count);

 private:
  struct Member {
    pollfd polled;
    epoll_data_t data;
  };
  // A thread that waits, and the last change that it has seen.
  struct Waiter {
    std::uint64_t seen = 0;
    std::vector<pollfd> fds;  // the set's descriptor, then the members'
  };

  int add(int fd, const epoll_event& event);
  std::vector<Member>::iterator find(int fd);
  void tell_waiters();
  void look_again(Waiter& waiter);
  int collect(const std::vector<pollfd>& fds, std::span<epoll_event> events);

  int fd_;
  std::mutex mutex_;
  std::vector<Member> members_;
  std::uint64_t changes_ = 0;
  std::size_t waiters_ = 0;
  std::size_t waiters_behind_ = 0;
};

std::vector<PollSet::Member>::iterator PollSet::find(int fd) {
  return std::find_if(members_.begin(), members_.end(),
                      [fd](const Member& member) { return member.polled.fd == fd; });
}

int PollSet::add(int fd, const epoll_event& event) {
  if (find_socket(fd) == nullptr && fcntl(fd, F_GETFD) < 0) return EBADF;
  members_.push_back({{fd, static_cast<short>(event.events & events_mask), 0}, event.data});
  return 0;
}

int PollSet::control(int operation, int fd, const epoll_event* event) {
  if (fd == fd_) return EINVAL;
  if (operation != EPOLL_CTL_DEL) {
    if (event == nullptr) return EFAULT;
    if ((event->events & EPOLLONESHOT) != 0) return EINVAL;
  }
  const std::lock_guard guard(mutex_);
  const auto member = find(fd);
  switch (operation) {
    case EPOLL_CTL_ADD:
      if (member != members_.end()) return EEXIST;
      if (const int error = add(fd, *event); error != 0) return error;
      break;
    case EPOLL_CTL_MOD:
      if (member == members_.end()) return ENOENT;
      *member = {{fd, static_cast<short>(event->events & events_mask), 0}, event->data};
      break;
    case EPOLL_CTL_DEL:
      if (member == members_.end()) return ENOENT;
      members_.erase(member);
      break;
    default:
      return EINVAL;
  }
  tell_waiters();
  return 0;
}

// The caller holds the lock.
void PollSet::tell_waiters() {
  ++changes_;
  if (waiters_ > 0 && waiters_behind_ == 0) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
  }
  waiters_behind_ = waiters_;
}

// The caller holds the lock. The last thread that sees a change makes the descriptor unreadable
// again.
void PollSet::look_again(Waiter& waiter) {
  if (waiter.seen != changes_ && --waiters_behind_ == 0) {
    std::uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t taken = read(fd_, &ignored, sizeof ignored);
  }
  waiter.seen = changes_;
  waiter.fds.assign(1, {fd_, POLLIN, 0});
  for (const Member& member : members_) waiter.fds.push_back(member.polled);
}

// The caller holds the lock. Members that are reported move behind the others, so that none
// starves. A member that was closed in the meantime is removed, as epoll does.
int PollSet::collect(const std::vector<pollfd>& fds, std::span<epoll_event> events) {
  std::size_t count = 0;
  std::vector<Member> reported;
  for (std::size_t i = 1; i < fds.size() && count < events.size(); ++i) {
    if (fds[i].revents == 0) continue;
    const auto member = find(fds[i].fd);
    if (member == members_.end()) continue;
    if ((fds[i].revents & POLLNVAL) == 0) {
      events[count].events = static_cast<std::uint16_t>(fds[i].revents);
      events[count].data = member->data;
      ++count;
      reported.push_back(*member);
    }
    members_.erase(member);
  }
  members_.insert(members_.end(), reported.begin(), reported.end());
  return static_cast<int>(count);
}

int PollSet::wait(std::span<epoll_event> events, int timeout_milliseconds, int& count) {
  const Clock::time_point due = Clock::now() + std::chrono::milliseconds(timeout_milliseconds);
  std::unique_lock lock(mutex_);
  ++waiters_;
  Waiter waiter{changes_, {}};
  int error = 0;
  for (count = 0; count == 0 && error == 0;) {
    look_again(waiter);
    lock.unlock();
    int left = timeout_milliseconds;
    if (timeout_milliseconds > 0) {
      const auto remains = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now());
      left = static_cast<int>(std::max<std::int64_t>(remains.count(), 0));
    }
    int ready = 0;
    error = poll_sockets(waiter.fds, left, ready);
    lock.lock();
    if (ready > 0) count = collect(waiter.fds, events);
    if (ready == 0 || left == 0) break;
  }
  look_again(waiter);
  --waiters_;
  return error;
}

struct SetTable {
  std::mutex mutex;
  std::map<int, std::shared_ptr<PollSet>> sets;
};
// Never destroyed, because other threads may wait while the process ends.
SetTable& set_table() {
  static auto* instance = new SetTable;
  return *instance;
}

std::shared_ptr<PollSet> find_set(int fd) {
  SetTable& all = set_table();
  const std::lock_guard guard(all.mutex);
  const auto found = all.sets.find(fd);
  return found != all.sets.end() ? found->second : nullptr;
}

// Returns EBADF if the number is not a descriptor, and EINVAL if it is a descriptor of another
// kind.
int error_of(int fd) { return fcntl(fd, F_GETFD) < 0 ? EBADF : EINVAL; }

}  // namespace

bool close_poll_set(int fd) {
  SetTable& all = set_table();
  const std::lock_guard guard(all.mutex);
  return all.sets.erase(fd) > 0;
}

int create_poll_set(bool closes_on_exec, int& fd) {
  fd = eventfd(0, EFD_NONBLOCK | (closes_on_exec ? EFD_CLOEXEC : 0));
  if (fd < 0) return errno;
  SetTable& all = set_table();
  const std::lock_guard guard(all.mutex);
  all.sets[fd] = std::make_shared<PollSet>(fd);
  return 0;
}

int control_poll_set(int fd, int operation, int member, const epoll_event* event) {
  const auto set = find_set(fd);
  if (set == nullptr) return error_of(fd);
  return member < 0 ? EBADF : set->control(operation, member, event);
}

int wait_poll_set(int fd, std::span<epoll_event> events, int timeout_milliseconds, int& count) {
  const auto set = find_set(fd);
  return set != nullptr ? set->wait(events, timeout_milliseconds, count) : error_of(fd);
}

}  // namespace tulle::rsockets

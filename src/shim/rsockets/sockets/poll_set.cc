// A set's descriptor is an eventfd, which names the set. It is readable while some thread that
// waits has not seen the set's last change, so that this thread looks again.

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "shim/rsockets/sockets/poll.h"
#include "shim/rsockets/sockets/poll_set.h"
#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {
namespace {

// poll and epoll number these events alike, and these are all that both have.
constexpr std::uint32_t events_mask = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLRDNORM |
                                      EPOLLRDBAND | EPOLLWRNORM | EPOLLWRBAND;
static_assert(EPOLLIN == POLLIN && EPOLLPRI == POLLPRI && EPOLLOUT == POLLOUT &&
              EPOLLERR == POLLERR && EPOLLHUP == POLLHUP && EPOLLRDNORM == POLLRDNORM &&
              EPOLLRDBAND == POLLRDBAND && EPOLLWRNORM == POLLWRNORM && EPOLLWRBAND == POLLWRBAND);

constexpr std::uint32_t ended_mask = EPOLLERR | EPOLLHUP;

struct Member {
  int fd = -1;
  std::uint64_t number = 0;  // of all members that the set ever had: a descriptor may be used again
  std::uint32_t events = 0;
  epoll_data_t data = {};
  bool has_edges = false;
  bool ends_once_reported = false;  // EPOLLONESHOT
  // With edges, what was reported since the last call that makes an event new. With EPOLLONESHOT,
  // everything, once something was reported.
  std::uint32_t reported = 0;

  // What poll is asked for. A socket that has ended reports that whatever it is asked for, and so
  // poll is not asked once a program knows.
  pollfd asked() const {
    const bool is_silent = (reported & ended_mask) != 0;
    return {is_silent ? -1 : fd, static_cast<short>(events & ~reported & events_mask), 0};
  }
};

class PollSet {
 public:
  explicit PollSet(int fd) : fd_(fd) {}
  ~PollSet() {
    for (const Member& member : members_) count_edges(member, false);
    close(fd_);
  }
  PollSet(const PollSet&) = delete;
  PollSet& operator=(const PollSet&) = delete;

  int control(int operation, int fd, const epoll_event* event);
  int wait(std::span<epoll_event> events, int timeout_milliseconds, int& count);
  void note_edge(int socket, std::uint32_t event);
  void leave(int socket);

 private:
  // A thread that waits, and the last change that it has seen.
  struct Waiter {
    std::uint64_t seen = 0;
    std::vector<pollfd> fds;  // the set's descriptor, then the members'
    std::vector<std::uint64_t> numbers;
  };

  Member member_of(int fd, const epoll_event& event);
  static void count_edges(const Member& member, bool is_added);
  std::vector<Member>::iterator find(int fd);
  void tell_waiters();
  void catch_up(Waiter& waiter);
  void look_again(Waiter& waiter);
  int collect(const Waiter& waiter, std::span<epoll_event> events);

  int fd_;
  std::mutex mutex_;
  std::vector<Member> members_;
  std::uint64_t changes_ = 0;
  std::uint64_t next_number_ = 1;
  std::size_t waiters_ = 0;
  std::size_t waiters_behind_ = 0;
};

std::vector<Member>::iterator PollSet::find(int fd) {
  return std::find_if(members_.begin(), members_.end(),
                      [fd](const Member& member) { return member.fd == fd; });
}

Member PollSet::member_of(int fd, const epoll_event& event) {
  Member member;
  member.fd = fd;
  member.number = next_number_++;
  member.events = event.events & events_mask;
  member.data = event.data;
  member.has_edges = (event.events & EPOLLET) != 0 && find_socket(fd) != nullptr;
  member.ends_once_reported = (event.events & EPOLLONESHOT) != 0;
  return member;
}

void PollSet::count_edges(const Member& member, bool is_added) {
  const auto socket = member.has_edges ? find_socket(member.fd) : nullptr;
  if (socket == nullptr) return;
  if (is_added) {
    ++socket->edge_sets;
  } else {
    --socket->edge_sets;
  }
}

int PollSet::control(int operation, int fd, const epoll_event* event) {
  if (fd == fd_) return EINVAL;
  if (operation != EPOLL_CTL_DEL && event == nullptr) return EFAULT;
  if (find_socket(fd) == nullptr && fcntl(fd, F_GETFD) < 0) return EBADF;
  const std::lock_guard guard(mutex_);
  const auto member = find(fd);
  switch (operation) {
    case EPOLL_CTL_ADD:
      if (member != members_.end()) return EEXIST;
      members_.push_back(member_of(fd, *event));
      count_edges(members_.back(), true);
      break;
    case EPOLL_CTL_MOD:
      if (member == members_.end()) return ENOENT;
      count_edges(*member, false);
      *member = member_of(fd, *event);
      count_edges(*member, true);
      break;
    case EPOLL_CTL_DEL:
      if (member == members_.end()) return ENOENT;
      count_edges(*member, false);
      members_.erase(member);
      break;
    default:
      return EINVAL;
  }
  tell_waiters();
  return 0;
}

// The end of a socket is reported with each edge, too.
void PollSet::note_edge(int socket, std::uint32_t event) {
  const std::lock_guard guard(mutex_);
  const auto member = find(socket);
  if (member == members_.end() || !member->has_edges || member->reported == 0) return;
  if (member->ends_once_reported) return;
  const std::uint32_t taken = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLRDNORM | EPOLLRDBAND;
  const std::uint32_t sent = EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;
  const std::uint32_t again = (event == EPOLLOUT ? sent : taken) | ended_mask;
  if ((member->reported & again) == 0) return;
  member->reported &= ~again;
  tell_waiters();
}

void PollSet::leave(int socket) {
  const std::lock_guard guard(mutex_);
  const auto member = find(socket);
  if (member == members_.end()) return;
  count_edges(*member, false);
  members_.erase(member);
  tell_waiters();
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
void PollSet::catch_up(Waiter& waiter) {
  if (waiter.seen != changes_ && --waiters_behind_ == 0) {
    std::uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t taken = read(fd_, &ignored, sizeof ignored);
  }
  waiter.seen = changes_;
}

// The caller holds the lock.
void PollSet::look_again(Waiter& waiter) {
  catch_up(waiter);
  waiter.fds.assign(1, {fd_, POLLIN, 0});
  waiter.numbers.assign(1, 0);
  for (const Member& member : members_) {
    waiter.fds.push_back(member.asked());
    waiter.numbers.push_back(member.number);
  }
}

// The caller holds the lock. Members that are reported move behind the others, so that none
// starves. A member that was closed in the meantime is removed, as epoll does.
int PollSet::collect(const Waiter& waiter, std::span<epoll_event> events) {
  const std::vector<pollfd>& fds = waiter.fds;
  std::size_t count = 0;
  std::vector<Member> reported;
  for (std::size_t i = 1; i < fds.size() && count < events.size(); ++i) {
    if (fds[i].revents == 0) continue;
    const auto member = find(fds[i].fd);
    if (member == members_.end() || member->number != waiter.numbers[i]) continue;
    const auto holds = static_cast<std::uint16_t>(fds[i].revents);
    if ((holds & POLLNVAL) != 0) {
      count_edges(*member, false);
    } else {
      // Another thread may have reported these since this one began to wait.
      if ((holds & ~member->reported) == 0) continue;
      events[count].events = holds;
      events[count].data = member->data;
      ++count;
      if (member->has_edges) member->reported |= holds;
      if (member->ends_once_reported) member->reported = ~0u;
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
  Waiter waiter{changes_, {}, {}};
  // The thread may be cancelled while it waits.
  struct Presence {
    PollSet& set;
    Waiter& waiter;
    std::unique_lock<std::mutex>& lock;
    ~Presence() {
      if (!lock.owns_lock()) lock.lock();
      set.catch_up(waiter);
      --set.waiters_;
    }
  };
  ++waiters_;
  const Presence presence{*this, waiter, lock};
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
    if (ready > 0) count = collect(waiter, events);
    if (ready == 0 || left == 0) break;
  }
  return error;
}

struct SetTable {
  std::mutex mutex;
  std::map<int, std::shared_ptr<PollSet>> sets;
};
SetTable& set_table() { return of_process<SetTable>(); }

std::shared_ptr<PollSet> find_set(int fd) {
  SetTable& all = set_table();
  const std::lock_guard guard(all.mutex);
  const auto found = all.sets.find(fd);
  return found != all.sets.end() ? found->second : nullptr;
}

// A signal handler that sends may call this, and so it allocates nothing.
template <typename Call>
void for_each_set(Call call) {
  SetTable& all = set_table();
  const std::lock_guard guard(all.mutex);
  for (const auto& [fd, set] : all.sets) call(*set);
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

void note_edge(const Socket& socket, std::uint32_t event) {
  if (socket.edge_sets == 0) return;
  for_each_set([&](PollSet& set) { set.note_edge(socket.fd(), event); });
}

void leave_poll_sets(int socket) {
  for_each_set([socket](PollSet& set) { set.leave(socket); });
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

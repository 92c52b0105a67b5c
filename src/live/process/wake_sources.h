#pragma once

// What wakes a device's thread: its descriptors and those of links, a timer, and callers that leave
// work behind.

#include <sys/epoll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "live/clock.h"
#include "live/link.h"
#include "os/event_loop.h"
#include "os/unique_fd.h"

namespace tulle::live {

// Tells which of a doorbell and a socket is readable. The second may be -1.
struct Waiting {
  bool ring = false;
  bool datagram = false;
};
Waiting what_waits_at(std::array<int, 2> fds);

class WakeSources {
 public:
  Result<void> open();
  // Waits for events, no longer than that. The tag of an event is its descriptor.
  std::span<const epoll_event> wait(Time longest) { return loop_.wait(longest); }
  int loop_fd() const { return loop_.fd(); }

  // Watches a descriptor for these events, as epoll_ctl(2) has them; -1: none.
  void watch(int fd, std::uint32_t events) {
    if (fd >= 0) loop_.watch(fd, events, static_cast<std::uint64_t>(fd));
  }
  // To be called before a descriptor is closed, which does not end its watch while another process
  // has it.
  void forget(int fd) { loop_.forget(fd); }
  void watch_readable(int fd, bool is_watched) {
    watch(fd, is_watched ? std::uint32_t{EPOLLIN} : 0u);
  }

  // --- callers ---

  void wake();
  // Takes what made the descriptor readable, if it is that of wake().
  void take_wake(int fd);
  // Returns the descriptor of wake(). It stays open as long as this object.
  int wake_fd() const { return wakeup_.get(); }

  // --- the timer ---

  // Makes the thread wake no later than this. Only a time earlier than the timer's costs a system
  // call.
  void wake_at(Time when, const DriverClock& clock);
  bool is_timer(int fd) const { return fd == timer_.get(); }
  // Takes what made its descriptor readable.
  void take_timer();
  // The timer is over, and runs no more until wake_at() is called.
  void end_timer() { timer_at_ = Time::never(); }
  void rebase(Time by) { tulle::rebase(by, timer_at_); }

  // --- sockets of links ---

  // Says how many links there are by socket.
  void set_links(std::size_t count) { sockets_.resize(count); }
  // One more comes before all others.
  void add_first_link() { sockets_.insert(sockets_.begin(), Watched{}); }
  // Says whether the thread serves sockets that also wake sleepers, and those that do not.
  struct Served {
    bool waking = true;
    bool others = true;
  };
  // Watches the sockets of the links, which may be others than at the last call.
  void watch_links(const std::vector<Link*>& links, Served served);
  // Watches none of them until watch_links() is called next: one may be about to be closed.
  void forget_links();
  // The same, when all are lost for good: what has their numbers from then on is not watched.
  void lose_links();
  // Watches a sender's full socket once, until it is writable. (A receiving socket sends only if no
  // other socket could be had. The timer serves it.)
  void watch_until_writable(const Link& link, Time now, const DriverClock& clock);

 private:
  // A link's socket, and whether the thread is woken when it is readable.
  struct Watched {
    int fd = -1;
    bool is_readable = false;
  };

  EventLoop loop_;
  UniqueFd timer_;
  UniqueFd wakeup_;
  Time timer_at_ = Time::never();
  std::vector<Watched> sockets_;  // by link
};

}  // namespace tulle::live

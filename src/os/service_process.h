#pragma once

// These functions serve the long-running processes: the host agent, the process of a fabric, a
// capture.

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <span>

#include "base/time.h"
#include "os/unique_fd.h"

namespace tulle {

// Blocks SIGTERM and SIGINT, ignores SIGPIPE, and returns a descriptor that is readable when the
// process shall stop. The descriptor is none if there was none left.
UniqueFd stop_signals();
// Returns true if a signal to stop has come.
bool has_stop_signal(const UniqueFd& signals);

// Raises the limit of open files as far as this user may, since each client is an open file.
// Returns how many may be open now, or 0 if the system does not say.
std::uint64_t raise_file_limit();

// Lets the standard descriptors go. A pipe of the process that started it would never reach its
// end while they stayed open here.
void drop_standard_descriptors();

// Waits for events of an epoll, at most for so long and at most an hour, or for ever
// (Time::never()). It does not wait if the time is over, so that `longest` is negative. Returns how
// many events there are, or -1 with an errno.
int wait_for_events(int epoll, std::span<epoll_event> events, Time longest);

// A listening socket that an epoll watches. While the process has no descriptor to spare, the
// connections wait and the epoll does not report them: they would be reported without end.
class WatchedListener {
 public:
  using Clock = std::chrono::steady_clock;

  WatchedListener() = default;
  // The epoll reports the listener without data, and must outlive it.
  WatchedListener(UniqueFd socket, int epoll);

  // Accepts a connection that waits. Returns none if there is none, or no descriptor for it.
  UniqueFd accept();
  // Lets the epoll report connections again once a pause is over.
  void resume();
  // A pause takes this time.
  static constexpr Time pause = Time::milliseconds(10);
  bool is_paused() const { return resumes_at_ != Clock::time_point::max(); }
  // Returns when resume() is due: max() without a pause.
  Clock::time_point resumes_at() const { return resumes_at_; }

 private:
  void watch(std::uint32_t events);

  UniqueFd socket_;
  int epoll_ = -1;
  Clock::time_point resumes_at_ = Clock::time_point::max();
};

}  // namespace tulle

#pragma once

// Descriptors for which one thread waits, by epoll(7), and a listening socket among them.

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <utility>

#include "base/result.h"
#include "base/time.h"
#include "os/unique_fd.h"

namespace tulle {

class EventLoop {
 public:
  // A loop without a descriptor, which create() makes.
  EventLoop() = default;
  static Result<EventLoop> create();

  // Watches a descriptor for these events, as epoll_ctl(2) has them (EPOLLIN …). The tag comes with
  // each event. A descriptor that is watched already gets these events and this tag.
  void watch(int fd, std::uint32_t events, std::uint64_t tag = 0);
  // Closing a descriptor is not enough: it stays watched while another process has it, as lsof may
  // for a moment.
  void forget(int fd);

  // Waits until there are events, at most for so long and at most an hour, or for ever
  // (Time::never()). It does not wait if the time is over, so that `longest` is negative. Returns
  // the events, of which `data.u64` is the tag, and which are valid until the next call.
  std::span<const epoll_event> wait(Time longest);

  int fd() const { return epoll_.get(); }

 private:
  static constexpr std::size_t events_max = 64;  // in one call

  UniqueFd epoll_;
  std::array<epoll_event, events_max> events_{};
};

// A listening socket that a loop watches. While the process has no descriptor to spare, or its
// owner wants none, the connections wait and the loop does not report them: they would be reported
// without end.
class WatchedListener {
 public:
  using Clock = std::chrono::steady_clock;

  WatchedListener() = default;
  // The loop reports the listener with the tag 0, and must outlive it.
  WatchedListener(UniqueFd socket, EventLoop& loop);

  // Accepts a connection that waits. Returns none if there is none, or no descriptor for it.
  UniqueFd accept();
  // Returns the socket, after which nothing more may be called.
  UniqueFd take() { return std::move(socket_); }
  // Leaves connections waiting for a pause.
  void begin_pause();
  // Lets the loop report connections again once a pause is over.
  void resume();
  // A pause takes this time.
  static constexpr Time pause = Time::milliseconds(10);
  bool is_paused() const { return resumes_at_ != Clock::time_point::max(); }
  // Returns when resume() is due: max() without a pause.
  Clock::time_point resumes_at() const { return resumes_at_; }

 private:
  UniqueFd socket_;
  EventLoop* loop_ = nullptr;
  Clock::time_point resumes_at_ = Clock::time_point::max();
};

}  // namespace tulle

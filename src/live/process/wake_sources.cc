#include "live/process/wake_sources.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "os/cancellation.h"

namespace tulle::live {

Waiting what_waits_at(std::array<int, 2> fds) {
  const CancellationOff cancellation_off;
  std::array<pollfd, 2> entries{{{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}}};
  if (poll(entries.data(), entries.size(), 0) <= 0) return {};
  return {.ring = entries[0].revents != 0, .datagram = entries[1].revents != 0};
}

Result<void> WakeSources::open() {
  auto loop = EventLoop::create();
  timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  wakeup_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop || !timer_ || !wakeup_) {
    return Error{std::string("cannot open the device: ") + std::strerror(errno), errno};
  }
  loop_ = std::move(*loop);
  watch(timer_.get(), EPOLLIN);
  watch(wakeup_.get(), EPOLLIN);
  return {};
}

void WakeSources::wake() {
  const CancellationOff cancellation_off;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wakeup_.get(), &one, sizeof(one));
}

void WakeSources::take_wake(int fd) {
  if (fd != wakeup_.get()) return;
  std::uint64_t count;
  [[maybe_unused]] const ssize_t taken = read(fd, &count, sizeof(count));
}

void WakeSources::wake_at(Time when, const DriverClock& clock) {
  if (when >= timer_at_) return;
  timer_at_ = when;
  const std::int64_t at = clock.monotonic_nanoseconds(std::max(when, Time::zero())) + 1;
  itimerspec setting{};
  setting.it_value.tv_sec = at / 1'000'000'000;
  setting.it_value.tv_nsec = at % 1'000'000'000;
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &setting, nullptr);
}

void WakeSources::take_timer() {
  std::uint64_t count;
  [[maybe_unused]] const ssize_t taken = read(timer_.get(), &count, sizeof(count));
}

void WakeSources::watch_links(const std::vector<Link*>& links, Served served) {
  for (std::size_t i = 0; i < sockets_.size(); ++i) {
    const Link& link = *links[i];
    Watched& watched = sockets_[i];
    const int fd = link.receiving_socket();
    if (fd < 0) {
      watched = {};
      continue;
    }
    const bool is_served = link.wakes_sleepers() ? served.waking : served.others;
    const bool readable = is_served && link.wants_wake();
    if (fd == watched.fd && readable == watched.is_readable) continue;
    watched = {fd, readable};
    watch_readable(fd, readable);
  }
}

void WakeSources::forget_links() {
  lose_links();
  std::ranges::fill(sockets_, Watched{});
}

void WakeSources::lose_links() {
  for (const Watched& watched : sockets_) loop_.forget(watched.fd);
}

void WakeSources::watch_until_writable(const Link& link, Time now, const DriverClock& clock) {
  const int fd = link.blocked_socket();
  if (fd == link.receiving_socket()) return wake_at(now + Time::milliseconds(1), clock);
  watch(fd, EPOLLOUT | EPOLLONESHOT);
}

}  // namespace tulle::live

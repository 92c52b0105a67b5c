#include "os/event_loop.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "os/system_error.h"

namespace tulle {
namespace {

constexpr std::int64_t second = 1'000'000'000;  // in ns
constexpr std::int64_t millisecond = 1'000'000;

}  // namespace

Result<EventLoop> EventLoop::create() {
  EventLoop loop;
  loop.epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!loop.epoll_) return system_error("cannot wait for events");
  return loop;
}

void EventLoop::watch(int fd, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0 || errno != ENOENT) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void EventLoop::forget(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::span<const epoll_event> EventLoop::wait(Time longest) {
  const auto most = static_cast<int>(events_.size());
  const auto found = [this](int count) {
    return std::span<const epoll_event>(events_.data(),
                                        static_cast<std::size_t>(std::max(count, 0)));
  };
  if (longest.is_never()) return found(epoll_wait(epoll_.get(), events_.data(), most, -1));
  // A wait that ends a part of a nanosecond too early would only begin again.
  const Time whole = Time::nanoseconds(longest.to_nanoseconds());
  const std::int64_t rounded_up = longest.to_nanoseconds() + (whole < longest ? 1 : 0);
  const std::int64_t span = std::clamp(rounded_up, std::int64_t{0}, 3'600 * second);
  if (span % millisecond != 0) {
    const timespec precisely{span / second, span % second};
    const int count = epoll_pwait2(epoll_.get(), events_.data(), most, &precisely, nullptr);
    // Linux before 5.11 waits whole milliseconds, and so do containers that know no later call.
    if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return found(count);
  }
  const auto milliseconds = static_cast<int>((span + millisecond - 1) / millisecond);
  return found(epoll_wait(epoll_.get(), events_.data(), most, milliseconds));
}

WatchedListener::WatchedListener(UniqueFd socket, EventLoop& loop)
    : socket_(std::move(socket)), loop_(&loop) {
  loop.watch(socket_.get(), EPOLLIN);
}

UniqueFd WatchedListener::accept() {
  if (is_paused()) return {};
  UniqueFd connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection && (errno == EMFILE || errno == ENFILE)) begin_pause();
  return connection;
}

void WatchedListener::begin_pause() {
  resumes_at_ = Clock::now() + std::chrono::nanoseconds(pause.to_nanoseconds());
  loop_->watch(socket_.get(), 0);
}

void WatchedListener::resume() {
  if (!is_paused() || Clock::now() < resumes_at_) return;
  resumes_at_ = Clock::time_point::max();
  loop_->watch(socket_.get(), EPOLLIN);
}

}  // namespace tulle

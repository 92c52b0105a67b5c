#include "os/service_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace tulle {

UniqueFd stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

bool has_stop_signal(const UniqueFd& signals) {
  signalfd_siginfo info;
  return read(signals.get(), &info, sizeof info) == sizeof info;
}

std::uint64_t raise_file_limit() {
  constexpr rlim_t usual = 1u << 20;  // systemd's for services, and the kernel's most (fs.nr_open)
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit wanted{std::max(limit.rlim_max, usual), std::max(limit.rlim_max, usual)};
  if (setrlimit(RLIMIT_NOFILE, &wanted) == 0) return wanted.rlim_cur;  // root may
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

void drop_standard_descriptors() {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    dup2(null.get(), standard);
  }
}

int wait_for_events(int epoll, std::span<epoll_event> events, Time longest) {
  constexpr std::int64_t second = 1'000'000'000;
  constexpr std::int64_t million = 1'000'000;
  const auto count = static_cast<int>(events.size());
  if (longest.is_never()) return epoll_wait(epoll, events.data(), count, -1);
  // A wait that ends a part of a nanosecond too early would only begin again.
  const std::int64_t rounded_up = longest.to_nanoseconds() + 1;
  const std::int64_t most = std::clamp(rounded_up, std::int64_t{0}, 3'600 * second);
  const timespec span{most / second, most % second};
  const int found = epoll_pwait2(epoll, events.data(), count, &span, nullptr);
  if (found >= 0 || errno != ENOSYS) return found;
  // Linux before 5.11 waits whole milliseconds.
  return epoll_wait(epoll, events.data(), count, static_cast<int>((most + million - 1) / million));
}

WatchedListener::WatchedListener(UniqueFd socket, int epoll)
    : socket_(std::move(socket)), epoll_(epoll) {
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, socket_.get(), &event);
}

UniqueFd WatchedListener::accept() {
  if (is_paused()) return {};
  UniqueFd connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection && (errno == EMFILE || errno == ENFILE)) {
    resumes_at_ = Clock::now() + std::chrono::nanoseconds(pause.to_nanoseconds());
    watch(0);
  }
  return connection;
}

void WatchedListener::resume() {
  if (!is_paused() || Clock::now() < resumes_at_) return;
  resumes_at_ = Clock::time_point::max();
  watch(EPOLLIN);
}

void WatchedListener::watch(std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  epoll_ctl(epoll_, EPOLL_CTL_MOD, socket_.get(), &event);
}

}  // namespace tulle

#include "os/service_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string>

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

std::size_t file_limit() {
  constexpr std::size_t usual = 1'024;
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : usual;
}

std::string raise_other_limits() {
  struct Named {
    decltype(RLIMIT_CPU) resource;
    const char* name;
  };
  constexpr std::array<Named, 4> all = {
      {{RLIMIT_CPU, "cpu"}, {RLIMIT_FSIZE, "fsize"}, {RLIMIT_AS, "as"}, {RLIMIT_DATA, "data"}}};
  std::string left;
  for (const auto& [resource, name] : all) {
    const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(resource, &none) == 0) continue;  // root may, and others if the hard one is none
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0) continue;
    limit.rlim_cur = limit.rlim_max;
    static_cast<void>(setrlimit(resource, &limit));
    left += (left.empty() ? "" : ", ") + std::string(name);
  }
  return left;
}

void drop_standard_descriptors() {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    dup2(null.get(), standard);
  }
}

}  // namespace tulle

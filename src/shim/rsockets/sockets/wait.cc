// Waits for one descriptor, for calls that Linux restarts after a signal whose handler has
// SA_RESTART: to receive, send, accept and connect. No call of the kernel waits for a descriptor in
// that way, and so this looks up what the handlers ask for. Where some have the flag and others do
// not, the first kind is blocked while the thread waits: a signalfd tells of them, and the kernel
// itself then shows which kind came.

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>

#include "os/cancellation.h"
#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {
namespace {

// One bit for each signal.
using Signals = std::uint64_t;
constexpr int signals_max = 64;
constexpr Signals bit_of(int signal) { return Signals{1} << (signal - 1); }

// These come of what a thread does, not while it waits.
constexpr Signals faults = bit_of(SIGSEGV) | bit_of(SIGBUS) | bit_of(SIGFPE) | bit_of(SIGILL) |
                           bit_of(SIGTRAP) | bit_of(SIGABRT);

struct Handlers {
  Signals restarting = 0;
  Signals interrupting = 0;

  bool are_of_both_kinds() const { return restarting != 0 && interrupting != 0; }
};

Handlers look_up() {
  Handlers found;
  for (int signal = 1; signal <= signals_max; ++signal) {
    struct sigaction action = {};
    if ((faults & bit_of(signal)) != 0 || sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
    ((action.sa_flags & SA_RESTART) != 0 ? found.restarting : found.interrupting) |= bit_of(signal);
  }
  return found;
}

// A look at all handlers takes some microseconds. A program that sets one is noticed this late.
constexpr std::chrono::milliseconds looked_up_for{100};
std::atomic<Clock::rep> looked_up_until = 0;
std::atomic<Signals> restarting = 0;
std::atomic<Signals> interrupting = 0;

Handlers handlers(bool are_looked_up) {
  const Clock::time_point now = Clock::now();
  if (are_looked_up || now.time_since_epoch().count() >= looked_up_until.load()) {
    const Handlers found = look_up();
    restarting = found.restarting;
    interrupting = found.interrupting;
    looked_up_until = (now + looked_up_for).time_since_epoch().count();
  }
  return {restarting, interrupting};
}

Signals to_bits(const sigset_t& set) {
  Signals bits = 0;
  for (int signal = 1; signal <= signals_max; ++signal) {
    if (sigismember(&set, signal) == 1) bits |= bit_of(signal);
  }
  return bits;
}

sigset_t to_set(Signals bits) {
  sigset_t set;
  sigemptyset(&set);
  for (; bits != 0; bits &= bits - 1) sigaddset(&set, std::countr_zero(bits) + 1);
  return set;
}

Handlers without_blocked(const Handlers& all) {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  const Signals free = ~to_bits(blocked);
  return {all.restarting & free, all.interrupting & free};
}

int poll_one(int fd) {
  pollfd waiting = {fd, POLLIN, 0};
  const CancellationPoint point;
  return poll(&waiting, 1, -1) < 0 ? errno : 0;
}

// Blocks signals. Their handlers run at the end, and may jump.
class Blocked {
 public:
  explicit Blocked(Signals signals) {
    const sigset_t set = to_set(signals);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC);
  }
  ~Blocked() {
    if (fd_ >= 0) ::close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;
  // Returns a descriptor that is readable while one of the signals is to come, or -1.
  int fd() const { return fd_; }

 private:
  sigset_t before_;
  int fd_ = -1;
};

// Returns EAGAIN if one of the signals came.
int poll_one_without(int fd, Signals signals) {
  {
    const Blocked blocked(signals);
    if (blocked.fd() >= 0) {
      std::array<pollfd, 2> waiting = {{{fd, POLLIN, 0}, {blocked.fd(), POLLIN, 0}}};
      const CancellationPoint point;
      if (poll(waiting.data(), waiting.size(), -1) < 0) return errno;
      return waiting[0].revents != 0 ? 0 : EAGAIN;
    }
  }
  return poll_one(fd);
}

}  // namespace

int wait_readable(int fd) {
  for (;;) {
    Handlers before = handlers(false);
    if (before.are_of_both_kinds()) before = without_blocked(before);
    if (before.are_of_both_kinds()) {
      const int error = poll_one_without(fd, before.restarting);
      if (error != EAGAIN) return error;
      continue;
    }
    const int error = poll_one(fd);
    if (error != EINTR) return error;
    // A handler may be set for one signal alone.
    const Handlers after = handlers(true);
    const Handlers came = without_blocked(
        {before.restarting | after.restarting, before.interrupting | after.interrupting});
    if (came.interrupting != 0 || came.restarting == 0) return EINTR;
  }
}

}  // namespace tulle::rsockets

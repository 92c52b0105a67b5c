// Waits for one descriptor, for calls that Linux restarts after a signal whose handler has
// SA_RESTART: to receive, send, accept and connect. No call of the kernel waits for a descriptor in
// that way, and so this looks up what the handlers ask for. Which of them has run cannot be told
// without blocking signals, which would move them to other threads. So a call is restarted only if
// all handlers ask for it.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>

#include "os/cancellation.h"
#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {
namespace {

constexpr int signals_max = 64;

// These come of what a thread does, not while it waits.
bool is_fault(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL ||
         signal == SIGTRAP || signal == SIGABRT;
}

struct Handlers {
  bool restart = false;    // there are some that ask for it
  bool interrupt = false;  // there are some that do not
};

// Signals that the thread blocks have no handler that could run.
Handlers look_up() {
  Handlers found;
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (int signal = 1; signal <= signals_max; ++signal) {
    struct sigaction action = {};
    if (is_fault(signal) || sigismember(&blocked, signal) == 1) continue;
    if (sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
    ((action.sa_flags & SA_RESTART) != 0 ? found.restart : found.interrupt) = true;
  }
  return found;
}

// A look takes some microseconds. Programs without a handler that asks for a restart are spared it
// for a while: their calls end with EINTR in any case.
constexpr std::chrono::milliseconds none_for{100};
std::atomic<Clock::rep> none_until = 0;

Handlers look_up_before_a_wait() {
  const Clock::time_point now = Clock::now();
  if (now.time_since_epoch().count() < none_until.load()) return {};
  const Handlers found = look_up();
  if (!found.restart) none_until = (now + none_for).time_since_epoch().count();
  return found;
}

int poll_one(int fd) {
  pollfd waiting = {fd, POLLIN, 0};
  const CancellationPoint point;
  return poll(&waiting, 1, -1) < 0 ? errno : 0;
}

}  // namespace

int wait_readable(int fd) {
  for (;;) {
    const Handlers before = look_up_before_a_wait();
    const int error = poll_one(fd);
    if (error != EINTR) return error;
    // A handler may have been set for one signal alone, or replaced meanwhile.
    if (!before.restart || before.interrupt || look_up().interrupt) return EINTR;
  }
}

}  // namespace tulle::rsockets

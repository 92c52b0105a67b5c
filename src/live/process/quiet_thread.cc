#include "live/process/quiet_thread.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

#include "base/on_throw.h"

namespace tulle::live {

Result<std::thread> start_quiet_thread(std::function<void()> run) {
  sigset_t others;
  sigset_t before;
  sigfillset(&others);
  sigdelset(&others, SIGSEGV);
  sigdelset(&others, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  const OnThrow undo([&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); });
  Result<std::thread> thread = std::thread();
  try {
    thread = std::thread(std::move(run));
  } catch (const std::system_error& error) {
    thread = Error{std::string("cannot start the device's thread: ") + error.what(),
                   error.code().value()};
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

void ask_for_short_slice() {
#ifdef SYS_sched_setattr
  struct {
    std::uint32_t size = 48;
    std::uint32_t policy = SCHED_OTHER;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 100'000;  // nanoseconds
    std::uint64_t deadline = 0;
    std::uint64_t period = 0;
  } attributes;
  static_assert(sizeof(attributes) == 48);
  errno = 0;
  // The raw system call returns 20 - nice.
  const long nice = syscall(SYS_getpriority, 0 /* PRIO_PROCESS */, 0);
  if (nice > 0) attributes.nice = static_cast<std::int32_t>(20 - nice);
  syscall(SYS_sched_setattr, 0, &attributes, 0);
#endif
}

}  // namespace tulle::live

#include "live/path/memory/visits.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>

#include "os/cancellation.h"
#include "os/unique_fd.h"

namespace tulle::live {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int looks_before_question = 256;
// A visit copies 1 MiB at most, which takes far less of a processor than this. A thread that has
// used more since the owner began to wait has left its visit, or never was a visitor.
constexpr std::uint64_t visit_ticks_max = 3;  // of the kernel's clock, 10 ms each (USER_HZ)

enum class Thread : std::uint8_t { cannot_write, may_write };
struct Observation {
  Thread thread = Thread::may_write;
  std::uint64_t ticks = 0;  // of processor time that the thread has used
};

// Asks the kernel about the thread (proc_pid_stat(5)). Without an answer, for want of descriptors,
// the thread may write.
Observation observe(std::uint32_t thread_id) {
  const CancellationOff cancellation_off;
  const UniqueFd file(open(fmt::format("/proc/{}/stat", thread_id).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {errno == ENOENT ? Thread::cannot_write : Thread::may_write, 0};
  char text[1024];
  const ssize_t bytes = read(file.get(), text, sizeof text);
  if (bytes <= 0) return {errno == ESRCH ? Thread::cannot_write : Thread::may_write, 0};
  // The name, which is in brackets, may contain anything.
  std::string_view rest(text, static_cast<std::size_t>(bytes));
  const std::size_t name_end = rest.rfind(')');
  if (name_end == std::string_view::npos || name_end + 3 > rest.size()) return {};
  rest.remove_prefix(name_end + 2);
  // A running thread may be in the system call. So may one in an uninterruptible sleep, which waits
  // there for a page. In any other state, a thread is outside of it.
  Observation seen;
  const char state = rest.front();
  if (state != 'R' && state != 'D') seen.thread = Thread::cannot_write;
  // The state is field 3; user and system time are fields 14 and 15.
  for (int field = 3; field <= 15 && !rest.empty(); ++field) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    if (field >= 14) {
      std::uint64_t ticks = 0;
      std::from_chars(rest.data(), rest.data() + end, ticks);
      seen.ticks += ticks;
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return seen;
}

[[gnu::tls_model("initial-exec")]] thread_local std::uint32_t thread_id_of_caller = 0;

}  // namespace

std::uint32_t own_thread_id() {
  if (thread_id_of_caller == 0) {
    // Without the handler, the ID is asked for each time.
    static const bool is_forgotten_in_children =
        pthread_atfork(nullptr, nullptr, [] { thread_id_of_caller = 0; }) == 0;
    if (!is_forgotten_in_children) return static_cast<std::uint32_t>(gettid());
    thread_id_of_caller = static_cast<std::uint32_t>(gettid());
  }
  return thread_id_of_caller;
}

VisitWait::VisitWait(std::uint32_t own_slot)
    : own_slot_(own_slot),
      deadline_(Clock::now() + std::chrono::nanoseconds(patience.to_nanoseconds())) {}

bool VisitWait::is_over(const std::atomic<std::uint64_t>& visit) const {
  const std::uint64_t noted = visit.load(std::memory_order_seq_cst);
  if (noted == Visit::none || Visit::owner_slot(noted) != own_slot_) return true;
  std::optional<std::uint64_t> first_ticks;
  for (int looks = 1; visit.load(std::memory_order_seq_cst) == noted; ++looks) {
    if (looks % looks_before_question != 0) continue;
    const Observation seen = observe(Visit::thread_id(noted));
    if (!first_ticks) first_ticks = seen.ticks;
    if (seen.thread == Thread::cannot_write) return true;
    if (seen.ticks > *first_ticks + visit_ticks_max) return true;
    if (Clock::now() >= deadline_) return false;
    sched_yield();
  }
  return true;
}

bool VisitWait::cannot_write(std::uint32_t thread_id) {
  return observe(thread_id).thread == Thread::cannot_write;
}

}  // namespace tulle::live

#include "live/process/program_memory.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <utility>

#include "base/guarded_access.h"
#include "os/cancellation.h"

namespace tulle::live {
namespace {

// --- pages ---

// Linux 5.14 and later have these (madvise(2)); older headers lack them.
constexpr int populate_read = 22;
constexpr int populate_write = 23;

// Has the kernel fault the pages in. If the kernel is too old for that, all that can be known is
// whether they are mapped.
class ProgramPages final : public verbs::MemoryPages {
 public:
  ProgramPages() : page_bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    void* page = mmap(nullptr, page_bytes_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    can_populate_ = madvise(page, page_bytes_, populate_read) == 0;
    munmap(page, page_bytes_);
  }

  bool bring(std::byte* memory, std::uint64_t bytes, bool write) const override {
    const std::size_t into_page = reinterpret_cast<std::uintptr_t>(memory) & (page_bytes_ - 1);
    std::byte* const start = memory - into_page;
    const int saved = errno;
    const CancellationOff cancellation_off;
    const bool there = can_populate_ ? madvise(start, bytes + into_page,
                                               write ? populate_write : populate_read) == 0
                                     : msync(start, bytes + into_page, MS_ASYNC) == 0;
    errno = saved;
    return there;
  }

  // Reads a byte of each page.
  bool can_read(const std::byte* memory, std::uint64_t bytes) const override {
    const std::span<const std::byte> piece(memory, bytes);
    return attempt({&piece, 1}, [&] {
      const auto read = [](const std::byte* at) {
        static_cast<void>(*static_cast<const volatile std::byte*>(at));
      };
      const std::size_t into_page = reinterpret_cast<std::uintptr_t>(memory) & (page_bytes_ - 1);
      read(memory);
      for (std::uint64_t at = page_bytes_ - into_page; at < bytes; at += page_bytes_) {
        read(memory + at);
      }
    });
  }

 private:
  std::size_t page_bytes_;
  bool can_populate_ = false;
};

// --- faults ---

constexpr std::array fault_signals = {SIGSEGV, SIGBUS};

// A program may set a handler that calls the one before it, which may be this file's. If this file
// then set the same function again, over the program's, the two would call each other without end.
// So each time it sets another function, of another level, and each level knows the handler that
// it replaced. A program that sets more handlers than there are levels has its way.
constexpr int levels = 8;

struct Level {
  std::atomic<bool> is_set{false};
  struct sigaction replaced {};
};
std::array<std::array<Level, levels>, fault_signals.size()> chains;
std::mutex chains_mutex;

sigset_t faults() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : fault_signals) sigaddset(&set, signal);
  return set;
}

std::size_t index_of(int signal) { return signal == SIGSEGV ? 0 : 1; }

// Does what the kernel does for a signal without a handler.
void take_default_action(int signal, const siginfo_t& info) {
  ::signal(signal, SIG_DFL);
  // The access happens again when the handler returns. A signal that somebody sent must be sent
  // again.
  if (info.si_code <= 0) syscall(SYS_tgkill, getpid(), gettid(), signal);
}

void pass_on(struct sigaction& to, int signal, siginfo_t* info, void* context) {
  const bool has_function =
      (to.sa_flags & SA_SIGINFO) != 0 || (to.sa_handler != SIG_DFL && to.sa_handler != SIG_IGN);
  if (!has_function) {
    // The kernel does not ignore a fault, either.
    const bool is_ignored = to.sa_handler == SIG_IGN && info->si_code <= 0;
    if (!is_ignored) take_default_action(signal, *info);
    return;
  }
  const struct sigaction handler = to;
  if ((handler.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) {
    to.sa_flags &= ~SA_SIGINFO;
    to.sa_handler = SIG_DFL;
  }
  sigset_t blocked = handler.sa_mask;
  if ((handler.sa_flags & SA_NODEFER) == 0) sigaddset(&blocked, signal);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  if ((handler.sa_flags & SA_SIGINFO) != 0) {
    handler.sa_sigaction(signal, info, context);
  } else {
    handler.sa_handler(signal);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

template <int level>
void handle_fault(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  if (info->si_code > 0) {
    // If a handler of the program's called this one, its signal is blocked, and leaving would keep
    // it so.
    const sigset_t set = faults();
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    leave_faulty_access(info->si_addr);
  }
  pass_on(chains[index_of(signal)][level].replaced, signal, info, context);
  errno = saved;
}

using Handler = void (*)(int, siginfo_t*, void*);

template <std::size_t... level>
constexpr std::array<Handler, levels> handlers_of(std::index_sequence<level...>) {
  return {&handle_fault<level>...};
}
constexpr std::array<Handler, levels> handlers =
    handlers_of(std::make_index_sequence<std::size_t{levels}>());

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 &&
         std::ranges::find(handlers, action.sa_sigaction) != handlers.end();
}

bool is_same(const struct sigaction& a, const struct sigaction& b) {
  return a.sa_handler == b.sa_handler && a.sa_flags == b.sa_flags;
}

void watch_for(int signal) {
  struct sigaction there {};
  if (sigaction(signal, nullptr, &there) != 0 || is_ours(there)) return;
  const std::lock_guard held(chains_mutex);
  auto& chain = chains[index_of(signal)];
  for (std::size_t i = 0; i < chain.size(); ++i) {
    Level& level = chain[i];
    if (level.is_set && !is_same(level.replaced, there)) continue;
    level.replaced = there;
    level.is_set = true;
    struct sigaction action {};
    action.sa_sigaction = handlers[i];
    // An attempt that is left would leave the signal blocked, were it not for SA_NODEFER.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(signal, &action, nullptr);
    return;
  }
}

struct ThreadState {
  bool is_checked = false;
  bool blocks_faults = false;
  Time checked_at;
};
thread_local ThreadState thread_state;

bool blocks_faults() {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return std::ranges::any_of(fault_signals,
                             [&](int signal) { return sigismember(&blocked, signal) == 1; });
}

}  // namespace

const verbs::MemoryPages& program_pages() {
  static const ProgramPages instance;
  return instance;
}

void watch_for_faults() {
  for (const int signal : fault_signals) watch_for(signal);
}

MemoryTurn::MemoryTurn(Time now) {
  ThreadState& state = thread_state;
  // Devices do not have the same time zero.
  const bool is_recent =
      state.is_checked && now >= state.checked_at && now < state.checked_at + check_interval;
  if (!is_recent) {
    state = {true, blocks_faults(), now};
    watch_for_faults();
  }
  if (!state.blocks_faults) return;
  const sigset_t set = faults();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  lets_through_ = true;
}

MemoryTurn::~MemoryTurn() {
  if (!lets_through_) return;
  const sigset_t set = faults();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace tulle::live

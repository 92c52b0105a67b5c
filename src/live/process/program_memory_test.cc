// Each test runs in a process of its own, because it changes handlers and ends by signals.

#include "live/process/program_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/guarded_access.h"

namespace tulle::live {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr int done = 42;

std::byte* unmapped_page() {
  void* page = mmap(nullptr, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return static_cast<std::byte*>(page);
}

bool can_copy_to(std::byte* to) {
  const std::array<std::byte, 8> bytes{};
  return copy_guarded(to, bytes.data(), bytes.size());
}

// A sanitizer's runtime has handlers, which a program without one has not.
void drop_handlers() {
  for (const int number : {SIGSEGV, SIGBUS}) signal(number, SIG_DFL);
}

void fault() { *static_cast<volatile std::byte*>(unmapped_page()) = std::byte{1}; }

// Ends the process with `done` if the claim holds, and otherwise with 1.
void end_if(bool claim) { _exit(claim ? done : 1); }

void set_handler(int signal, void (*handler)(int), struct sigaction* before = nullptr) {
  struct sigaction action {};
  action.sa_handler = handler;
  ASSERT_EQ(sigaction(signal, &action, before), 0);
}

TEST(ProgramMemory, AnAttemptAtMemoryThatIsGoneFails) {
  const auto body = [] {
    watch_for_faults();
    std::byte* const page = unmapped_page();
    const bool failed = !can_copy_to(page) && !can_copy_to(page);
    mprotect(page, page_bytes, PROT_READ | PROT_WRITE);
    end_if(failed && can_copy_to(page));
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(done), "");
}

TEST(ProgramMemory, AFileThatWasShortenedIsGone) {
  const auto body = [] {
    watch_for_faults();
    const int fd = memfd_create("file", MFD_CLOEXEC);
    if (ftruncate(fd, page_bytes) != 0) _exit(1);
    auto* page = static_cast<std::byte*>(
        mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    if (ftruncate(fd, 0) != 0) _exit(1);
    end_if(!can_copy_to(page));
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(done), "");
}

// An attempt excuses only the memory that it names.
TEST(ProgramMemory, OtherFaultsKillAsEver) {
  const auto body = [] {
    drop_handlers();
    watch_for_faults();
    const std::array<std::byte, 8> bytes{};
    const std::span<const std::byte> piece(bytes);
    static_cast<void>(attempt({&piece, 1}, [] { fault(); }));
  };
  EXPECT_EXIT(
      {
        drop_handlers();
        fault();
      },
      testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(
      {
        drop_handlers();
        watch_for_faults();
        fault();
      },
      testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(body(), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(
      {
        drop_handlers();
        watch_for_faults();
        kill(getpid(), SIGBUS);
        pause();
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(ProgramMemory, TheProgramsHandlersGetWhatIsTheirs) {
  const auto before = [] {
    set_handler(SIGSEGV, [](int) { _exit(done); });
    watch_for_faults();
    if (can_copy_to(unmapped_page())) _exit(1);
    fault();
  };
  EXPECT_EXIT(before(), testing::ExitedWithCode(done), "");
  const auto after = [] {
    watch_for_faults();
    set_handler(SIGSEGV, [](int) { _exit(done); });
    watch_for_faults();
    if (can_copy_to(unmapped_page())) _exit(1);
    fault();
  };
  EXPECT_EXIT(after(), testing::ExitedWithCode(done), "");
}

// The program's handler passes the fault on to the one before it, which is this room's.
TEST(ProgramMemory, HandlersThatCallOneAnotherEnd) {
  const auto body = [] {
    static struct sigaction replaced;
    static int calls = 0;
    drop_handlers();
    watch_for_faults();
    for (int i = 0; i < 20; ++i) {
      struct sigaction action {};
      action.sa_flags = SA_SIGINFO | SA_NODEFER;
      action.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
        if (++calls > 1) _exit(1);
        replaced.sa_sigaction(signal, info, context);
      };
      struct sigaction before {};
      sigaction(SIGSEGV, &action, &before);
      if (i == 0) replaced = before;
      watch_for_faults();
      if (can_copy_to(unmapped_page())) _exit(1);
    }
    fault();
  };
  EXPECT_EXIT(body(), testing::KilledBySignal(SIGSEGV), "");
}

// The kernel blocks the signal while the program's handler runs, and an attempt is left from there.
TEST(ProgramMemory, AnAttemptThatAProgramsHandlerPassesOnBlocksNothing) {
  const auto body = [] {
    static struct sigaction replaced;
    watch_for_faults();
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
      replaced.sa_sigaction(signal, info, context);
    };
    sigaction(SIGSEGV, &action, &replaced);
    const bool failed = !can_copy_to(unmapped_page()) && !can_copy_to(unmapped_page());
    end_if(failed);
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(done), "");
}

TEST(ProgramMemory, AThreadMayBlockTheSignals) {
  const auto body = [] {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    {
      const MemoryTurn turn(Time::seconds(1'000));
      if (can_copy_to(unmapped_page())) _exit(1);
    }
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, nullptr, &blocked);
    end_if(sigismember(&blocked, SIGSEGV) == 1 && sigismember(&blocked, SIGBUS) == 1);
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(done), "");
}

TEST(ProgramMemory, ALaterTurnFindsOutWhatTheProgramHasChanged) {
  const auto body = [] {
    Time now = Time::seconds(1);
    { const MemoryTurn turn(now); }
    signal(SIGSEGV, SIG_DFL);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    now += MemoryTurn::check_interval;
    const MemoryTurn turn(now);
    end_if(!can_copy_to(unmapped_page()));
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(done), "");
}

TEST(ProgramMemory, PagesAreLookedAtFromEndToEnd) {
  const auto body = [] {
    watch_for_faults();
    auto* pages = static_cast<std::byte*>(
        mmap(nullptr, 3 * page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    const verbs::MemoryPages& look = program_pages();
    const bool there = look.can_read(pages + 1, 3 * page_bytes - 1);
    mprotect(pages + page_bytes, page_bytes, PROT_NONE);
    const bool middle = look.can_read(pages, 3 * page_bytes);
    const bool last = look.can_read(pages + page_bytes - 1, 2);
    const bool first = look.can_read(pages + 2 * page_bytes - 1, 2);
    end_if(there && !middle && !last && !first && look.can_read(pages, page_bytes));
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(done), "");
}

}  // namespace
}  // namespace tulle::live

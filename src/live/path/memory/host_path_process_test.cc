// Tests the direct path between processes, of which one is stopped, dies or changes at any time.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "live/path/memory/host_path_end_test.h"
#include "live/path/memory/restartable_call.h"

namespace tulle::live {
namespace {

constexpr std::uint32_t turn_bytes = HostPath::turn_bytes;

// Returns what an agent would tell of a process that has its table under that descriptor.
HostPath::Peer peer_in(pid_t pid, int table_fd) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(table_fd);
  return {pid, UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC)), {}};
}

// Tests the owner's wait for visitors, each of which is a thread that the test describes.
class VisitorTest : public HostPathTest {
 protected:
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
  }
  // Notes a visit to b_, or to the slot that is named, where a_ notes its visits.
  void come(pid_t thread, std::uint32_t slot = 2) {
    note().store(Visit::word(static_cast<std::uint32_t>(thread), slot, 1));
  }
  void leave() { note().store(Visit::none); }
  std::atomic<std::uint64_t>& note() {
    return writable_mapping<PeerTable>(a_.path->peers().table_fd())->visit;
  }
  // Starts a process and waits until the kernel says that it is in that state.
  template <typename Body>
  pid_t start(char state, Body body) {
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      body();
      _exit(0);
    }
    for (;;) {
      std::ifstream file("/proc/" + std::to_string(child_) + "/stat");
      std::string text;
      std::getline(file, text);
      if (text.at(text.rfind(')') + 2) == state) return child_;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Deregisters b_'s region. Returns the outcome and, in `took`, the time.
  VerbsStatus deregister() {
    const auto before = std::chrono::steady_clock::now();
    const VerbsStatus status = b_.deregister();
    took_ = std::chrono::steady_clock::now() - before;
    return status;
  }
  pid_t child_ = 0;
  std::chrono::steady_clock::duration took_{};
};

TEST_F(VisitorTest, ADeadVisitorIsNotWaitedFor) {
  // Tests a dead visitor whose parent has waited for it, and one whose parent has not.
  for (const bool is_waited_for : {true, false}) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | (is_waited_for ? 0 : WNOWAIT));
    come(child);
    EXPECT_TRUE(b_.path->withdraw(*b_.region));
    b_.path->expose(*b_.region);
    if (!is_waited_for) waitpid(child, nullptr, 0);
  }
}

// A visit under its parent's number would be waited for as the parent's.
TEST_F(VisitorTest, AForkedChildVisitsUnderItsOwnNumber) {
  EXPECT_EQ(own_thread_id(), static_cast<std::uint32_t>(gettid()));
  const pid_t child = fork();
  if (child == 0) _exit(own_thread_id() == static_cast<std::uint32_t>(gettid()) ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(VisitorTest, ANumberThatIsNoThreadsIsNotWaitedFor) {
  for (const pid_t thread : {-1, INT32_MIN, INT32_MAX, 0x3FFF'FFFF}) {
    come(thread);
    EXPECT_TRUE(b_.path->withdraw(*b_.region)) << thread;
    b_.path->expose(*b_.region);
  }
}

TEST_F(VisitorTest, AVisitorThatIsStoppedOrAsleepIsNotWaitedFor) {
  come(start('T', [] { raise(SIGSTOP); }));
  EXPECT_TRUE(b_.path->withdraw(*b_.region));
  TearDown();
  b_.path->expose(*b_.region);
  come(start('S', [] { pause(); }));
  EXPECT_TRUE(b_.path->withdraw(*b_.region));
}

TEST_F(VisitorTest, AVisitorOfAnotherProcessIsNotWaitedFor) {
  come(start('R',
             [] {
               for (volatile bool spins = true; spins;) continue;
             }),
       3);
  EXPECT_EQ(deregister(), VerbsStatus::ok);
  EXPECT_LT(took_, std::chrono::nanoseconds(VisitWait::patience.to_nanoseconds()));
}

// The number of a visitor that died may be another thread's now, which runs. So may any number that
// somebody wrote there.
TEST_F(VisitorTest, ARunningThreadIsNotWaitedForWithoutEnd) {
  come(start('R', [] {
    for (volatile bool spins = true; spins;) continue;
  }));
  const VerbsStatus status = deregister();
  EXPECT_TRUE(status == VerbsStatus::ok || status == VerbsStatus::busy);
  EXPECT_LT(took_, std::chrono::seconds(5));
}

// While a visitor may be inside of its system call, the memory must stay.
TEST_F(VisitorTest, TheRegionStaysWhileAVisitorMayWrite) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer makes vfork() a fork(), whose parent does not sleep";
#endif
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  // The parent of a child from vfork() sleeps uninterruptibly, as a visitor does that waits for a
  // page.
  const pid_t visitor = start('D', [&] {
    if (vfork() == 0) {
      char byte = 0;
      static_cast<void>(::read(ends[0], &byte, 1) == 1);
      _exit(0);
    }
    for (;;) pause();
  });
  come(visitor);
  EXPECT_EQ(deregister(), VerbsStatus::busy);
  EXPECT_GE(took_, std::chrono::nanoseconds(VisitWait::patience.to_nanoseconds()));
  EXPECT_EQ(a_.post(verbs::SendOpcode::write, b_.address(), b_.region->rkey(), 8), 1)
      << "nobody new may come";
  come(visitor);  // a_ has noted its own attempt in the same place
  EXPECT_EQ(deregister(), VerbsStatus::busy);
  const char byte = 0;
  ASSERT_EQ(::write(ends[1], &byte, 1), 1);
  leave();
  EXPECT_EQ(deregister(), VerbsStatus::ok);
  close(ends[0]);
  close(ends[1]);
}

// The peer is a process of its own.
class LongTransferToAnotherProcessTest : public testing::Test {
 protected:
  static constexpr auto both = verbs::AccessFlags(Access::remote_write) | Access::remote_read;
  struct Told {
    int table_fd;
    QpNumber qp;
    RemoteKey rkey;
    std::uint64_t address;
  };

  void SetUp() override { ASSERT_EQ(pipe(ends_), 0); }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    for (const int end : ends_) close(end);
  }

  // Connects `a` with a process that does `rest` when it has told of its end. The process's buffer
  // lies at `place`, if that is not null.
  template <typename Rest>
  void connect(PathEnd& a, std::size_t bytes, std::byte* place, Rest rest) {
    a.open([this](QpNumber) -> Result<HostPath::Peer> { return peer_in(child_, told_.table_fd); });
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      PathEnd b(2, bytes, place);
      b.open([&a](QpNumber) -> Result<HostPath::Peer> { return a.as_peer(getppid()); });
      b.connect(*b.qp, a.qp->number, both, {1, 1});
      const Told told{b.path->peers().table_fd(), b.qp->number, b.region->rkey(), b.address()};
      static_cast<void>(::write(ends_[1], &told, sizeof told) == sizeof told);
      rest(b);
      for (;;) pause();
    }
    ASSERT_EQ(::read(ends_[0], &told_, sizeof told_), static_cast<ssize_t>(sizeof told_));
    a.connect(*a.qp, told_.qp, both, {1, 1});
  }

  int ends_[2];
  pid_t child_ = 0;
  Told told_{};
};

TEST_F(LongTransferToAnotherProcessTest, ThePeerDiesInBetween) {
  constexpr std::uint32_t bytes = 8 * turn_bytes;
  PathEnd a(1, bytes);
  connect(a, bytes, nullptr, [](PathEnd&) {});
  a.post(*a.qp, verbs::SendOpcode::write, told_.address, told_.rkey, bytes);
  EXPECT_EQ(a.turn(), 0) << "the direct path serves";
  EXPECT_EQ(a.turn(), 0);
  kill(child_, SIGKILL);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT);
  EXPECT_GT(a.turn(), 0) << "packets find out that the peer is gone";
  EXPECT_EQ(a.completions(), 0);
}

// The peer's memory before exec(2) and the new program's lie at the same addresses. Neither the
// system nor a sanitizer's runtime uses these.
constexpr std::size_t exec_bytes = 64 << 10;
std::byte* const exec_place = reinterpret_cast<std::byte*>(0x7E90'0000'0000);
constexpr std::byte exec_pattern{0x5A};
constexpr const char* exec_variable = "TULLE_TEST_NEW_IMAGE";

std::byte* map_exec_place() {
  void* place = mmap(exec_place, exec_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  EXPECT_EQ(place, exec_place);
  return exec_place;
}

// The new program. It says that it is there, and ends when it is asked to, with 0 if nobody has
// written to its memory.
[[gnu::constructor]] void run_new_image() {
  const char* ends = std::getenv(exec_variable);
  if (ends == nullptr) return;
  int from = -1;
  int to = -1;
  if (std::sscanf(ends, "%d %d", &from, &to) != 2) _exit(2);
  std::fill_n(map_exec_place(), exec_bytes, exec_pattern);
  char byte = 0;
  if (::write(to, &byte, 1) != 1 || ::read(from, &byte, 1) != 1) _exit(3);
  const bool is_untouched =
      std::all_of(exec_place, exec_place + exec_bytes, [](auto b) { return b == exec_pattern; });
  _exit(is_untouched ? 0 : 1);
}

TEST_F(LongTransferToAnotherProcessTest, ThePeerCallsExecInBetween) {
  for (const auto opcode : {verbs::SendOpcode::write, verbs::SendOpcode::read}) {
    PathEnd a(1, exec_bytes);
    int back[2];
    ASSERT_EQ(pipe(back), 0);
    connect(a, exec_bytes, map_exec_place(), [&](PathEnd&) {
      const std::string ends = std::to_string(back[0]) + " " + std::to_string(ends_[1]);
      setenv(exec_variable, ends.c_str(), 1);
      const char* const arguments[] = {"new-image", nullptr};
      execv("/proc/self/exe", const_cast<char* const*>(arguments));
      _exit(4);
    });
    char byte = 0;
    ASSERT_EQ(::read(ends_[0], &byte, 1), 1);
    a.post(*a.qp, opcode, told_.address, told_.rkey, exec_bytes);
    EXPECT_GT(a.turn(), 0) << "packets find out that the peer is gone";
    EXPECT_EQ(a.completions(), 0);
    ASSERT_EQ(::write(back[1], &byte, 1), 1);
    int status = 0;
    ASSERT_EQ(waitpid(child_, &status, 0), child_);
    child_ = 0;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    close(back[0]);
    close(back[1]);
  }
}

// This process registers memory, withdraws it and uses it for itself, while a child writes to it.
class WithdrawalTest : public testing::Test {
 protected:
  static constexpr std::uint32_t bytes = 64 << 10;
  static constexpr auto both = verbs::AccessFlags(Access::remote_write) | Access::remote_read;
  struct Shared {
    std::atomic<int> writer_table_fd;
    std::atomic<std::uint32_t> writer_qp;
    std::atomic<bool> owner_is_connected;
    std::atomic<long> writes;
    std::atomic<int> scribbler_table_fd;
    std::atomic<std::uint32_t> scribbler_qp;
    std::atomic<long> scribbles;
  };

  void SetUp() override {
    if (!can_make_restartable_calls()) GTEST_SKIP() << "the direct path needs restartable calls";
    shared_ = static_cast<Shared*>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    owner_.open([this](QpNumber) -> Result<HostPath::Peer> {
      return peer_in(child_, shared_->writer_table_fd);
    });
  }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    if (shared_ != nullptr) munmap(shared_, sizeof(Shared));
  }

  // The child calls prepare(), and then writes for ever.
  template <typename Prepare>
  void start_writer(Prepare prepare) {
    const pid_t owner = getpid();
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      write_for_ever(owner, prepare);
    }
    while (shared_->writer_qp == 0) sched_yield();
    owner_.connect(*owner_.qp, QpNumber{shared_->writer_qp.load()}, both, {1, 1});
    shared_->owner_is_connected = true;
  }
  template <typename Prepare>
  [[noreturn]] void write_for_ever(pid_t owner, Prepare prepare) {
    PathEnd writer(2, bytes);
    writer.open([&](QpNumber) -> Result<HostPath::Peer> { return owner_.as_peer(owner); });
    std::fill(writer.buffer.begin(), writer.buffer.end(), std::byte{0xAA});
    shared_->writer_table_fd = writer.path->peers().table_fd();
    shared_->writer_qp = writer.qp->number.value;
    while (!shared_->owner_is_connected) sched_yield();
    writer.connect(*writer.qp, owner_.qp->number, both, {1, 1});
    prepare();
    for (;;) {
      writer.post(*writer.qp, verbs::SendOpcode::write, owner_.address(), owner_.region->rkey(),
                  bytes);
      verbs::Completion completion;
      if (writer.turn() == 0 && writer.poll(completion)) {
        ++shared_->writes;
        continue;
      }
      writer.move_qp(verbs::QpState::reset);
      writer.connect(*writer.qp, owner_.qp->number, both, {1, 1});
    }
  }

  // Exits with 1 if it can do what it must not.
  [[noreturn]] void scribble_for_ever(pid_t owner, const std::array<HostPath::Peer, 2>& others) {
    PathEnd scribbler(3);
    scribbler.open([](QpNumber) -> Result<HostPath::Peer> { return Error{"nobody", 0}; });
    std::atomic<std::uint64_t>& note =
        writable_mapping<PeerTable>(scribbler.path->peers().table_fd())->visit;
    shared_->scribbler_table_fd = scribbler.path->peers().table_fd();
    shared_->scribbler_qp = scribbler.qp->number.value;
    std::minstd_rand random(7);
    std::uint64_t word = 0;
    for (;; ++shared_->scribbles) {
      word = word * 6'364'136'223'846'793'005u + random();
      const unsigned kind = random() % 65'536;
      // Threads that run, and the owner's slot, cost the owner the most.
      const std::uint64_t thread = kind == 0   ? static_cast<std::uint64_t>(gettid())
                                   : kind == 1 ? static_cast<std::uint64_t>(owner)
                                               : word >> 32;
      const auto number = static_cast<std::uint32_t>(random());
      note = kind % 3 == 2 ? word : Visit::word(static_cast<std::uint32_t>(thread), 1, number);
      if (kind % 64 == 4) sched_yield();
      if (kind % 1'024 != 5) continue;
      for (const HostPath::Peer& other : others) {
        const int fd = other.table.get();
        if (ftruncate(fd, static_cast<off_t>(random() % 4'096)) == 0) _exit(1);
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4'096) == 0) _exit(1);
        if (pwrite(fd, &word, sizeof word, 0) >= 0) _exit(1);
        void* const whole = mmap(nullptr, 4'096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (whole != MAP_FAILED) _exit(1);
      }
    }
  }

  void clear() { std::fill(owner_.buffer.begin(), owner_.buffer.end(), std::byte{0}); }
  bool is_clear() const {
    return std::all_of(owner_.buffer.begin(), owner_.buffer.end(),
                       [](std::byte byte) { return byte == std::byte{0}; });
  }

  PathEnd owner_{1, bytes};
  Shared* shared_ = nullptr;
  pid_t child_ = 0;
};

// TULLE_TEST_ROUNDS asks for more rounds than CI has time for.
long rounds_or(long usual) {
  const char* asked = std::getenv("TULLE_TEST_ROUNDS");
  return asked != nullptr ? std::atol(asked) : usual;
}

TEST_F(WithdrawalTest, NothingIsWrittenAfterwards) {
  const long rounds = rounds_or(100);
  start_writer([] {});
  std::minstd_rand random(3);
  for (long round = 0; round < rounds; ++round) {
    const long before = shared_->writes;
    for (int i = 0; i < 2'000 && shared_->writes == before; ++i) sched_yield();
    const bool stops = random() % 2 == 0;
    if (stops) kill(child_, SIGSTOP);
    for (unsigned i = random() % 16; i > 0; --i) sched_yield();
    while (!owner_.path->withdraw(*owner_.region)) kill(child_, SIGCONT);
    clear();
    if (stops) kill(child_, SIGCONT);
    for (unsigned i = random() % 64; i > 0; --i) sched_yield();
    ASSERT_TRUE(is_clear()) << "round " << round;
    owner_.expose_again();
  }
  EXPECT_GT(shared_->writes, 0);
}

// A second peer notes visits that it does not make, writes anything to all memory of the owner and
// the writer that it can map, and tries to shorten and empty what it cannot. The owner's memory
// changes only while it is exposed, and the owner waits for a bounded time.
TEST_F(WithdrawalTest, APeerMayScribbleOverAllThatIsShared) {
  const long rounds = rounds_or(300);
  start_writer([] {});
  const std::array<HostPath::Peer, 2> others = {owner_.as_peer(getpid()),
                                                peer_in(child_, shared_->writer_table_fd)};
  const pid_t owner = getpid();
  const pid_t scribbler = fork();
  if (scribbler == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    scribble_for_ever(owner, others);
  }
  while (shared_->scribbler_qp == 0) sched_yield();
  owner_.find_peer = [&](QpNumber) -> Result<HostPath::Peer> {
    return peer_in(scribbler, shared_->scribbler_table_fd);
  };
  owner_.connect(*owner_.second_qp, QpNumber{shared_->scribbler_qp.load()}, both, {1, 1});
  while (shared_->scribbles == 0) sched_yield();
  std::minstd_rand random(5);
  long refusals = 0;
  for (long round = 0; round < rounds; ++round) {
    const long before = shared_->writes;
    const bool waits = round % 16 == 0;
    for (int i = 0; i < 2'000 && waits && shared_->writes == before; ++i) sched_yield();
    if (!owner_.path->withdraw(*owner_.region)) {
      ++refusals;  // as ibv_dereg_mr's EBUSY: a thread that runs claimed to be visiting
      continue;
    }
    clear();
    for (unsigned i = random() % 4; i > 0; --i) sched_yield();
    ASSERT_TRUE(is_clear()) << "round " << round;
    owner_.expose_again();
  }
  std::printf("%ld rounds, %ld writes, %ld refusals\n", rounds, shared_->writes.load(), refusals);
  EXPECT_LT(refusals, rounds / 2);
  EXPECT_GT(shared_->writes, 0);
  EXPECT_EQ(waitpid(scribbler, nullptr, WNOHANG), 0) << "it could do what it must not";
  kill(scribbler, SIGKILL);
  waitpid(scribbler, nullptr, 0);
}

#ifdef __x86_64__
// The writer is stopped after each of the instructions that lead to its system call or its copy.
// Wherever that is, the owner does not wait, and the writer writes no more when it goes on.
TEST_F(WithdrawalTest, NothingIsWrittenByAWriterThatWasStoppedAnywhere) {
  constexpr int positions = 80;
  start_writer([] {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
  });
  const auto wait_for = [&](int signal) {
    int status = 0;
    ASSERT_EQ(waitpid(child_, &status, 0), child_);
    ASSERT_TRUE(WIFSTOPPED(status) && WSTOPSIG(status) == signal) << status;
  };
  ASSERT_NO_FATAL_FAILURE(wait_for(SIGSTOP));
  // The child has this process's addresses.
  void* const place = shared_regions_of_tests() != nullptr
                          ? reinterpret_cast<void*>(&copy_if_unchanged)
                          : reinterpret_cast<void*>(&call_if_unchanged);
  const long code = ptrace(PTRACE_PEEKTEXT, child_, place, nullptr);
  constexpr long breakpoint = 0xCC;
  int made = 0;
  for (int steps = 0; steps < positions; ++steps) {
    ASSERT_EQ(ptrace(PTRACE_POKETEXT, child_, place, (code & ~0xFFL) | breakpoint), 0);
    ASSERT_EQ(ptrace(PTRACE_CONT, child_, nullptr, nullptr), 0);
    ASSERT_NO_FATAL_FAILURE(wait_for(SIGTRAP));
    ASSERT_EQ(ptrace(PTRACE_POKETEXT, child_, place, code), 0);
    user_regs_struct registers;
    ASSERT_EQ(ptrace(PTRACE_GETREGS, child_, nullptr, &registers), 0);
    registers.rip = reinterpret_cast<std::uintptr_t>(place);
    ASSERT_EQ(ptrace(PTRACE_SETREGS, child_, nullptr, &registers), 0);
    for (int i = 0; i < steps; ++i) {
      ASSERT_EQ(ptrace(PTRACE_SINGLESTEP, child_, nullptr, nullptr), 0);
      ASSERT_NO_FATAL_FAILURE(wait_for(SIGTRAP));
    }
    ASSERT_TRUE(owner_.path->withdraw(*owner_.region)) << steps;
    made += is_clear() ? 0 : 1;
    clear();
    const long writes = shared_->writes;
    ASSERT_EQ(ptrace(PTRACE_CONT, child_, nullptr, nullptr), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    kill(child_, SIGSTOP);
    ASSERT_NO_FATAL_FAILURE(wait_for(SIGSTOP));
    ASSERT_TRUE(is_clear()) << "stopped after " << steps << " instructions";
    ASSERT_LE(shared_->writes, writes + 1) << "one that it had made before";
    owner_.expose_again();
  }
  EXPECT_EQ(made, 0) << "a thread that is stopped at each instruction makes no call";
}
#endif

}  // namespace
}  // namespace tulle::live

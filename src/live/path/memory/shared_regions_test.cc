#include "live/path/memory/shared_regions.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "os/unique_fd.h"

namespace tulle::live {
namespace {

constexpr std::size_t page = region_page_bytes;

TEST(Coverage, CountsRanges) {
  Coverage coverage;
  EXPECT_FALSE(coverage.overlaps(0, ~std::uint64_t{0}));
  coverage.add(100, 200);
  coverage.add(150, 300);
  EXPECT_FALSE(coverage.overlaps(0, 100));
  EXPECT_TRUE(coverage.overlaps(0, 101));
  EXPECT_TRUE(coverage.overlaps(299, 400));
  EXPECT_FALSE(coverage.overlaps(300, 400));
  coverage.remove(100, 200);
  EXPECT_FALSE(coverage.overlaps(0, 150));
  EXPECT_TRUE(coverage.overlaps(150, 151));
  coverage.add(150, 300);
  coverage.remove(150, 300);
  EXPECT_TRUE(coverage.overlaps(200, 201)) << "one of two equal ranges is left";
  coverage.remove(150, 300);
  EXPECT_FALSE(coverage.overlaps(0, ~std::uint64_t{0}));
}

TEST(Coverage, AgreesWithASlowCount) {
  Coverage coverage;
  std::array<int, 64> slow{};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  std::uint32_t random = 7;
  const auto below = [&](std::uint32_t bound) {
    random = random * 1'664'525 + 1'013'904'223;
    return (random >> 8) % bound;
  };
  for (int step = 0; step < 5'000; ++step) {
    if (ranges.size() > 6 || (!ranges.empty() && below(2) == 0)) {
      const auto range = ranges[below(static_cast<std::uint32_t>(ranges.size()))];
      ranges.erase(std::ranges::find(ranges, range));
      coverage.remove(range.first, range.second);
      for (auto at = range.first; at < range.second; ++at) --slow[at];
    } else {
      const std::uint64_t begin = below(60);
      const std::uint64_t end = begin + below(static_cast<std::uint32_t>(64 - begin));
      ranges.emplace_back(begin, end);
      coverage.add(begin, end);
      for (auto at = begin; at < end; ++at) ++slow[at];
    }
    const std::uint64_t begin = below(63);
    const std::uint64_t end = begin + 1 + below(static_cast<std::uint32_t>(63 - begin));
    const bool expected =
        std::any_of(slow.begin() + static_cast<long>(begin), slow.begin() + static_cast<long>(end),
                    [](int count) { return count > 0; });
    ASSERT_EQ(coverage.overlaps(begin, end), expected) << step;
  }
}

class SharedRegionsTest : public testing::Test {
 protected:
  using Unshared = SharedRegions::Unshared;
  static constexpr std::size_t pages = 16;
  SharedRegionsTest()
      : memory_(static_cast<unsigned char*>(mmap(nullptr, pages * page, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    std::memset(memory_, 5, pages * page);
    regions_.enable_without_advice();
    only_ = &regions_;
  }
  ~SharedRegionsTest() override {
    only_ = nullptr;
    munmap(memory_, pages * page);
  }
  static verbs::MemoryRegion region(void* memory, std::size_t bytes) {
    verbs::MemoryRegion region;
    region.memory = static_cast<std::byte*>(memory);
    region.length = bytes;
    return region;
  }
  // Shares and exposes, as a registration does.
  std::optional<SharedRegions::Shown> expose(const verbs::MemoryRegion& region) {
    const auto hold = regions_.share(region.memory, region.length);
    return regions_.expose(this, region);
  }
  std::uint64_t unshared(Unshared reason) const { return regions_.counters().unshared_for(reason); }
  std::uint64_t unshared() const {
    const auto counts = regions_.counters().unshared;
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  }
  // Returns true if the page is the program's own.
  bool is_private(std::size_t number) const {
    const auto address = reinterpret_cast<std::uint64_t>(memory_) + number * page;
    bool found = false;
    for_each_mapping(Detail::maps, [&](const Mapping& mapping) {
      if (mapping.begin <= address && address < mapping.end) found = mapping.rights == "rw-p";
      return true;
    });
    return found;
  }
  // Handlers of fork(2), as a device sets them.
  static void watch_forks() {
    static const int registered = pthread_atfork(
        [] {
          if (only_ != nullptr) only_->before_fork();
        },
        [] {
          if (only_ != nullptr) only_->after_fork_in_parent();
        },
        [] {
          if (only_ != nullptr) only_->after_fork_in_child();
        });
    ASSERT_EQ(registered, 0);
  }

  unsigned char* memory_;
  SharedRegions regions_;
  static inline SharedRegions* only_ = nullptr;
};

TEST_F(SharedRegionsTest, WholePagesOfARegionAreShared) {
  const auto a = region(memory_ + 100, 3 * page);
  const auto shown = expose(a);
  ASSERT_TRUE(shown) << testing::PrintToString(regions_.counters().unshared);
  EXPECT_EQ(shown->address, reinterpret_cast<std::uint64_t>(memory_) + page);
  EXPECT_EQ(shown->bytes, 2 * page);
  EXPECT_TRUE(is_private(0) && is_private(3));
  EXPECT_FALSE(is_private(1) || is_private(2));
  void* const view = mmap(nullptr, shown->bytes, PROT_WRITE, MAP_SHARED, shown->fd, 0);
  ASSERT_NE(view, MAP_FAILED);
  static_cast<unsigned char*>(view)[7] = 77;
  EXPECT_EQ(memory_[page + 7], 77);
  munmap(view, shown->bytes);
  EXPECT_EQ(regions_.counters().bytes, 2 * page);
}

TEST_F(SharedRegionsTest, ARegionWithoutAWholePageStays) {
  EXPECT_FALSE(expose(region(memory_ + 1, page)));
  EXPECT_FALSE(expose(region(memory_ + 2 * page + 1, 2 * page - 2)));
  EXPECT_EQ(regions_.counters().files, 0u);
  EXPECT_EQ(unshared(), 0u) << "nobody expects so little to be shared";
}

TEST_F(SharedRegionsTest, PagesMoveBackWithTheLastRegion) {
  const auto a = region(memory_, 4 * page);
  const auto b = region(memory_ + page, page);
  const auto first = expose(a);
  const auto second = expose(b);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->number, second->number) << "one file serves both";
  regions_.withdraw(a);
  regions_.tidy();
  EXPECT_FALSE(is_private(0)) << "the other region still needs the file";
  EXPECT_EQ(regions_.place_of(b), second->place);
  regions_.withdraw(b);
  EXPECT_FALSE(is_private(0)) << "withdrawing does not wait for pages to move";
  regions_.tidy();
  EXPECT_TRUE(is_private(0) && is_private(3));
  EXPECT_EQ(memory_[page], 5);
  EXPECT_EQ(regions_.place_of(b), std::nullopt);
}

// A region may be exposed again with other rights, without a registration that looks at its file.
TEST_F(SharedRegionsTest, ARegionKeepsItsFileWhenItsRightsChange) {
  const auto a = region(memory_, 2 * page);
  const auto first = expose(a);
  const auto again = regions_.expose(this, a);
  ASSERT_TRUE(first && again);
  EXPECT_EQ(first->number, again->number);
  regions_.withdraw(a);
  EXPECT_FALSE(regions_.expose(this, a)) << "the file was not looked at since";
  regions_.tidy();
  EXPECT_FALSE(is_private(0)) << "peers may write to the pages by system calls";
  regions_.withdraw(a);
  regions_.tidy();
  EXPECT_TRUE(is_private(0));
}

// Pages of a region keep their files, also those with which the region is not exposed.
TEST_F(SharedRegionsTest, ARegionKeepsAllFilesBelowIt) {
  const auto a = region(memory_, 4 * page);
  const auto b = region(memory_ + 4 * page, page);
  ASSERT_TRUE(expose(a));
  ASSERT_TRUE(expose(b));
  const auto both = region(memory_, 5 * page);
  ASSERT_TRUE(expose(both));
  regions_.withdraw(a);
  regions_.withdraw(b);
  regions_.tidy();
  EXPECT_FALSE(is_private(0) || is_private(4));
  regions_.withdraw(both);
  regions_.tidy();
  EXPECT_TRUE(is_private(0) && is_private(4));
}

TEST_F(SharedRegionsTest, ManyRegionsLeaveNoMappingsBehind) {
  constexpr std::size_t count = 200;
  auto* const memory = static_cast<unsigned char*>(
      mmap(nullptr, count * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(memory, 5, count * page);
  const auto mappings = [] {
    std::size_t number = 0;
    for_each_mapping(Detail::maps, [&](const Mapping&) { return ++number > 0; });
    return number;
  };
  const std::size_t before = mappings();
  for (std::size_t i = 0; i < count; i += 2) {
    const auto a = region(memory + i * page, page);
    ASSERT_TRUE(expose(a));
    regions_.withdraw(a);
    regions_.tidy();
  }
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr std::size_t own = count / 8;  // a sanitizer may map some of its own
#else
  constexpr std::size_t own = 2;
#endif
  EXPECT_LE(mappings(), before + own);
  munmap(memory, count * page);
}

// Pages that a device may hold stay in their file until the program unmaps them.
TEST_F(SharedRegionsTest, PagesStayWhileADeviceMayHoldThem) {
  const auto a = region(memory_, 4 * page);
  ASSERT_TRUE(expose(a));
  std::array<std::byte, 256> parameters{};
  UniqueFd ring(static_cast<int>(syscall(SYS_io_uring_setup, 4, parameters.data())));
  if (!ring) GTEST_SKIP() << "no io_uring: " << std::strerror(errno);
  regions_.withdraw(a);
  regions_.tidy();
  EXPECT_FALSE(is_private(0));
  EXPECT_TRUE(expose(a)) << "the file serves again";
  regions_.withdraw(a);
  regions_.tidy();
  EXPECT_EQ(regions_.counters().files, 1u);
  munmap(memory_, 4 * page);
  regions_.tidy();
  EXPECT_EQ(regions_.counters().files, 0u);
}

TEST_F(SharedRegionsTest, AHoldKeepsPagesUntilTheyAreExposed) {
  const auto a = region(memory_, page);
  {
    const auto hold = regions_.share(a.memory, a.length);
    ASSERT_TRUE(hold);
    regions_.tidy();
    EXPECT_FALSE(is_private(0));
  }
  regions_.tidy();
  EXPECT_TRUE(is_private(0));
}

TEST_F(SharedRegionsTest, ARegionThatIsExposedAgainIsCountedOnce) {
  const auto a = region(memory_, page);
  ASSERT_TRUE(expose(a));
  ASSERT_TRUE(expose(a));
  regions_.withdraw(a);
  regions_.tidy();
  EXPECT_TRUE(is_private(0));
}

TEST_F(SharedRegionsTest, AnOwnerThatGoesTakesItsRegionsAlong) {
  const auto a = region(memory_, page);
  ASSERT_TRUE(expose(a));
  regions_.forget(&regions_);
  regions_.tidy();
  EXPECT_FALSE(is_private(0));
  regions_.forget(this);
  regions_.tidy();
  EXPECT_TRUE(is_private(0));
}

// Peers may write to memory that is registered without a file, and would write to the old pages.
TEST_F(SharedRegionsTest, MemoryThatPeersMayWriteToStays) {
  const auto a = region(memory_, 4 * page);
  EXPECT_FALSE(regions_.expose(this, a));
  const auto overlapping = region(memory_ + 3 * page, 2 * page);
  EXPECT_FALSE(expose(overlapping));
  EXPECT_TRUE(is_private(4));
  EXPECT_EQ(unshared(Unshared::registered), 1u);
  EXPECT_EQ(unshared(), 1u);
  const auto edge = region(memory_ + 8 * page, page + 10);
  ASSERT_TRUE(expose(edge));
  const auto next = region(memory_ + 9 * page, page);
  EXPECT_FALSE(expose(next)) << "the region before ends in this page";
  regions_.withdraw(a);
  regions_.withdraw(overlapping);
  const auto again = region(memory_ + 3 * page, 2 * page);
  EXPECT_TRUE(expose(again));
}

// Peers that write to the new region must not reach the old file.
TEST_F(SharedRegionsTest, OtherMemoryAtTheSameAddressIsNotTheFiles) {
  const auto a = region(memory_, 2 * page);
  ASSERT_TRUE(expose(a));
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(
        mmap(memory_, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        memory_);
    const auto b = region(memory_, page);
    EXPECT_FALSE(expose(b));
    EXPECT_FALSE(regions_.expose(this, b)) << "also without a question";
    regions_.withdraw(b);
  }
  const auto place = regions_.place_of(a);
  ASSERT_TRUE(place);
  EXPECT_TRUE(regions_.is_displaced(*place));
  EXPECT_EQ(regions_.displacements(), 1u);
  regions_.withdraw(a);
  EXPECT_TRUE(expose(region(memory_, page)));
}

// The program need not register a whole page to ask for the memory that is there now.
TEST_F(SharedRegionsTest, AShortRegionFindsThatAFileIsOutOfItsPlace) {
  const auto a = region(memory_, 2 * page);
  ASSERT_TRUE(expose(a));
  munmap(memory_ + page, page);
  ASSERT_NE(mmap(memory_ + page, page, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  EXPECT_FALSE(expose(region(memory_ + page + 8, 100)));
  EXPECT_TRUE(regions_.is_displaced(*regions_.place_of(a)));
}

TEST_F(SharedRegionsTest, SpecialMemoryStays) {
  ASSERT_EQ(madvise(memory_, page, MADV_DONTFORK), 0);
  EXPECT_FALSE(expose(region(memory_, page)));
  EXPECT_EQ(unshared(Unshared::kind), 1u);
  EXPECT_TRUE(expose(region(memory_ + page, page)));
  EXPECT_EQ(unshared(), 1u);
}

TEST_F(SharedRegionsTest, FilesAreLimited) {
  constexpr std::size_t count = SharedRegions::files_max + 8;
  auto* const memory = static_cast<unsigned char*>(
      mmap(nullptr, count * 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::deque<verbs::MemoryRegion> all;
  std::size_t shared = 0;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(region(memory + i * 2 * page, page));
    shared += expose(all.back()).has_value() ? 1 : 0;
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(shared, std::min<std::size_t>(SharedRegions::files_max, limit.rlim_cur / 4));
  EXPECT_EQ(regions_.counters().files, shared);
  EXPECT_EQ(regions_.counters().bytes, shared * page);
  EXPECT_EQ(unshared(Unshared::room), count - shared);
  for (const auto& one : all) regions_.withdraw(one);
  regions_.tidy();
  EXPECT_EQ(regions_.counters().files, 0u);
  EXPECT_EQ(regions_.counters().bytes, 0u);
  EXPECT_TRUE(expose(all.front())) << "places are free again";
  regions_.withdraw(all.front());
  regions_.tidy();
  munmap(memory, count * 2 * page);
}

TEST_F(SharedRegionsTest, PagesThatAreGivenUpBecomeZeros) {
  ASSERT_TRUE(expose(region(memory_ + page, 2 * page)));
  for (const int advice : {MADV_DONTNEED, MADV_FREE}) {
    std::memset(memory_, 5, pages * page);
    ASSERT_EQ(SharedRegions::advise(memory_, 2 * page, advice, &madvise), 0);
    EXPECT_EQ(memory_[0], 0) << "also the page that is not shared";
    EXPECT_EQ(memory_[page], 0);
    EXPECT_EQ(memory_[2 * page], 5);
  }
}

// The kernel takes whole pages, and goes on behind addresses that are not mapped.
TEST_F(SharedRegionsTest, AdviceIsRoundedAsTheKernelDoes) {
  ASSERT_TRUE(expose(region(memory_, 4 * page)));
  ASSERT_EQ(SharedRegions::advise(memory_, page + 1, MADV_DONTNEED, &madvise), 0);
  EXPECT_EQ(memory_[2 * page - 1], 0);
  EXPECT_EQ(memory_[2 * page], 5);
  munmap(memory_ + 2 * page, page);
  ASSERT_EQ(SharedRegions::advise(memory_ + page, 3 * page, MADV_DONTNEED, &madvise), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(memory_[3 * page], 0);
}

// Pages that are given up while they move do not come back.
TEST_F(SharedRegionsTest, AdviceWaitsForPagesThatMove) {
  if (!WriterHold::create()) GTEST_SKIP() << "the system holds no thread back";
  std::atomic<bool> stops{false};
  std::uint64_t given_up = 0;
  std::thread allocator([&] {
    for (; !stops; ++given_up) {
      std::memset(memory_, 7, page);
      SharedRegions::advise(memory_, page, MADV_DONTNEED, &madvise);
      if (memory_[0] != 0) {
        ADD_FAILURE() << given_up;
        break;
      }
    }
  });
  std::size_t shared = 0;
  for (int round = 0; round < 300; ++round) {
    const auto a = region(memory_, pages * page);
    shared += expose(a).has_value() ? 1 : 0;
    regions_.withdraw(a);
    regions_.tidy();
  }
  stops = true;
  allocator.join();
  EXPECT_GT(shared, 200u);
  EXPECT_GT(given_up, 100u);
}

TEST_F(SharedRegionsTest, OtherAdviceIsTheKernels) {
  ASSERT_TRUE(expose(region(memory_ + page, page)));
  static int last = -1;
  const auto next = [](void*, std::size_t, int advice) { return last = advice, -7; };
  EXPECT_EQ(SharedRegions::advise(memory_, 3 * page, MADV_WILLNEED, next), -7);
  EXPECT_EQ(last, MADV_WILLNEED);
  EXPECT_EQ(SharedRegions::advise(memory_ + 2 * page, page, MADV_FREE, next), -7);
  EXPECT_EQ(last, MADV_FREE) << "private memory may keep its content";
  EXPECT_EQ(SharedRegions::advise(memory_ + page, page, MADV_FREE, next), -7);
  EXPECT_EQ(last, MADV_DONTNEED);
  EXPECT_EQ(memory_[page], 5) << "nothing is given up if the call fails";
}

// The program may have closed the descriptor, and may have opened a file under its number.
TEST_F(SharedRegionsTest, AFileOfTheProgramIsNotGivenUp) {
  const auto shown = expose(region(memory_, page));
  ASSERT_TRUE(shown);
  const UniqueFd file(memfd_create("of the program", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), page), 0);
  ASSERT_EQ(pwrite(file.get(), "text", 4, 0), 4);
  const UniqueFd kept(dup(shown->fd));
  ASSERT_EQ(dup2(file.get(), shown->fd), shown->fd);
  EXPECT_EQ(SharedRegions::advise(memory_, page, MADV_DONTNEED, &madvise), 0);
  char text[4];
  EXPECT_EQ(pread(file.get(), text, 4, 0), 4);
  EXPECT_EQ(std::memcmp(text, "text", 4), 0);
  ASSERT_EQ(dup2(kept.get(), shown->fd), shown->fd);
}

// Other threads are held back while pages move, or the pages stay.
TEST_F(SharedRegionsTest, ThreadsThatCannotBeHeldBackKeepPagesWhereTheyAre) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become an ordinary user";
  if (!WriterHold::create()) GTEST_SKIP() << "the system holds no thread back";
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer has its own thread";
#endif
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<bool> stops{false};
    std::thread other([&] {
      while (!stops) usleep(1'000);
    });
    SharedRegions regions;
    regions.enable_without_advice();
    const bool may_as_root = static_cast<bool>(regions.share(memory_, page));
    const bool changed = setgid(65'534) == 0 && setuid(65'534) == 0;
    const bool may_as_user = static_cast<bool>(regions.share(memory_ + 4 * page, page)) ||
                             regions.counters().unshared_for(Unshared::threads) != 1;
    regions.note_own_thread(1);
    const bool may_beside_own = static_cast<bool>(regions.share(memory_ + 4 * page, page));
    stops = true;
    other.join();
    const bool is_right = may_as_root && changed && !may_as_user && may_beside_own;
    _exit(is_right ? 0 : 1 + may_as_root + 2 * changed + 4 * may_as_user + 8 * may_beside_own);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A child sees what its parent had when it called fork(2), and neither sees what the other writes.
TEST_F(SharedRegionsTest, AForkedChildHasItsOwnMemory) {
  watch_forks();
  ASSERT_TRUE(expose(region(memory_, 8 * page)));
  for (int round = 0; round < 20; ++round) {
    std::memset(memory_, round, 8 * page);
    const pid_t child = fork();
    if (child == 0) {
      usleep(2'000);
      bool is_right = true;
      for (std::size_t at = 0; at < 8 * page; ++at) is_right &= memory_[at] == round;
      std::memset(memory_, 200, 8 * page);
      const bool shares_none = regions_.counters().files == 0;
      _exit(is_right && shares_none ? 0 : 1);
    }
    std::memset(memory_, 100, 8 * page);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_EQ(status, 0) << round;
    for (std::size_t at = 0; at < 8 * page; ++at) ASSERT_EQ(memory_[at], 100);
  }
}

// A child that shares memory of its own does not touch its parent's.
TEST_F(SharedRegionsTest, AForkedChildMayShareMemoryOfItsOwn) {
  watch_forks();
  ASSERT_TRUE(expose(region(memory_, 2 * page)));
  const pid_t child = fork();
  if (child == 0) {
    const auto a = region(memory_, 2 * page);
    const bool shared = expose(a).has_value();
    memory_[0] = 99;
    regions_.withdraw(a);
    regions_.tidy();
    _exit(shared && is_private(0) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory_[0], 5);
  EXPECT_FALSE(is_private(0));
}

TEST_F(SharedRegionsTest, AProgramWithoutDescriptorsForks) {
  watch_forks();
  ASSERT_TRUE(expose(region(memory_, page)));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const pid_t child = fork();
  if (child == 0) {
    memory_[0] = 99;
    _exit(0);
  }
  setrlimit(RLIMIT_NOFILE, &before);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory_[0], 5) << "the child has its own pages, although it could not ask which";
}

// The parent waits for its child to copy, and not for one that is gone.
TEST_F(SharedRegionsTest, AParentDoesNotWaitForADeadChild) {
  ASSERT_TRUE(expose(region(memory_, page)));
  regions_.before_fork();
  const pid_t child = static_cast<pid_t>(syscall(SYS_fork));  // without handlers
  if (child == 0) {
    kill(getpid(), SIGKILL);
    _exit(1);
  }
  const auto began = std::chrono::steady_clock::now();
  regions_.after_fork_in_parent();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  waitpid(child, nullptr, 0);
}

// Registrations, deregistrations, forks and writers of several threads at once.
TEST_F(SharedRegionsTest, ThreadsMayDoAllOfThisAtOnce) {
  watch_forks();
  if (!WriterHold::create()) GTEST_SKIP() << "the system holds no thread back";
  std::atomic<bool> stops{false};
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> shared{0};
  for (std::size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      unsigned char* const own = memory_ + i * 5 * page;
      for (std::uint64_t round = 1; !stops; ++round) {
        const auto a = region(own, 3 * page);
        const auto b = region(own + page, 4 * page);
        std::memset(own, static_cast<int>(round % 251), 5 * page);
        shared += expose(a).has_value() ? 1 : 0;
        expose(b);
        regions_.withdraw(a);
        regions_.tidy();
        regions_.withdraw(b);
        for (std::size_t at = 0; at < 5 * page; at += 512) ASSERT_EQ(own[at], round % 251);
      }
    });
  }
  for (int round = 0; round < 100; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      std::memset(memory_, 252, pages * page);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  }
  stops = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(shared, 0u);
}

}  // namespace
}  // namespace tulle::live

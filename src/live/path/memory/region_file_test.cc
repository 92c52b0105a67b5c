#include "live/path/memory/region_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "live/path/memory/mappings.h"
#include "os/unique_fd.h"

namespace tulle::live {
namespace {

constexpr std::size_t page = region_page_bytes;

// Private memory, and what another process would see of its file.
class RegionFileTest : public testing::Test {
 protected:
  static constexpr std::size_t pages = 1'200;  // more than one step
  static constexpr std::size_t bytes = pages * page;
  RegionFileTest()
      : memory_(static_cast<unsigned char*>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    for (std::size_t at = 0; at < bytes; at += 64) memory_[at] = value_at(at);
    std::memset(memory_ + 7 * page, 0, 3 * page);  // three pages of zeros
  }
  ~RegionFileTest() override {
    if (view_ != nullptr) munmap(view_, bytes);
    munmap(memory_, bytes);
  }
  static unsigned char value_at(std::size_t at) { return static_cast<unsigned char>(at / 64 + 1); }
  PageRange range() const {
    const auto begin = reinterpret_cast<std::uint64_t>(memory_);
    return {begin, begin + bytes};
  }
  void move_pages(OtherThreads others = {}) {
    auto file = make_region_file(range());
    ASSERT_TRUE(file);
    ASSERT_TRUE(move_to_file(*file, others));
    ASSERT_EQ(file->pages.bytes(), bytes);
    file_ = std::move(*file);
  }
  void move() {
    move_pages();
    view_ = static_cast<unsigned char*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd.get(), 0));
    ASSERT_NE(view_, MAP_FAILED);
  }
  bool back(OtherThreads others = {}) const {
    const auto mappings = find_file_mappings();
    return mappings && move_back(file_, mappings->in_place(file_), others);
  }
  // Returns how many mappings have some of the memory.
  std::size_t mappings() const {
    std::size_t count = 0;
    for_each_mapping(Detail::maps, [&](const Mapping& mapping) {
      count += PageRange{mapping.begin, mapping.end}.overlaps(range()) ? 1 : 0;
      return true;
    });
    return count;
  }
  // Returns how many bytes of memory the file takes.
  std::size_t used() const {
    struct stat status {};
    fstat(file_.fd.get(), &status);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  }
  void expect_content() const {
    for (std::size_t at = 0; at < bytes; at += 64) {
      const bool is_zero = at >= 7 * page && at < 10 * page;
      ASSERT_EQ(memory_[at], is_zero ? 0 : value_at(at)) << at;
    }
  }

  unsigned char* memory_;
  unsigned char* view_ = nullptr;
  RegionFile file_;
};

TEST_F(RegionFileTest, PagesKeepTheirContentAndShareIt) {
  move();
  EXPECT_EQ(used(), bytes - 3 * page) << "pages of zeros take no memory";
  expect_content();
  memory_[5] = 55;
  EXPECT_EQ(view_[5], 55);
  view_[bytes - 1] = 66;
  EXPECT_EQ(memory_[bytes - 1], 66);
}

// Another process that keeps the file mapped sees nothing of the program any more, and the other
// way round, whatever it did to the file before.
TEST_F(RegionFileTest, PagesAreTheProgramsAloneAgain) {
  move();
  view_[5] = 55;
  ASSERT_EQ(madvise(view_ + 50 * page, 50 * page, MADV_REMOVE), 0);  // as a hostile peer may
  ASSERT_TRUE(back());
  EXPECT_EQ(memory_[5], 55);
  EXPECT_EQ(used(), 0u);
  std::memset(view_, 99, bytes);  // what a peer writes that does not know it yet
  memory_[5] = value_at(0);
  for (std::size_t at = 0; at < bytes; at += 64) {
    const bool is_zero = (at >= 7 * page && at < 10 * page) || (at >= 50 * page && at < 100 * page);
    ASSERT_EQ(memory_[at], is_zero ? 0 : value_at(at)) << at;
  }
  ASSERT_EQ(madvise(memory_, bytes, MADV_DONTNEED), 0);
  EXPECT_EQ(memory_[5], 0);
}

TEST_F(RegionFileTest, PagesAreOneOrdinaryMappingAgain) {
  const std::size_t before = mappings();
  move();
  ASSERT_TRUE(back());
  EXPECT_EQ(mappings(), before);
  EXPECT_EQ(madvise(memory_, bytes, MADV_FREE), 0) << "which only private memory allows";
}

// With threads that cannot be held back, each page that had something is the process's own.
TEST_F(RegionFileTest, PagesBecomeCopiesBesideOtherThreads) {
  move();
  ASSERT_TRUE(back({.exist = true, .hold = nullptr}));
  EXPECT_EQ(used(), 0u);
  std::memset(view_, 99, 7 * page);
  std::memset(view_ + 10 * page, 99, bytes - 10 * page);
  expect_content();
}

TEST_F(RegionFileTest, PagesMoveBackWhileThreadsAreHeld) {
  auto hold = WriterHold::create();
  if (!hold) GTEST_SKIP() << hold.error().message;
  move();
  ASSERT_TRUE(back({.exist = true, .hold = &*hold}));
  EXPECT_EQ(used(), 0u);
  std::memset(view_, 99, bytes);
  expect_content();
}

// A program may let its memory grow (mremap), in place or elsewhere, and finds zeros behind it.
TEST_F(RegionFileTest, MemoryMayGrow) {
  for (const int way : {0, 1, 2}) {
    auto* const memory = static_cast<unsigned char*>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memory[0] = memory[2 * page - 1] = 7;
    const auto begin = reinterpret_cast<std::uint64_t>(memory);
    auto file = make_region_file({begin, begin + 2 * page});
    ASSERT_TRUE(file);
    ASSERT_TRUE(move_to_file(*file, {}));
    const auto found = find_file_mappings();
    if (way > 0) {
      ASSERT_TRUE(move_back(*file, found->in_place(*file), {.exist = way == 2}));
    }
    auto* const grown =
        static_cast<unsigned char*>(mremap(memory, 2 * page, 400 * page, MREMAP_MAYMOVE));
    ASSERT_NE(grown, MAP_FAILED);
    EXPECT_EQ(grown[2 * page - 1], 7) << way;
    EXPECT_EQ(grown[2 * page], 0) << way;
    EXPECT_EQ(grown[399 * page], 0) << way;
    munmap(grown, 400 * page);
  }
}

// The program may have closed the descriptor, and may have a file of its own under its number.
TEST_F(RegionFileTest, PagesMoveBackWithoutTheDescriptor) {
  move();
  const UniqueFd other(memfd_create("of the program", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(other.get(), bytes), 0);
  ASSERT_EQ(pwrite(other.get(), "text", 4, 0), 4);
  ASSERT_EQ(dup2(other.get(), file_.fd.get()), file_.fd.get());
  const UniqueFd number(file_.fd.get());
  EXPECT_TRUE(back());
  expect_content();
  std::memset(view_, 99, bytes);
  expect_content();
  char text[4];
  EXPECT_EQ(pread(other.get(), text, 4, 0), 4);
  EXPECT_EQ(std::memcmp(text, "text", 4), 0);
}

TEST_F(RegionFileTest, UnmappedPagesTakeNoMemory) {
  move();
  munmap(memory_ + 400 * page, 200 * page);
  free_unmapped(file_, find_file_mappings()->of(file_));
  EXPECT_EQ(used(), bytes - 3 * page) << "this process has the file mapped elsewhere, too";
  munmap(view_, bytes);
  view_ = nullptr;
  free_unmapped(file_, find_file_mappings()->of(file_));
  EXPECT_EQ(used(), bytes - 203 * page);
  munmap(memory_, 300 * page);
  munmap(memory_ + 600 * page, 600 * page);
  free_unmapped(file_, find_file_mappings()->of(file_));
  EXPECT_EQ(used(), 100 * page);
}

// A direct read of another thread (O_DIRECT) would land in the pages from which these ones move.
TEST_F(RegionFileTest, PagesStayWhileAFileIsReadDirectly) {
  auto hold = WriterHold::create();
  if (!hold) GTEST_SKIP() << hold.error().message;
  const UniqueFd direct(open("/proc/self/exe", O_RDONLY | O_DIRECT | O_CLOEXEC));
  if (!direct) GTEST_SKIP() << "this file system reads nothing directly";
  auto file = make_region_file(range());
  ASSERT_TRUE(file);
  EXPECT_FALSE(move_to_file(*file, {.exist = true, .hold = &*hold}));
  expect_content();
  move();
  EXPECT_FALSE(back({.exist = true, .hold = &*hold}));
  EXPECT_TRUE(back()) << "the only thread cannot be reading";
  expect_content();
}

// A program may give up pages that were shared once.
TEST_F(RegionFileTest, PagesThatAreGivenUpAreZerosAgain) {
  move();
  ASSERT_TRUE(back());
  ASSERT_EQ(madvise(memory_, bytes, MADV_DONTNEED), 0);
  for (std::size_t at = 0; at < bytes; at += 64) ASSERT_EQ(memory_[at], 0);
}

TEST_F(RegionFileTest, PagesMoveAgain) {
  move();
  ASSERT_TRUE(back());
  munmap(view_, bytes);
  view_ = nullptr;
  move();
  expect_content();
}

// Mappings that are no longer the file's are left as they are, and rights are kept.
TEST_F(RegionFileTest, OnlyItsOwnMappingsMoveBack) {
  move();
  void* const other = mmap(memory_ + 100 * page, page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  ASSERT_EQ(other, memory_ + 100 * page);
  memory_[100 * page] = 77;
  ASSERT_EQ(mprotect(memory_ + 200 * page, page, PROT_READ), 0);
  ASSERT_EQ(mprotect(memory_ + 201 * page, page, PROT_NONE), 0);
  munmap(memory_ + 300 * page, page);
  EXPECT_FALSE(find_file_mappings()->has_in_place(file_));
  ASSERT_TRUE(back());
  EXPECT_EQ(memory_[100 * page], 77);
  EXPECT_EQ(memory_[50 * page], value_at(50 * page));
  EXPECT_EQ(mmap(memory_ + 300 * page, page, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
            memory_ + 300 * page)
      << "nothing was mapped there";
  std::memset(view_, 99, bytes);
  EXPECT_EQ(memory_[200 * page], value_at(200 * page));
  std::string rights;
  for_each_mapping(Detail::maps, [&](const Mapping& mapping) {
    const auto at = range().begin + 200 * page;
    if (mapping.begin == at || mapping.begin == at + page) rights += mapping.rights;
    return true;
  });
  EXPECT_EQ(rights, "r--p---p");
  mprotect(memory_ + 201 * page, page, PROT_READ);
  EXPECT_EQ(memory_[201 * page], value_at(201 * page));
}

TEST_F(RegionFileTest, AFileThatMayNotBeThatLongIsNotMade) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = bytes - 1;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_FALSE(make_region_file(range()));
  limit.rlim_cur = bytes;
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_TRUE(make_region_file(range()));
  setrlimit(RLIMIT_FSIZE, &before);
  expect_content();
}

// A want of descriptors passes.
TEST_F(RegionFileTest, PagesStaySharedWhileTheKernelCannotBeAsked) {
  move();
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_FALSE(back());
  setrlimit(RLIMIT_NOFILE, &before);
  expect_content();
  EXPECT_TRUE(back());
  expect_content();
}

// Threads that count in the pages all the time lose no step, whichever way the pages move.
TEST_F(RegionFileTest, NoWriteOfAnotherThreadIsLost) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the threads race for the pages on purpose; the kernel orders them";
#endif
  auto hold = WriterHold::create();
  if (!hold) GTEST_SKIP() << hold.error().message;
  std::atomic<bool> stops{false};
  std::vector<std::uint64_t> counts(4);
  std::vector<std::thread> threads;
  std::memset(memory_, 0, bytes);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    threads.emplace_back([&, i] {
      while (!stops) {
        for (std::size_t at = i * 8; at < bytes; at += 13 * page) {
          auto* const word = reinterpret_cast<volatile std::uint64_t*>(memory_ + at);
          *word = *word + 1;
          ++counts[i];
        }
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    move_pages({.exist = true, .hold = &*hold});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ASSERT_TRUE(back({.exist = true, .hold = round % 2 == 0 ? &*hold : nullptr}));
  }
  stops = true;
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::uint64_t sum = 0;
    for (std::size_t at = i * 8; at < bytes; at += 13 * page) {
      sum += *reinterpret_cast<std::uint64_t*>(memory_ + at);
    }
    EXPECT_EQ(sum, counts[i]) << i;
    EXPECT_GT(sum, 0u);
  }
}

// A call of another thread that writes to the pages waits like the thread itself.
TEST_F(RegionFileTest, WhatTheKernelWritesForAThreadIsNotLost) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the threads race for the pages on purpose; the kernel orders them";
#endif
  auto hold = WriterHold::create();
  if (!hold) GTEST_SKIP() << hold.error().message;
  std::atomic<bool> stops{false};
  std::atomic<bool> has_failed{false};
  std::thread reader([&] {
    const UniqueFd zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
    while (!stops) {
      if (read(zero.get(), memory_, bytes) != static_cast<ssize_t>(bytes)) has_failed = true;
    }
  });
  for (int round = 0; round < 20; ++round) {
    move_pages({.exist = true, .hold = &*hold});
    ASSERT_TRUE(back({.exist = true, .hold = round % 2 == 0 ? &*hold : nullptr}));
  }
  stops = true;
  reader.join();
  EXPECT_FALSE(has_failed);
  EXPECT_EQ(std::accumulate(memory_, memory_ + bytes, 0ull), 0u);
}

TEST_F(RegionFileTest, AChildHasCopies) {
  move();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    copy_for_child(file_, [] {});
    const char go = 'g';
    static_cast<void>(!write(ends[1], &go, 1));
    usleep(50'000);  // the parent writes meanwhile
    const bool is_own = memory_[0] == value_at(0) && memory_[600 * page] == value_at(600 * page);
    memory_[64] = 111;
    _exit(is_own && memory_[8 * page] == 0 ? 0 : 1);
  }
  char go;
  ASSERT_EQ(read(ends[0], &go, 1), 1);
  memory_[0] = memory_[600 * page] = memory_[8 * page] = 222;
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory_[64], value_at(64));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace tulle::live

#include "live/path/memory/mappings.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "os/unique_fd.h"

namespace tulle::live {
namespace {

constexpr std::size_t page = 4'096;

// Some pages of private memory.
class Pages {
 public:
  explicit Pages(std::size_t count, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1)
      : bytes_(count * page), memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, fd, 0)) {
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~Pages() { munmap(memory_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  char* at(std::size_t number) const { return static_cast<char*>(memory_) + number * page; }
  std::uint64_t address(std::size_t number = 0) const {
    return reinterpret_cast<std::uint64_t>(at(number));
  }
  Obstacle obstacle() const { return obstacle_to_moving(address(), address() + bytes_); }

 private:
  std::size_t bytes_;
  void* memory_;
};

TEST(Mappings, LinesAreParsed) {
  const auto mapping =
      parse_mapping("7f10c0000000-7f10c0021000 rw-s 00001000 00:01 2063   /memfd:a b (deleted)\n");
  ASSERT_TRUE(mapping);
  EXPECT_EQ(mapping->begin, 0x7f10'c000'0000u);
  EXPECT_EQ(mapping->end, 0x7f10'c002'1000u);
  EXPECT_EQ(mapping->rights, "rw-s");
  EXPECT_EQ(mapping->file_at, 0x1000u);
  EXPECT_EQ(mapping->inode, 2063u);
  EXPECT_EQ(mapping->name, "/memfd:a b (deleted)");
  const auto nameless = parse_mapping("1000-2000 rw-p 00000000 00:00 0 ");
  ASSERT_TRUE(nameless);
  EXPECT_EQ(nameless->name, "");
}

TEST(Mappings, OtherLinesAreNone) {
  for (const char* line :
       {"", "\n", "Rss:   4 kB\n", "VmFlags: rd wr\n", "1000 rw-p 0 00:00 0",
        "2000-1000 rw-p 0 0 0", "1000-2000 rw 0 00:00 0", "1000-2000 rw-p x 00:00 0",
        "1000-2000 rw-p 0 00:00 y", "1000-2000", "-", "1000-20000000000000000 rw-p 0 00:00 0"}) {
    EXPECT_FALSE(parse_mapping(line)) << line;
  }
}

TEST(Mappings, AreThoseOfThisProcess) {
  const Pages pages(3);
  for (const Detail detail : {Detail::maps, Detail::smaps}) {
    bool found = false;
    EXPECT_TRUE(for_each_mapping(detail, [&](const Mapping& mapping) {
      const bool has = mapping.begin <= pages.address() && pages.address() < mapping.end;
      if (has) {
        EXPECT_EQ(mapping.flags.empty(), detail == Detail::maps);
      }
      found = found || has;
      return !found;
    }));
    EXPECT_TRUE(found);
  }
}

TEST(Mappings, OrdinaryPrivateMemoryMayMove) {
  EXPECT_EQ(Pages(4).obstacle(), Obstacle::none);
  const std::string heap(20 * page, 'x');
  const auto begin = (reinterpret_cast<std::uint64_t>(heap.data()) + page) / page * page;
  EXPECT_EQ(obstacle_to_moving(begin, begin + 18 * page), Obstacle::none);
}

TEST(Mappings, MemoryOfAFileOrWithoutRightsMayNot) {
  EXPECT_EQ(Pages(2, MAP_SHARED | MAP_ANONYMOUS).obstacle(), Obstacle::not_private);
  const UniqueFd file(memfd_create("mappings_test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 2 * page), 0);
  EXPECT_EQ(Pages(2, MAP_PRIVATE, file.get()).obstacle(), Obstacle::not_private);
  const Pages pages(3);
  mprotect(pages.at(1), page, PROT_READ);
  EXPECT_EQ(pages.obstacle(), Obstacle::not_private);
}

TEST(Mappings, ARangeWithAHoleMayNot) {
  const Pages pages(3);
  munmap(pages.at(1), page);
  EXPECT_EQ(pages.obstacle(), Obstacle::not_private);
  EXPECT_EQ(obstacle_to_moving(pages.address(2), pages.address(2) + page), Obstacle::none);
}

TEST(Mappings, SpecialMemoryMayNot) {
  for (const int advice : {MADV_DONTFORK, MADV_WIPEONFORK}) {
    const Pages pages(2);
    ASSERT_EQ(madvise(pages.at(1), page, advice), 0);
    EXPECT_EQ(pages.obstacle(), Obstacle::special) << advice;
  }
  const Pages locked(2);
  // Sanitizers replace the C library's function.
  if (syscall(SYS_mlock, locked.at(0), page) == 0) {
    EXPECT_EQ(locked.obstacle(), Obstacle::special);
  }
  const Pages growing(2, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN);
  EXPECT_EQ(growing.obstacle(), Obstacle::special);
}

// A thread that moves pages needs its stack meanwhile.
TEST(Mappings, TheCallersStackMayNot) {
  bool is_tried = false;
  std::thread([&] {
    const auto here = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0)) / page * page;
    EXPECT_EQ(obstacle_to_moving(here - page, here), Obstacle::special);
    is_tried = true;
  }).join();
  EXPECT_TRUE(is_tried);
}

TEST(Mappings, DevicesAreKnownByTheKernelsNames) {
  const auto holds = [](std::string_view name) {
    Mapping mapping;
    mapping.name = name;
    return may_hold_pages(mapping);
  };
  for (const auto* const name :
       {"anon_inode:[io_uring]", "anon_inode:kvm-vcpu:0", "/[aio] (deleted)", "socket:[123]",
        "/dev/nvidia0", "/dev/infiniband/uverbs0"}) {
    EXPECT_TRUE(holds(name)) << name;
  }
  // Any process may hand over a memory file with such a name.
  for (const auto* const name : {"/memfd:[io_uring] (deleted)", "/memfd:anon_inode: (deleted)", "",
                                 "/dev/shm/a", "/dev/zero (deleted)", "[heap]", "/usr/lib/a.so"}) {
    EXPECT_FALSE(holds(name)) << name;
  }
}

TEST(Mappings, DescriptorsForDirectReadsMatterBesideOtherThreads) {
  ASSERT_FALSE(descriptors_hold_pages(true));
  const UniqueFd direct(open("/proc/self/exe", O_RDONLY | O_DIRECT | O_CLOEXEC));
  if (!direct) GTEST_SKIP() << "this file system reads nothing directly";
  EXPECT_TRUE(descriptors_hold_pages(true));
  EXPECT_FALSE(descriptors_hold_pages(false));
}

TEST(Mappings, ARingOfRequestsMattersWithoutAMapping) {
  ASSERT_FALSE(descriptors_hold_pages(false));
  std::array<std::byte, 256> parameters{};
  const UniqueFd ring(static_cast<int>(syscall(SYS_io_uring_setup, 4, parameters.data())));
  if (!ring) GTEST_SKIP() << "no io_uring: " << std::strerror(errno);
  EXPECT_TRUE(descriptors_hold_pages(false));
}

}  // namespace
}  // namespace tulle::live

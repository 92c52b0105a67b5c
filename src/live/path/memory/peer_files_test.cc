#include "live/path/memory/peer_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>

#include "os/shared_memory.h"
#include "os/unique_fd.h"

namespace tulle::live {
namespace {

constexpr std::uint64_t base = 0x7000'0000'0000;
constexpr std::size_t bytes = 16'384;

// The table of a peer, which is this process itself.
class PeerFilesTest : public testing::Test {
 protected:
  static UniqueFd make_file() {
    auto file = make_shared_memory("peer_files_test", bytes);
    EXPECT_TRUE(file);
    EXPECT_EQ(pwrite(file->get(), "0123456789", 10, 4'096), 10);
    return std::move(*file);
  }
  PeerTable::FileEntry& show(int fd, std::size_t place = 0, std::uint64_t number = 1) {
    struct stat status {};
    fstat(fd, &status);
    PeerTable::FileEntry& entry = table_->files[place];
    entry.address = base + place * bytes;
    entry.bytes = bytes;
    entry.inode = status.st_ino;
    entry.fd = fd;
    entry.number.store(number);
    table_->file_places.store(static_cast<std::uint32_t>(place + 1));
    return entry;
  }
  std::byte* find(std::uint64_t address, std::uint64_t length) {
    return files_.find_now(*table_, getpid(), address, length);
  }
  std::unique_ptr<PeerTable> table_ = std::make_unique<PeerTable>();
  PeerFiles files_;
};

TEST_F(PeerFilesTest, FindsThePeersBytes) {
  const UniqueFd file = make_file();
  show(file.get());
  std::byte* const found = find(base + 4'099, 4);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(std::memcmp(found, "3456", 4), 0);
  found[0] = std::byte{'x'};
  char text[1];
  EXPECT_EQ(pread(file.get(), text, 1, 4'099), 1);
  EXPECT_EQ(text[0], 'x');
  EXPECT_EQ(find(base + 4'099, 4), found);
  EXPECT_EQ(files_.size(), 1u);
}

TEST_F(PeerFilesTest, ReachesNoFurtherThanTheFile) {
  const UniqueFd file = make_file();
  PeerTable::FileEntry& entry = show(file.get());
  EXPECT_EQ(find(base - 1, 2), nullptr);
  EXPECT_EQ(find(base + bytes - 1, 2), nullptr);
  EXPECT_EQ(find(base + 5, ~std::uint64_t{0}), nullptr);
  EXPECT_EQ(files_.size(), 0u) << "nothing was mapped for that";
  EXPECT_NE(find(base + bytes - 1, 1), nullptr);
  entry.number = 2;  // a file that is longer, as the peer says
  entry.bytes = bytes + 1;
  EXPECT_EQ(find(base, 1), nullptr);
  entry.number = 3;
  entry.bytes = ~std::uint64_t{0};
  EXPECT_EQ(find(base, 1), nullptr);
}

TEST_F(PeerFilesTest, MapsNoFileThatMayShrink) {
  const UniqueFd file(memfd_create("peer_files_test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(file.get(), bytes), 0);
  show(file.get());
  EXPECT_EQ(find(base, 1), nullptr);
}

// Opening these for writing would wait, or do something.
TEST_F(PeerFilesTest, OpensNothingButMemoryFiles) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd in(ends[0]), out(ends[1]), null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd folder(open("/", O_RDONLY | O_CLOEXEC));
  std::uint64_t number = 0;
  const auto began = std::chrono::steady_clock::now();
  for (const int fd : {in.get(), out.get(), null.get(), folder.get(), -1, 9'999}) {
    show(fd, 0, ++number);
    EXPECT_EQ(find(base, 1), nullptr) << fd;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST_F(PeerFilesTest, MapsOnlyTheFileThatIsNamed) {
  const UniqueFd file = make_file();
  show(file.get()).inode += 1;
  EXPECT_EQ(find(base, 1), nullptr);
}

TEST_F(PeerFilesTest, AFileThatIsNoLongerListedIsNotUsed) {
  const UniqueFd file = make_file();
  PeerTable::FileEntry& entry = show(file.get());
  ASSERT_NE(find(base, 1), nullptr);
  entry.number = 0;
  EXPECT_EQ(find(base, 1), nullptr);
  files_.sweep(*table_);
  EXPECT_EQ(files_.size(), 0u);
}

TEST_F(PeerFilesTest, ANewFileAtTheSameAddressReplacesTheOldOne) {
  const UniqueFd first = make_file(), second = make_file();
  show(first.get());
  ASSERT_NE(find(base + 4'096, 1), nullptr);
  ASSERT_EQ(pwrite(second.get(), "n", 1, 4'096), 1);
  show(second.get(), 0, 2);
  std::byte* const found = find(base + 4'096, 1);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, std::byte{'n'});
  EXPECT_EQ(files_.size(), 1u) << "the old one was unmapped";
}

// A key leads to its own file, also where the peer has other memory now.
TEST_F(PeerFilesTest, AKeyLeadsToItsOwnFile) {
  const UniqueFd first = make_file(), second = make_file();
  ASSERT_EQ(pwrite(second.get(), "n", 1, 4'096), 1);
  show(first.get(), 0, 1);
  show(second.get(), 1, 2).address = base;
  const auto find_in = [&](std::uint64_t number) {
    return files_.find(*table_, getpid(), number, base + 4'096, 1);
  };
  ASSERT_NE(find_in(1), nullptr);
  ASSERT_NE(find_in(2), nullptr);
  EXPECT_EQ(*find_in(1), std::byte{'0'});
  EXPECT_EQ(*find_in(2), std::byte{'n'});
  EXPECT_EQ(find_in(0), nullptr) << "a key without a file";
  EXPECT_EQ(find_in(3), nullptr);
  table_->files[0].is_displaced = 1;
  EXPECT_EQ(find(base + 4'096, 1), find_in(2));
  EXPECT_EQ(*find_in(1), std::byte{'0'}) << "the old key goes on";
  table_->files[1].is_displaced = 1;
  EXPECT_EQ(find(base + 4'096, 1), nullptr);
}

TEST_F(PeerFilesTest, WhatOnePeerTakesIsLimited) {
  const UniqueFd file = make_file();
  std::size_t found = 0;
  for (std::size_t place = 0; place < 2 * PeerFiles::files_max; ++place) {
    show(file.get(), place, place + 1);
    found += find(base + place * bytes + 4'096, 1) != nullptr ? 1 : 0;
  }
  EXPECT_EQ(found, PeerFiles::files_max);
  EXPECT_EQ(files_.size(), PeerFiles::files_max);
  for (auto& entry : table_->files) entry.number = 0;
  files_.sweep(*table_);
  auto large = make_shared_memory("peer_files_test", std::size_t{1} << 40);
  ASSERT_TRUE(large);
  PeerTable::FileEntry& entry = show(large->get(), 0, 1'000);
  entry.bytes = PeerFiles::bytes_max + 1;
  EXPECT_EQ(find(base, 1), nullptr);
  entry.bytes = 3 * bytes;
  EXPECT_NE(find(base, 1), nullptr) << "only what the peer shows is mapped";
}

// The file of a user-space file system, and one with a lease, would make the caller wait.
TEST_F(PeerFilesTest, ALeaseDelaysNobody) {
  const UniqueFd file = make_file();
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  const UniqueFd reader(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  signal(SIGIO, SIG_IGN);
  if (fcntl(reader.get(), F_SETLEASE, F_RDLCK) != 0) {
    GTEST_SKIP() << "no lease: " << std::strerror(errno);
  }
  show(file.get());
  const auto began = std::chrono::steady_clock::now();
  find(base, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST_F(PeerFilesTest, AProcessWithLittleAddressSpaceMapsNothing) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs more address space than that";
#endif
  const UniqueFd file = make_file();
  show(file.get());
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{rlim_t{1} << 40, rlim_t{1} << 40};
    _exit(setrlimit(RLIMIT_AS, &limit) == 0 && find(base, 1) == nullptr ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(PeerFilesTest, AProcessThatLocksItsMemoryMapsNothing) {
  const UniqueFd file = make_file();
  show(file.get());
  const pid_t child = fork();
  if (child == 0) {
    // Sanitizers replace the C library's function.
    if (syscall(SYS_mlockall, MCL_FUTURE) != 0) _exit(2);
    _exit(find(base, 1) == nullptr ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "memory may not be locked";
  EXPECT_EQ(status, 0);
}

TEST_F(PeerFilesTest, AForkedChildHasNoMemoryOfPeers) {
  const UniqueFd file = make_file();
  show(file.get());
  const std::byte* const found = find(base, 1);
  ASSERT_NE(found, nullptr);
  const pid_t child = fork();
  if (child == 0) {
    unsigned char present = 0;
    const auto begin = reinterpret_cast<std::uintptr_t>(found) & ~std::uintptr_t{4'095};
    _exit(mincore(reinterpret_cast<void*>(begin), 4'096, &present) != 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tulle::live

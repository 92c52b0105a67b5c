#include "live/path/memory/writer_hold.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <thread>

namespace tulle::live {
namespace {

constexpr std::size_t bytes = 16'384;

class WriterHoldTest : public testing::Test {
 protected:
  void SetUp() override {
    auto hold = WriterHold::create();
    if (!hold) GTEST_SKIP() << hold.error().message;
    hold_.emplace(std::move(*hold));
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  void TearDown() override {
    if (memory_ != nullptr) munmap(memory_, bytes);
  }
  // Starts a thread that writes once, and waits a while for that. Returns whether it has written.
  bool writes_soon() {
    writer_ = std::thread([this] {
      *static_cast<volatile std::byte*>(memory_ + 5'000) = std::byte{9};
      has_written_ = true;
    });
    for (int i = 0; i < 20 && !has_written_; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return has_written_;
  }
  std::optional<WriterHold> hold_;
  std::byte* memory_ = nullptr;
  std::thread writer_;
  std::atomic<bool> has_written_{false};
};

TEST_F(WriterHoldTest, AWriterWaitsAndThenWritesToWhatIsMapped) {
  ASSERT_TRUE(hold_->begin(memory_, bytes, WriterHold::Pages::of_no_file));
  EXPECT_FALSE(writes_soon());
  ASSERT_EQ(
      mmap(memory_, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      memory_);
  hold_->end();
  writer_.join();
  EXPECT_EQ(memory_[5'000], std::byte{9});
}

TEST_F(WriterHoldTest, AWriterGoesOnIfNothingHasMoved) {
  ASSERT_TRUE(hold_->begin(memory_, bytes, WriterHold::Pages::of_no_file));
  EXPECT_FALSE(writes_soon());
  hold_->end();
  writer_.join();
  EXPECT_EQ(memory_[5'000], std::byte{9});
  ASSERT_TRUE(hold_->begin(memory_, bytes, WriterHold::Pages::of_no_file))
      << "it can be used again";
  hold_->end();
  memory_[0] = std::byte{1};
}

TEST_F(WriterHoldTest, MemoryThatIsNotThereIsRefused) {
  EXPECT_FALSE(hold_->begin(nullptr, bytes, WriterHold::Pages::of_no_file));
}

// Also pages that nobody has touched yet.
TEST_F(WriterHoldTest, AThreadWaitsBeforePagesOfAFile) {
  munmap(memory_, bytes);
  memory_ = static_cast<std::byte*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_TRUE(hold_->begin(memory_, bytes, WriterHold::Pages::of_a_file));
  EXPECT_FALSE(writes_soon());
  hold_->end();
  writer_.join();
  EXPECT_TRUE(has_written_);
}

// A process without rights could not hold back what the kernel writes for other threads.
TEST(WriterHold, IsRefusedToAnOrdinaryUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become an ordinary user";
  std::ifstream setting("/proc/sys/vm/unprivileged_userfaultfd");
  if (int allows = 0; setting >> allows && allows != 0) GTEST_SKIP() << "here every user may";
  const pid_t child = fork();
  if (child == 0) {
    const bool changed = setgid(65'534) == 0 && setuid(65'534) == 0;
    _exit(changed && !WriterHold::create() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tulle::live

#include "live/path/memory/restartable_call.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <vector>

namespace tulle::live {
namespace {

class RestartableCall : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_make_restartable_calls()) GTEST_SKIP() << "this machine has none";
  }
  std::atomic<std::uint32_t> first_{1};
  std::atomic<std::uint32_t> second_{2};
  std::optional<long> call(std::uint32_t first, std::uint32_t second, long number,
                           const long (&arguments)[6]) {
    return call_if_unchanged({&first_, first}, {&second_, second}, number, arguments);
  }
};

TEST_F(RestartableCall, IsMadeWithItsArguments) {
  EXPECT_EQ(call(1, 2, SYS_getpid, {}), getpid());
  EXPECT_EQ(call(1, 2, SYS_close, {-1}), -EBADF);
  // All six arguments, none of which is valid.
  int fd[2];
  ASSERT_EQ(pipe(fd), 0);
  std::int64_t offset = 0;
  const auto at = reinterpret_cast<long>(&offset);
  EXPECT_EQ(call(1, 2, SYS_copy_file_range, {fd[0], at, fd[1], at, 8, 1}), -EINVAL);
  close(fd[0]);
  close(fd[1]);
}

TEST_F(RestartableCall, IsNotMadeIfAWordDiffers) {
  EXPECT_EQ(call(3, 2, SYS_getpid, {}), std::nullopt);
  EXPECT_EQ(call(1, 3, SYS_getpid, {}), std::nullopt);
}

TEST_F(RestartableCall, SurvivesSignalsAtAnyTime) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer delays signals until the program calls the C library";
#endif
  static volatile sig_atomic_t signals = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { signals = signals + 1; };
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  const itimerval often = {{0, 50}, {0, 50}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  long made = 0;
  while (signals < 2'000) {
    const auto pid = call(1, 2, SYS_getpid, {});
    if (pid) {
      ASSERT_EQ(*pid, getpid());
      ++made;
    }
    ASSERT_EQ(call(1, 3, SYS_getpid, {}), std::nullopt);
  }
  const itimerval never = {};
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(made, 0);
}

TEST_F(RestartableCall, CopiesEveryLengthAndNothingElse) {
  std::vector<std::uint8_t> from(1'200);
  std::iota(from.begin(), from.end(), std::uint8_t{1});
  for (std::size_t bytes = 0; bytes <= 1'100; ++bytes) {
    for (const std::size_t shift : {0u, 3u}) {
      std::vector<std::uint8_t> to(1'200, 0xEE);
      // A copy in which the thread was interrupted is made once more.
      constexpr int tries_max = 1'000;
      int tries = 1;
      while (tries < tries_max &&
             !copy_if_unchanged({&first_, 1}, {&second_, 2}, &to[shift], from.data(), bytes)) {
        ++tries;
      }
      ASSERT_LT(tries, tries_max) << bytes;
      ASSERT_TRUE(std::equal(&from[0], &from[bytes], &to[shift])) << bytes;
      ASSERT_EQ(to[shift + bytes], 0xEE) << bytes;
      ASSERT_EQ(std::count(to.begin(), to.begin() + static_cast<long>(shift), 0xEE), shift);
    }
  }
}

TEST_F(RestartableCall, CopiesNothingIfAWordDiffers) {
  const std::vector<std::uint8_t> from(600, 1);
  std::vector<std::uint8_t> to(600, 0xEE);
  EXPECT_FALSE(copy_if_unchanged({&first_, 3}, {&second_, 2}, to.data(), from.data(), 600));
  EXPECT_FALSE(copy_if_unchanged({&first_, 1}, {&second_, 3}, to.data(), from.data(), 8));
  EXPECT_EQ(std::count(to.begin(), to.end(), 0xEE), 600);
}

// The signal's handler changes a word while a copy is under way. The copy must not go on after it.
TEST_F(RestartableCall, ACopyEndsWhereItIsInterrupted) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer delays signals until the program calls the C library";
#endif
  static std::atomic<std::uint32_t>* word = nullptr;
  static std::uint8_t* copied = nullptr;
  static std::size_t at_signal = 0;
  static volatile sig_atomic_t signals = 0;
  constexpr std::size_t bytes = std::size_t{8} << 20;
  const std::vector<std::uint8_t> from(bytes, 7);
  std::vector<std::uint8_t> to(bytes);
  word = &first_;
  copied = to.data();
  struct sigaction action {};
  action.sa_handler = [](int) {
    // The copy goes upwards, so that a search by halves finds its end.
    at_signal = static_cast<std::size_t>(
        std::lower_bound(copied, copied + bytes, 7, [](int a, int) { return a == 7; }) - copied);
    word->store(99);
    signals = signals + 1;
  };
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  int interrupted = 0;
  for (int round = 0; round < 2'000 && interrupted < 20; ++round) {
    std::fill(to.begin(), to.end(), std::uint8_t{0});
    first_.store(1);
    signals = 0;
    const itimerval soon = {{0, 0}, {0, 30 + round % 300}};
    ASSERT_EQ(setitimer(ITIMER_REAL, &soon, nullptr), 0);
    const bool made = copy_if_unchanged({&first_, 1}, {&second_, 2}, to.data(), from.data(), bytes);
    while (signals == 0) continue;
    if (made || at_signal == 0) continue;
    ++interrupted;
    // One instruction may move more bytes than the handler saw, but none after it.
    ASSERT_LT(at_signal, bytes);
    ASSERT_EQ(std::count(to.begin() + static_cast<long>(at_signal), to.end(), 7), 0);
  }
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(interrupted, 0);
}

}  // namespace
}  // namespace tulle::live

#include "live/path/memory/restartable_call.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>

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

}  // namespace
}  // namespace tulle::live

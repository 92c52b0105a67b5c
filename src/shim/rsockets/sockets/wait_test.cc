#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>

#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {
namespace {

using namespace std::chrono_literals;

std::atomic<int> taken = 0;

void take(int) { ++taken; }

class WaitTest : public testing::Test {
 protected:
  void SetUp() override { std::this_thread::sleep_for(150ms); }  // handlers are looked up again
  ~WaitTest() override {
    for (const int each : {SIGUSR1, SIGUSR2}) signal(each, SIG_DFL);
    ::close(fd_);
  }

  static void handle(int signal, int flags) {
    struct sigaction action = {};
    action.sa_handler = take;
    action.sa_flags = flags;
    ASSERT_EQ(sigaction(signal, &action, nullptr), 0);
  }
  // Waits while another thread sends the signals, and makes the descriptor readable after them.
  int wait_through(std::initializer_list<int> signals) {
    taken = 0;
    const pthread_t self = pthread_self();
    std::thread other([&, self] {
      for (const int each : signals) {
        std::this_thread::sleep_for(50ms);
        pthread_kill(self, each);
      }
      std::this_thread::sleep_for(50ms);
      const std::uint64_t one = 1;
      EXPECT_EQ(write(fd_, &one, sizeof one), ssize_t{sizeof one});
    });
    const int error = wait_readable(fd_);
    other.join();
    std::uint64_t ignored = 0;
    EXPECT_EQ(read(fd_, &ignored, sizeof ignored), ssize_t{sizeof ignored});
    EXPECT_EQ(taken, static_cast<int>(signals.size()));
    return error;
  }

  int fd_ = eventfd(0, EFD_CLOEXEC);
};

TEST_F(WaitTest, AHandlerThatRestarts) {
  handle(SIGUSR1, SA_RESTART);
  EXPECT_EQ(wait_through({SIGUSR1, SIGUSR1}), 0);
}

TEST_F(WaitTest, AHandlerThatDoesNot) {
  handle(SIGUSR1, 0);
  EXPECT_EQ(wait_through({SIGUSR1}), EINTR);
}

TEST_F(WaitTest, AHandlerThatIsSetForOneSignal) {
  handle(SIGUSR1, static_cast<int>(SA_RESETHAND));
  EXPECT_EQ(wait_through({SIGUSR1}), EINTR);
  handle(SIGUSR1, static_cast<int>(SA_RESETHAND | SA_RESTART));
  std::this_thread::sleep_for(150ms);
  EXPECT_EQ(wait_through({SIGUSR1}), 0);
}

// The alarm of a program that uses others, too, is set shortly before it waits.
TEST_F(WaitTest, AHandlerThatIsSetLate) {
  handle(SIGUSR2, SA_RESTART);
  EXPECT_EQ(wait_through({SIGUSR2}), 0);
  for (const int flags : {0, static_cast<int>(SA_RESETHAND)}) {
    handle(SIGUSR1, flags);
    EXPECT_EQ(wait_through({SIGUSR1}), EINTR) << flags;
  }
}

// Which of them ran cannot be told: the one that asks for no restart must not be missed.
TEST_F(WaitTest, HandlersOfBothKinds) {
  handle(SIGUSR1, SA_RESTART);
  handle(SIGUSR2, 0);
  EXPECT_EQ(wait_through({SIGUSR2}), EINTR);
  EXPECT_EQ(wait_through({SIGUSR1}), EINTR);
  EXPECT_EQ(wait_through({}), 0);
}

// The thread's signals are as they were while a handler runs, which may jump or start a program.
TEST_F(WaitTest, AHandlerSeesTheProgramsMask) {
  static sigset_t seen;
  struct sigaction action = {};
  action.sa_handler = [](int) {
    pthread_sigmask(SIG_BLOCK, nullptr, &seen);
    ++taken;
  };
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  handle(SIGUSR2, SA_RESTART);
  EXPECT_EQ(wait_through({SIGUSR1}), EINTR);
  EXPECT_EQ(sigismember(&seen, SIGUSR2), 0);
}

// A signal that the program blocks stays blocked, and does not end the wait.
TEST_F(WaitTest, AHandlerOfABlockedSignalDoesNotCount) {
  handle(SIGUSR1, SA_RESTART);
  handle(SIGUSR2, 0);
  sigset_t one, before;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &one, &before);
  taken = 0;
  pthread_kill(pthread_self(), SIGUSR2);
  EXPECT_EQ(wait_through({SIGUSR1}), 0);
  EXPECT_EQ(taken, 1);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(taken, 2);
}

}  // namespace
}  // namespace tulle::rsockets

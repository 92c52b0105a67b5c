#include "live/agent/privileges.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <thread>

namespace tulle::live {
namespace {

// Runs the check in a process that has given up its privileges. Returns true if it holds there.
bool holds_without_privileges(const std::function<bool()>& check) {
  const pid_t child = fork();
  if (child == 0) {
    give_up_privileges("/tmp/agent");
    _exit(check() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class Confined : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the address sanitizer looks for leaks by a process that traces this one";
#endif
  }
};

TEST_F(Confined, NoProgramIsStarted) {
  EXPECT_TRUE(holds_without_privileges([] {
    char name[] = "/bin/true";
    char* const arguments[] = {name, nullptr};
    return execv(name, arguments) == -1 && errno == EPERM;
  }));
}

TEST_F(Confined, NoProcessIsStarted) {
  EXPECT_TRUE(holds_without_privileges([] {
    const pid_t made = fork();
    if (made == 0) _exit(0);
    return made == -1 && errno == EPERM;
  }));
}

TEST_F(Confined, NoFileIsMadeAndNoProcessSignalled) {
  if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1) {
    GTEST_SKIP() << "this kernel has no Landlock";
  }
  EXPECT_TRUE(holds_without_privileges([] {
    const bool makes = open("/tmp/tulle-privileges", O_CREAT | O_WRONLY | O_CLOEXEC, 0600) >= 0;
    const bool is_refused = errno == EACCES || errno == EROFS;
    return !makes && is_refused && kill(getppid(), 0) == -1 && errno == EPERM;
  }));
}

TEST_F(Confined, TheProcessEndsItselfAndWritesToTheNullDevice) {
  EXPECT_TRUE(holds_without_privileges([] {
    signal(SIGUSR1, SIG_IGN);
    return raise(SIGUSR1) == 0 && open("/dev/null", O_WRONLY | O_CLOEXEC) >= 0;
  }));
}

TEST_F(Confined, OtherProcessesAndNamespacesAreOutOfReach) {
  EXPECT_TRUE(holds_without_privileges([] {
    const bool traces = ptrace(PTRACE_SEIZE, getppid(), nullptr, nullptr) == 0;
    const bool is_refused = errno == EPERM;
    return !traces && is_refused && unshare(CLONE_NEWUSER) == -1 && errno == EPERM;
  }));
}

TEST(Privileges, ThreadsAndSocketsAreAsBefore) {
  EXPECT_TRUE(holds_without_privileges([] {
    int ends[2] = {-1, -1};
    bool has_sent = false;
    std::thread([&] {
      has_sent = socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0 && send(ends[0], "x", 1, 0) == 1;
    }).join();
    char got = 0;
    return has_sent && recv(ends[1], &got, 1, 0) == 1 && got == 'x';
  }));
}

}  // namespace
}  // namespace tulle::live

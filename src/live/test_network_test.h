#pragma once

// Gives tests a private network namespace with its loopback up, and a host agent in a child
// process.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "live/agent/agent.h"
#include "live/private_network_test.h"
#include "os/unique_fd.h"

namespace tulle::live {

// Takes effect once in each process, and must be called before the process has threads. If
// namespaces are forbidden, the test uses a name and a port of its own instead.
inline void enter_test_network() {
  static const bool entered = [] {
    const std::string self = std::to_string(getpid());
    setenv("TULLE_AGENT", ("@tulle-test-" + self).c_str(), 1);
    unsetenv("TULLE_INTERFACE");
    unsetenv("TULLE_FAULTS");
    if (!enter_private_network()) {
      setenv("TULLE_INTERFACE", "lo", 1);
      setenv("TULLE_PORT", std::to_string(20'000 + getpid() % 10'000).c_str(), 1);
    }
    return true;
  }();
  static_cast<void>(entered);
}

// A host agent in a child process, which ends with the test.
class TestAgent {
 public:
  TestAgent() { start(); }
  ~TestAgent() { stop(SIGTERM); }

  pid_t pid() const { return pid_; }
  void start() {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    pid_ = fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(ends[1], STDOUT_FILENO);
      AgentOptions options;
      options.settings = read_settings();
      options.idle_exit = false;
      _exit(run_agent(options));
    }
    close(ends[1]);
    const UniqueFd in(ends[0]);
    std::string said;
    char c;
    while (said.find("ready\n") == std::string::npos && read(in.get(), &c, 1) == 1) said += c;
    ASSERT_NE(said.find("ready\n"), std::string::npos) << said;
  }
  void stop(int signal_number) {
    if (pid_ <= 0) return;
    kill(pid_, signal_number);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace tulle::live

#pragma once

// For tests: runs the `tulle` program as a user does.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

#include "base/folder_test.h"

namespace tulle::cli {

struct ProgramOutcome {
  int status = -1;
  std::string out;
  std::string error;
};

class ProgramTest : public testing::Test {
 protected:
  // `command` is one of tulle's commands, such as "sim".
  explicit ProgramTest(std::string command) : command_(std::move(command)) {}

  std::string program() const { return "'" TULLE_PROGRAM "' " + command_ + " "; }
  ProgramOutcome run(const std::string& arguments) const {
    return shell("exec " + program() + arguments);
  }
  ProgramOutcome shell(const std::string& command) const {
    const std::string error = folder.path("stderr");
    FILE* pipe = popen(("( " + command + " ) 2>'" + error + "'").c_str(), "r");
    ProgramOutcome outcome;
    std::array<char, 4096> buffer;
    for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
      outcome.out.append(buffer.data(), n);
    }
    const int status = pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.error = folder.read("stderr");
    return outcome;
  }
  // Expects an exit status, by default that of a wrong command, and one line of error that contains
  // `part`.
  void expect_refused(const std::string& arguments, const std::string& part, int status = 2) const {
    const ProgramOutcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, status) << arguments;
    EXPECT_EQ(outcome.error.rfind("tulle: ", 0), 0u) << outcome.error;
    EXPECT_EQ(outcome.error.find('\n'), outcome.error.size() - 1) << outcome.error;
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  }
  // Starts the command and kills it after a while.
  void begin_and_kill(const std::string& arguments, std::chrono::milliseconds after) const {
    const auto end = std::chrono::steady_clock::now() + after;
    begin_and_kill(arguments, [end] { return std::chrono::steady_clock::now() >= end; });
  }
  // Starts the command and kills it when `is_time` returns true, unless it has ended by itself.
  void begin_and_kill(const std::string& arguments, const std::function<bool()>& is_time) const {
    const std::string whole = "exec " + program() + arguments + " >/dev/null 2>&1";
    const pid_t process = fork();
    if (process == 0) {
      execl("/bin/sh", "sh", "-c", whole.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    while (!is_time()) {
      if (waitpid(process, nullptr, WNOHANG) != 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  Folder folder;

 private:
  std::string command_;
};

}  // namespace tulle::cli

#pragma once

// Fabrics in processes of their own, for tests.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string>

#include "base/write_best_effort.h"
#include "live/fabric/server.h"
#include "live/message/socket.h"
#include "os/unique_fd.h"

namespace tulle::live {

inline int& ready_pipe() {
  static int pipe = -1;
  return pipe;
}

// Starts a fabric in a process of its own, which may have so many descriptors if `descriptors` is
// not zero. Returns once it is ready.
inline pid_t start(const FabricOptions& options, rlim_t descriptors = 0) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return -1;
  std::filesystem::create_directory(options.folder);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{descriptors, descriptors};
    if (descriptors != 0 && setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(1);
    ready_pipe() = ends[1];
    _exit(run_fabric(options, [](const std::string&) { write_best_effort(ready_pipe(), "r", 1); }));
  }
  close(ends[1]);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  return child;
}
inline void stop(pid_t child) {
  kill(child, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Connects, once there is room among those that wait.
inline UniqueFd connect_once_there_is_room(const std::string& socket) {
  auto connection = connect_patiently(socket, 5'000);
  EXPECT_TRUE(connection) << "nobody accepts connections";
  return connection ? std::move(*connection) : UniqueFd();
}

inline void allow_descriptors(rlim_t count) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min(limit.rlim_max, count);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

}  // namespace tulle::live

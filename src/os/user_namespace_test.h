#pragma once

// Test support: runs something in a user namespace that has numbers for some users alone.

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "os/unique_fd.h"

namespace tulle {

// The machine's users 0 to 65535 have their own numbers. Others have none.
inline constexpr char few_users[] = "0 0 65536";

// Runs a function in a child process that is in a new user namespace, whose users and groups are
// those of the map ("inside outside count"; an empty one gives no user a number). Returns what the
// function returns, or nothing if this user or machine cannot make such a namespace.
inline std::optional<std::string> in_user_namespace(const std::string& map,
                                                    const std::function<std::string()>& function) {
  int begun[2], mapped[2], said[2];
  if ((pipe2(begun, O_CLOEXEC) | pipe2(mapped, O_CLOEXEC) | pipe2(said, O_CLOEXEC)) != 0) return {};
  char byte = 0;
  const pid_t child = fork();
  if (child == 0) {
    close(mapped[1]);
    if (unshare(CLONE_NEWUSER) != 0 || write(begun[1], &byte, 1) != 1) _exit(1);
    if (read(mapped[0], &byte, 1) != 1) _exit(1);
    const std::string text = function();
    _exit(write(said[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  for (const int fd : {begun[1], mapped[0], said[1]}) close(fd);
  const UniqueFd has_begun(begun[0]), in(said[0]);
  UniqueFd is_mapped(mapped[1]);
  const auto write_map = [&](const char* name) {
    const std::string path = "/proc/" + std::to_string(child) + "/" + name;
    const UniqueFd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    return map.empty() ||
           write(file.get(), map.data(), map.size()) == static_cast<ssize_t>(map.size());
  };
  bool is_made = read(has_begun.get(), &byte, 1) == 1;
  if (is_made) write_map("gid_map");  // which is root's alone to write
  is_made = is_made && write_map("uid_map");
  if (is_made && write(is_mapped.get(), &byte, 1) != 1) is_made = false;
  is_mapped.reset();
  std::string text;
  char c;
  while (read(in.get(), &c, 1) == 1) text += c;
  int status = 0;
  waitpid(child, &status, 0);
  if (is_made && status != 0) text += "the child did not end well";
  if (!is_made) return {};
  return text;
}

}  // namespace tulle

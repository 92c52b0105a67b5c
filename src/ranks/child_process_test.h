#pragma once

// Test support: a function that runs in a process of its own.

#include <unistd.h>

namespace tulle::ranks {

// Returns the process. It ends with `status` if the function returns.
template <typename Function>
pid_t start(Function function, int status = 0) {
  const pid_t pid = fork();
  if (pid == 0) {
    function();
    _exit(status);
  }
  return pid;
}

}  // namespace tulle::ranks

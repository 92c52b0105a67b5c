#pragma once

// Holds the other threads of this process back from writing to some pages while those move
// (userfaultfd(2)). A thread that writes there, also the kernel on its behalf, waits until the hold
// ends and then writes to whatever is mapped.

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "os/unique_fd.h"

namespace tulle::live {

class WriterHold {
 public:
  // Fails where this process may not hold back what the kernel writes for its threads: it needs
  // CAP_SYS_PTRACE, access to /dev/userfaultfd, or the setting vm.unprivileged_userfaultfd. Fails
  // also before Linux 5.19, which holds nobody back from pages of files.
  static Result<WriterHold> create();

  // `memory` begins on a page. Between begin() and end() the caller must not take a lock or
  // allocate memory: a thread that waits here may hold what the caller would wait for. Only one
  // hold is under way at a time.
  enum class Pages : std::uint8_t { of_no_file, of_a_file };
  [[nodiscard]] bool begin(std::byte* memory, std::size_t bytes, Pages pages);
  void end();

 private:
  explicit WriterHold(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tulle::live

#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace tulle {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    // close(3) is a cancellation point, and the thread may be the program's: nothing may be thrown.
    if (fd_ >= 0) syscall(SYS_close, fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace tulle

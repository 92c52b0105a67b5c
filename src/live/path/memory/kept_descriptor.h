#pragma once

// A file descriptor that must not be mistaken for another one. It is among the program's
// descriptors, and a program may close all that it finds there and open its own files under their
// numbers.

#include <sys/types.h>

#include <cstdint>
#include <utility>

#include "os/unique_fd.h"

namespace tulle::live {

// Returns true if the descriptor is open on that file.
bool is_open_on(int fd, dev_t device, std::uint64_t inode);

class KeptDescriptor {
 public:
  KeptDescriptor() = default;
  // Gives the file a high number if there is one, so that the program, which may use select(2),
  // keeps the low ones.
  explicit KeptDescriptor(UniqueFd fd);
  KeptDescriptor(KeptDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), device_(other.device_), inode_(other.inode_) {}
  KeptDescriptor& operator=(KeptDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(device_, other.device_);
    std::swap(inode_, other.inode_);
    return *this;
  }
  // Closes the descriptor if it is still the file's.
  ~KeptDescriptor();

  int get() const { return fd_; }
  dev_t device() const { return device_; }
  std::uint64_t inode() const { return inode_; }
  // Returns true if the descriptor is still the file's.
  bool is_intact() const { return fd_ >= 0 && is_open_on(fd_, device_, inode_); }

 private:
  int fd_ = -1;
  dev_t device_ = 0;
  std::uint64_t inode_ = 0;
};

}  // namespace tulle::live

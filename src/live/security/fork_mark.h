#pragma once

// Notices that this process is a child of the one that made the object, however it was forked. Not
// all ways run handlers of pthread_atfork(3): _Fork(3) and clone(2) do not.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace tulle::live {

class ForkMark {
 public:
  ForkMark() : bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))), owner_(getpid()) {
    constexpr int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    void* page = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, kind, -1, 0);
    if (page == MAP_FAILED) return;
    // Linux 4.14 gives a child zeros there.
    if (madvise(page, bytes_, MADV_WIPEONFORK) != 0) {
      munmap(page, bytes_);
      return;
    }
    mark_ = static_cast<volatile int*>(page);
    *mark_ = 1;
  }
  ~ForkMark() {
    if (mark_ != nullptr) munmap(const_cast<int*>(mark_), bytes_);
  }
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // Returns true once in a child.
  bool is_in_child() {
    if (mark_ != nullptr ? *mark_ != 0 : owner_ == getpid()) return false;
    owner_ = getpid();
    if (mark_ != nullptr) *mark_ = 1;
    return true;
  }

 private:
  std::size_t bytes_;
  volatile int* mark_ = nullptr;  // null where the kernel does not wipe it: the number tells
  pid_t owner_;
};

}  // namespace tulle::live

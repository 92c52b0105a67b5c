#pragma once

// The connection by which local peers wake this process, and of which they get the second end. A
// caller that sleeps inside of a call may have it alone: two who watch it would take rings from
// each other.

#include <pthread.h>

#include <cstddef>
#include <utility>

#include "live/bell.h"
#include "os/unique_fd.h"

namespace tulle::live {

class Doorbell {
 public:
  explicit Doorbell(Bell bell) : bell_(std::move(bell)) {}

  int fd() const { return bell_.bell.get(); }
  int button() const { return bell_.button.get(); }
  // Takes what was said, in one call, and returns how many rings that were. Peers may do anything
  // with their end.
  std::size_t answer();

  bool is_taken() const { return is_taken_; }
  bool may_be_taken() const { return !is_taken_ && !is_broken_; }
  void take() {
    is_taken_ = true;
    taker_ = pthread_self();
  }
  void leave() { is_taken_ = false; }
  // Returns true if the calling thread has it. The thread may have left the call with
  // siglongjmp(3).
  bool is_own() const { return is_taken_ && pthread_equal(taker_, pthread_self()) != 0; }
  // Somebody shut it down: no caller sleeps at it any more.
  void note_broken() { is_broken_ = true; }

 private:
  Bell bell_;
  bool is_taken_ = false;
  pthread_t taker_{};
  bool is_broken_ = false;
};

}  // namespace tulle::live

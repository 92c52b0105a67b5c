#pragma once

// The program's memory, which the program may unmap, shorten or protect at any time. An access to
// bytes that are gone must end in a completion with an error and not in a signal.
//
// The driver's accesses are attempts (base/guarded_access.h). Faults reach them by handlers of
// SIGSEGV and SIGBUS, which pass every other fault on to the handlers that the program has set.
// A program may set its own handlers over these, or block the signals in a thread. Both are found
// out by the next turn that begins check_interval or more after the last check in the same thread.

#include "base/time.h"
#include "rdma/verbs/memory.h"

namespace tulle::live {

// The pages of this process.
const verbs::MemoryPages& program_pages();

// Sets the handlers of SIGSEGV and SIGBUS, if they are not set.
void watch_for_faults();

// A turn of the driver, in which it may access the program's memory. If the calling thread blocks
// SIGSEGV or SIGBUS, the turn lets them through while it lasts: the kernel ends a process whose
// thread has a fault while it blocks the fault's signal.
class MemoryTurn {
 public:
  static constexpr Time check_interval = Time::milliseconds(10);

  explicit MemoryTurn(Time now);
  ~MemoryTurn();
  MemoryTurn(const MemoryTurn&) = delete;
  MemoryTurn& operator=(const MemoryTurn&) = delete;

 private:
  bool lets_through_ = false;
};

}  // namespace tulle::live

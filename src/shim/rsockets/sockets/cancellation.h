#pragma once

// Where a thread of the program may be cancelled (pthread_cancel(3)): as it begins a call that
// POSIX makes a cancellation point, and while it waits in one. Elsewhere the library's own calls
// would be such points, close(2) among them: they would leave things half done, and in a
// destructor, from which nothing is thrown, would end the program.

#include <pthread.h>

namespace tulle::rsockets {

// What the program itself has set, while a NoCancellation of the thread lives.
inline thread_local int state_of_program = PTHREAD_CANCEL_ENABLE;

class NoCancellation {
 public:
  NoCancellation() : outer_(state_of_program) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
    state_of_program = before_;
  }
  ~NoCancellation() {
    state_of_program = outer_;
    pthread_setcancelstate(before_, nullptr);
  }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int outer_;  // a signal handler may make a call within another one
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// Around a wait within a call.
class CancellationPoint {
 public:
  CancellationPoint() { pthread_setcancelstate(state_of_program, &before_); }
  ~CancellationPoint() { pthread_setcancelstate(before_, nullptr); }
  CancellationPoint(const CancellationPoint&) = delete;
  CancellationPoint& operator=(const CancellationPoint&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace tulle::rsockets

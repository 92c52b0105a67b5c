#pragma once

// Where a thread of the program may be cancelled (pthread_cancel(3)): while it waits within a call
// that waits in rdma-core too. Elsewhere the library's own calls would be such points, sendmmsg(2)
// and close(2) among them: they would leave things half done, and in a destructor, from which
// nothing is thrown, would end the program.

#include <pthread.h>

namespace tulle {

// Around system calls within calls that post or poll work. These are not guarded as a whole, since
// the two switches take as long as locking a mutex.
class CancellationOff {
 public:
  CancellationOff() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationOff() { pthread_setcancelstate(before_, nullptr); }
  CancellationOff(const CancellationOff&) = delete;
  CancellationOff& operator=(const CancellationOff&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// What the program itself has set, while a NoCancellation of the thread lives.
inline thread_local int state_of_program = PTHREAD_CANCEL_ENABLE;

// Around a whole call of the C API. Within a call that makes others, those have no points.
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

}  // namespace tulle

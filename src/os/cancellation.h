#pragma once

// Where a thread of the program may be cancelled (pthread_cancel(3)): while it waits within a call
// that waits in rdma-core too. Elsewhere the library's own calls would be such points, sendmmsg(2)
// and close(2) among them: they would leave things half done, and in a destructor, from which
// nothing is thrown, would end the program.

#include <pthread.h>

namespace tulle {

// Sets whether the thread may be cancelled, and restores it.
class CancellationState {
 public:
  explicit CancellationState(int state) { pthread_setcancelstate(state, &before_); }
  ~CancellationState() { pthread_setcancelstate(before_, nullptr); }
  CancellationState(const CancellationState&) = delete;
  CancellationState& operator=(const CancellationState&) = delete;
  int before() const { return before_; }

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// Around system calls within calls that post or poll work. These are not guarded as a whole, since
// the two switches take as long as locking a mutex.
class CancellationOff : public CancellationState {
 public:
  CancellationOff() : CancellationState(PTHREAD_CANCEL_DISABLE) {}
};

// What the program itself has set, while a NoCancellation of the thread lives.
inline thread_local int state_of_program = PTHREAD_CANCEL_ENABLE;

// Around a whole call of the C API. Within a call that makes others, those have no points.
class NoCancellation {
 public:
  NoCancellation() : outer_(state_of_program) { state_of_program = off_.before(); }
  ~NoCancellation() { state_of_program = outer_; }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  CancellationOff off_;
  int outer_;  // a signal handler may make a call within another one
};

// Around a wait within a call.
class CancellationPoint : public CancellationState {
 public:
  CancellationPoint() : CancellationState(state_of_program) {}
};

}  // namespace tulle

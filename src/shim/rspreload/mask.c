// The signal masks of ppoll(), pselect() and epoll_pwait(). Only the kernel can change the mask and
// begin to wait at once: a signal between the two would not end the wait.

#define _GNU_SOURCE

#include <poll.h>
#include <signal.h>
#include <time.h>

#include "preload.h"

REAL(int, ppoll, (struct pollfd*, nfds_t, const struct timespec*, const sigset_t*))

int real_wait(struct pollfd* fds, nfds_t count, const struct timespec* timeout,
              const sigset_t* mask) {
  return find_ppoll()(fds, count, timeout, mask);
}

static _Thread_local const sigset_t* mask_of_wait;

// Outside the wait itself, the thread takes only signals that it takes before and in the wait.
struct masked_wait begin_wait(const sigset_t* mask) {
  struct masked_wait wait = {.mask = mask, .outer = mask_of_wait};
  if (mask != NULL) pthread_sigmask(SIG_BLOCK, mask, &wait.before);
  mask_of_wait = mask;
  return wait;
}

void end_wait(const struct masked_wait* wait) {
  mask_of_wait = wait->outer;
  if (wait->mask != NULL) pthread_sigmask(SIG_SETMASK, &wait->before, NULL);
}

void forget_wait(void) { mask_of_wait = NULL; }

int has_mask(void) { return mask_of_wait != NULL; }

int take_signals(const sigset_t* mask) {
  const struct timespec none = {0, 0};
  return real_wait(NULL, 0, &none, mask);
}

static void restore(const sigset_t* const* mask) { mask_of_wait = *mask; }

// A signal handler that waits itself has no mask for that.
int poll_masked(struct pollfd* fds, nfds_t count, int timeout) {
  const sigset_t* const mask __attribute__((cleanup(restore))) = mask_of_wait;
  mask_of_wait = NULL;
  const struct timespec limit = {timeout / 1000, timeout % 1000 * 1000000L};
  return real_wait(fds, count, timeout >= 0 ? &limit : NULL, mask);
}

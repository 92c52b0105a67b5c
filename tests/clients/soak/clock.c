// A library to preload: it sets a program's monotonic clock ahead while the program runs.
//
// SOAK_CLOCK names a file whose first eight bytes are how far, in nanoseconds; another program may
// change them at any time. Timers that are set to a time of that clock expire when the clock that
// is set ahead reaches it.

#define _GNU_SOURCE

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static const int64_t second = 1000000000;
static const volatile int64_t* ahead;

__attribute__((constructor)) static void begin(void) {
  const char* path = getenv("SOAK_CLOCK");
  const int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void* page = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) ahead = page;
  close(fd);
}

static int64_t to_nanoseconds(const struct timespec* time) {
  return time->tv_sec * second + time->tv_nsec;
}

static struct timespec to_timespec(int64_t nanoseconds) {
  return (struct timespec){.tv_sec = nanoseconds / second, .tv_nsec = nanoseconds % second};
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  static int (*real)(clockid_t, struct timespec*);
  if (real == NULL) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, time);
  if (result == 0 && clock == CLOCK_MONOTONIC && ahead != NULL) {
    *time = to_timespec(to_nanoseconds(time) + *ahead);
  }
  return result;
}

int timerfd_settime(int fd, int flags, const struct itimerspec* wanted, struct itimerspec* before) {
  struct itimerspec timer = *wanted;
  const int64_t at = to_nanoseconds(&timer.it_value);
  if ((flags & TFD_TIMER_ABSTIME) != 0 && at != 0 && ahead != NULL) {
    timer.it_value = to_timespec(at > *ahead ? at - *ahead : 1);
  }
  return (int)syscall(SYS_timerfd_settime, fd, flags, &timer, before);
}

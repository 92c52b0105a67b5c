/* A processor of a virtual machine stands still while the machine's host runs something else, and
   the kernel is not always told so. A process beside the programs measures it: on each processor,
   a thread with real-time priority wakes every two milliseconds and notes when it woke late. No
   other program can hold up such a thread. */

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "chaos.h"

#define PROCESSORS_MAX 64
#define KEPT 32 /* the last stalls of each processor */
#define BEAT_NS 2000000u
#define STALL_NS 5000000u /* a beat that is later than this was held up */
#define PRIORITY 50

struct interval {
  uint64_t begin;
  uint64_t end;
};
struct stalls {
  struct {
    uint64_t count;
    struct interval last[KEPT];
  } of[PROCESSORS_MAX];
};

static volatile struct stalls* stalls;

static bool open_stalls(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return false;
  void* at = MAP_FAILED;
  if (ftruncate(file, sizeof *stalls) == 0)
    at = mmap(NULL, sizeof *stalls, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at != MAP_FAILED) stalls = at;
  return stalls != NULL;
}

static void* beat(void* argument) {
  const size_t processor = (size_t)(uintptr_t)argument;
  for (uint64_t before = now_ns();;) {
    const struct timespec span = {0, BEAT_NS};
    nanosleep(&span, NULL);
    const uint64_t now = now_ns();
    if (now - before > BEAT_NS + STALL_NS) {
      const uint64_t count = stalls->of[processor].count;
      stalls->of[processor].last[count % KEPT].end = 0; /* nobody reads one half of each */
      stalls->of[processor].last[count % KEPT].begin = before + BEAT_NS;
      stalls->of[processor].last[count % KEPT].end = now;
      stalls->of[processor].count = count + 1;
    }
    before = now;
  }
  return NULL;
}

int stalls_watch(const char* path) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!open_stalls(path)) {
    fprintf(stderr, "chaos: cannot map %s\n", path);
    return 2;
  }
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return 2;
  for (size_t i = 0; i < PROCESSORS_MAX; ++i) {
    if (!CPU_ISSET(i, &usable)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(i, &one);
    const struct sched_param priority = {.sched_priority = PRIORITY};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
    pthread_attr_setschedparam(&attributes, &priority);
    pthread_attr_setaffinity_np(&attributes, sizeof one, &one);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, beat, (void*)(uintptr_t)i) != 0) {
      fprintf(stderr, "chaos: this machine allows no real-time priority\n");
      return 1;
    }
    pthread_attr_destroy(&attributes);
  }
  for (;;) pause();
}

static int by_begin(const void* a, const void* b) {
  const struct interval *left = a, *right = b;
  return left->begin < right->begin ? -1 : left->begin > right->begin;
}

uint64_t stalled_ns(uint64_t begin, uint64_t end) {
  static struct interval found[PROCESSORS_MAX * KEPT];
  size_t count = 0;
  if (stalls == NULL && (getenv("CHAOS_STALLS") == NULL || !open_stalls(getenv("CHAOS_STALLS"))))
    return 0;
  for (size_t i = 0; i < PROCESSORS_MAX; ++i) {
    for (size_t k = 0; k < KEPT && k < stalls->of[i].count; ++k) {
      const struct interval each = {stalls->of[i].last[k].begin, stalls->of[i].last[k].end};
      if (each.end <= begin || each.begin >= end) continue;
      found[count++] = (struct interval){each.begin < begin ? begin : each.begin,
                                         each.end > end ? end : each.end};
    }
  }
  qsort(found, count, sizeof *found, by_begin);
  uint64_t sum = 0, until = begin; /* stalls of several processors at a time count once */
  for (size_t i = 0; i < count; ++i) {
    if (found[i].end <= until) continue;
    sum += found[i].end - (found[i].begin > until ? found[i].begin : until);
    until = found[i].end;
  }
  return sum;
}

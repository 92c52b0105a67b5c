/* A call's time is what passed, less the time in which the threads of this process, its peer and
   its host agent could have run and the machine ran others, and less the time in which a processor
   stood still: a busy machine is no fault. Calls during which the driver interrupted this process
   itself do not count, nor do calls during which the process waited for a page to be read from a
   disk: some machines drop pages of programs that run. */

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "chaos.h"

#define THREADS_MAX 32
#define BASELINE_AGE_NS 5000000u /* the baseline's age makes a call look shorter, never longer */
#define SHORT_NS 20000000u       /* shorter calls need no second look */
#define LONG_NS 60000000u        /* during longer ones the threads are looked at */

struct waits {
  int count;
  uint64_t stolen;
  struct {
    int id;
    uint64_t ns;
  } thread[THREADS_MAX];
};

static struct waits baseline;
static uint64_t baseline_at;

/* The time that this machine's host gave to others, if it is a virtual one. */
static uint64_t stolen_ns(void) {
  FILE* file = fopen("/proc/stat", "re");
  unsigned long long ticks = 0;
  if (file == NULL) return 0;
  if (fscanf(file, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks) != 1) ticks = 0;
  fclose(file);
  return ticks * 10000000u;
}

static void add_process(struct waits* waits, uint64_t pid) {
  char path[300];
  snprintf(path, sizeof path, "/proc/%llu/task", (long long)pid);
  DIR* tasks = pid == 0 ? NULL : opendir(path);
  if (tasks == NULL) return;
  for (struct dirent* entry; (entry = readdir(tasks)) != NULL && waits->count < THREADS_MAX;) {
    snprintf(path, sizeof path, "/proc/%s/schedstat", entry->d_name);
    FILE* file = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
    if (file == NULL) continue;
    unsigned long long waited;
    if (fscanf(file, "%*u %llu", &waited) == 1) {
      waits->thread[waits->count].id = atoi(entry->d_name);
      waits->thread[waits->count++].ns = waited;
    }
    fclose(file);
  }
  closedir(tasks);
}

static struct waits waits_now(void) {
  struct waits waits = {.stolen = stolen_ns()};
  add_process(&waits, page->pid);
  add_process(&waits, page->agent);
  add_process(&waits, page->peer);
  return waits;
}

static uint64_t waited_since_baseline(uint64_t stalled) {
  const struct waits waits = waits_now();
  const uint64_t stolen = waits.stolen - baseline.stolen;
  uint64_t sum = stolen > stalled ? stolen : stalled; /* the same time, seen by two */
  for (int i = 0; i < waits.count; ++i) {
    uint64_t before = 0;
    for (int k = 0; k < baseline.count; ++k) {
      if (baseline.thread[k].id == waits.thread[i].id) before = baseline.thread[k].ns;
    }
    sum += waits.thread[i].ns - before;
  }
  return sum;
}

static uint64_t processor_ns(void) {
  struct timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static long page_reads(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_majflt : 0;
}

/* A separate thread looks at calls, and notes what all threads do while one of them is long. */

static _Atomic uint64_t call_since; /* 0: no call is under way */
static pid_t watched_process;

static void note_file_of_thread(const char* thread, const char* name) {
  char path[300], text[600];
  snprintf(path, sizeof path, "/proc/self/task/%s/%s", thread, name);
  FILE* file = fopen(path, "re");
  if (file == NULL) return;
  const size_t bytes = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  for (size_t i = 0; i < bytes; ++i) {
    if (text[i] == '\n') text[i] = ' ';
  }
  text[bytes] = '\0';
  note("thread %s, %s: %s", thread, name, text);
}

static void* watch_calls(void* argument) {
  for (uint64_t told = 0;; pause_ms(10)) {
    const uint64_t since = call_since;
    if (since == 0 || since == told || now_ns() < since + LONG_NS) continue;
    told = since;
    DIR* tasks = opendir("/proc/self/task");
    for (struct dirent* entry; tasks != NULL && (entry = readdir(tasks)) != NULL;) {
      if (entry->d_name[0] == '.') continue;
      note_file_of_thread(entry->d_name, "stat");
      note_file_of_thread(entry->d_name, "stack");
    }
    if (tasks != NULL) closedir(tasks);
  }
  return argument;
}

/* A forked child has no such thread, and makes no calls. */
static void watch(void) {
  if (watched_process == getpid()) return;
  watched_process = getpid();
  pthread_t thread;
  if (pthread_create(&thread, NULL, watch_calls, NULL) == 0) pthread_detach(thread);
}

struct call_timer call_begin(void) {
  watch();
  /* This is read before the clock: a stop in between counts neither here nor there. */
  const uint64_t interrupted = page->interrupted;
  uint64_t now = now_ns();
  if (now - baseline_at > BASELINE_AGE_NS) {
    baseline = waits_now();
    baseline_at = now = now_ns();
  }
  call_since = now;
  return (struct call_timer){now, processor_ns(), page_reads(), interrupted};
}

void call_end(const struct call_timer* timer, enum call call) {
  uint64_t ns = now_ns() - timer->begin;
  call_since = 0;
  if (ns <= page->longest_ns) return;
  if (ns > SHORT_NS) {
    const uint64_t stalled = stalled_ns(timer->begin, timer->begin + ns);
    const uint64_t waited = waited_since_baseline(stalled);
    const long reads = page_reads() - timer->page_reads;
    const uint64_t all = ns;
    ns = ns > waited ? ns - waited : 0;
    note(
        "call %d took %llu us, of which %llu us were not for want of a processor; it used one for "
        "%llu us, a processor stood still for %llu us, and %ld pages were read from a disk",
        (int)call, (long long)(all / 1000), (long long)(ns / 1000),
        (long long)((processor_ns() - timer->processor) / 1000), (long long)(stalled / 1000),
        reads);
    if (reads != 0) return;
  }
  if (timer->interrupted % 2 != 0 || page->interrupted != timer->interrupted) return;
  if (ns <= page->longest_ns) return;
  page->longest_call = call;
  page->longest_ns = ns;
}

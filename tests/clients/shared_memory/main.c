/* Checks that a program notices nothing of its registered memory being shared: it gives pages up,
   forks, writes from another thread while it registers, and deregisters. Prints "ok", or what is
   wrong. */

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define PAGES ((size_t)64)

static void die(const char* what) {
  printf("%s\n", what);
  exit(1);
}

/* Returns true if the page at this address belongs to a file that peers may map. */
static bool is_shared(const void* address) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  bool found = false;
  while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
    unsigned long begin, end;
    char rights[5];
    if (sscanf(line, "%lx-%lx %4s", &begin, &end, rights) != 3) continue;
    const unsigned long at = (unsigned long)address;
    if (begin <= at && at < end) found = rights[3] == 's' && strstr(line, "tulle-region") != NULL;
  }
  if (maps != NULL) fclose(maps);
  return found;
}

static struct ibv_mr* register_memory(struct ibv_pd* pd, void* memory) {
  struct ibv_mr* region =
      ibv_reg_mr(pd, memory, PAGES * PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (region == NULL) die("ibv_reg_mr failed");
  return region;
}

static void check_advice(unsigned char* memory) {
  if (madvise(memory, 2 * PAGE, MADV_DONTNEED) != 0) die("MADV_DONTNEED failed");
  if (memory[0] != 0 || memory[2 * PAGE - 1] != 0) die("pages that were given up are not zeros");
  if (memory[2 * PAGE] != 7) die("a page was given up that was not named");
}

static void check_fork(unsigned char* memory) {
  for (int round = 1; round < 10; ++round) {
    memset(memory, round, PAGES * PAGE);
    const pid_t child = fork();
    if (child == 0) {
      usleep(1000);
      for (size_t at = 0; at < PAGES * PAGE; ++at) {
        if (memory[at] != round) _exit(1);
      }
      memset(memory, 99, PAGES * PAGE);
      _exit(0);
    }
    memset(memory, 50, PAGES * PAGE);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) die("a child saw its parent's writes");
    for (size_t at = 0; at < PAGES * PAGE; ++at) {
      if (memory[at] != 50) die("a parent saw its child's writes");
    }
  }
}

struct counter {
  volatile unsigned long* words;
  unsigned long count;
  atomic_bool stops;
};

static void* count_up(void* argument) {
  struct counter* counter = argument;
  while (!atomic_load(&counter->stops)) {
    for (size_t i = 0; i < PAGES; ++i) counter->words[i * PAGE / sizeof(unsigned long)] += 1;
    counter->count += 1;
  }
  return NULL;
}

/* Returns whether the memory was shared although another thread writes to it. */
static bool check_threads(struct ibv_pd* pd, unsigned char* memory) {
  memset(memory, 0, PAGES * PAGE);
  struct counter counter = {.words = (volatile unsigned long*)memory};
  pthread_t thread;
  if (pthread_create(&thread, NULL, count_up, &counter) != 0) die("pthread_create failed");
  bool was_shared = false;
  for (int round = 0; round < 50; ++round) {
    struct ibv_mr* region = register_memory(pd, memory);
    was_shared = is_shared(memory) || was_shared;
    if (ibv_dereg_mr(region) != 0) die("ibv_dereg_mr failed");
    if (is_shared(memory)) die("memory that was deregistered is still shared");
  }
  atomic_store(&counter.stops, true);
  pthread_join(thread, NULL);
  for (size_t i = 0; i < PAGES; ++i) {
    if (counter.words[i * PAGE / sizeof(unsigned long)] != counter.count) die("a write was lost");
  }
  return was_shared;
}

int main(void) {
  struct ibv_device** devices = ibv_get_device_list(NULL);
  if (devices == NULL || devices[0] == NULL) die("no RDMA device");
  struct ibv_context* context = ibv_open_device(devices[0]);
  struct ibv_pd* pd = context == NULL ? NULL : ibv_alloc_pd(context);
  unsigned char* memory =
      mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pd == NULL || memory == MAP_FAILED) die("cannot begin");
  memset(memory, 7, PAGES * PAGE);
  struct ibv_mr* region = register_memory(pd, memory);
  const bool was_shared = is_shared(memory) && is_shared(memory + (PAGES - 1) * PAGE);
  check_advice(memory);
  if (madvise(memory, PAGE, MADV_FREE) != 0) die("MADV_FREE failed");
  check_fork(memory);
  if (ibv_dereg_mr(region) != 0) die("ibv_dereg_mr failed");
  if (is_shared(memory)) die("memory that was deregistered is still shared");
  check_fork(memory);
  memset(memory, 7, PAGES * PAGE);
  check_advice(memory);
  const bool was_shared_beside_threads = check_threads(pd, memory);
  printf("ok: %s, %s beside a thread\n", was_shared ? "shared" : "private",
         was_shared_beside_threads ? "shared" : "private");
  return 0;
}

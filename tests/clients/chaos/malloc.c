/* A library for LD_PRELOAD in front of glibc's allocator. When the driver of tests/chaos asks for
   it, some allocations of the program fail, as they do when memory is exhausted. */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "page.h"

extern void* __libc_malloc(size_t bytes);
extern void* __libc_calloc(size_t count, size_t bytes);
extern void* __libc_realloc(void* at, size_t bytes);
extern void* __libc_memalign(size_t alignment, size_t bytes);

static struct page* page;

__attribute__((constructor)) static void open_page(void) {
  const char* path = getenv("CHAOS_PAGE");
  const int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  void* at = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at != MAP_FAILED) page = at;
}

/* Programs that this one starts, such as a host agent, are not meant. */
static bool take_one(uint64_t* from) {
  uint64_t left = __atomic_load_n(from, __ATOMIC_RELAXED);
  while (left > 0) { /* the driver may store 0 at any time */
    if (__atomic_compare_exchange_n(from, &left, left - 1, true, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
      return true;
  }
  return false;
}

static bool fails(void) {
  if (page == NULL || __atomic_load_n(&page->allocations_to_fail, __ATOMIC_RELAXED) == 0)
    return false;
  if (page->pid != (uint64_t)getpid()) return false;
  if (take_one(&page->allocations_left) || !take_one(&page->allocations_to_fail)) return false;
  __atomic_fetch_add(&page->allocations_failed, 1, __ATOMIC_RELAXED);
  errno = ENOMEM;
  return true;
}

void* malloc(size_t bytes) { return fails() ? NULL : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) { return fails() ? NULL : __libc_calloc(count, bytes); }
void* realloc(void* at, size_t bytes) { return fails() ? NULL : __libc_realloc(at, bytes); }
void* memalign(size_t alignment, size_t bytes) {
  return fails() ? NULL : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** result, size_t alignment, size_t bytes) {
  void* at = memalign(alignment, bytes);
  if (at == NULL) return ENOMEM;
  *result = at;
  return 0;
}

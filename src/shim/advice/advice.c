/* Preloaded by `tulle run --share-memory` into programs whose registered memory moves to files that
   other processes can map (live/path/memory/shared_regions.h). A program that gives up such pages
   with madvise(2) must find zeros there afterwards, as in private memory. So the program's calls
   come here first, and are passed to the code that shares the memory.

   The library is written in C and uses nothing but the C library, because it lives in every
   program, also in those that bring another C++ runtime. */

#define _GNU_SOURCE

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

typedef int madvise_function(void* memory, size_t bytes, int advice);
/* Does what madvise(2) should, with the help of `next`. */
typedef int advise_function(void* memory, size_t bytes, int advice, madvise_function* next);

static _Atomic(advise_function*) advise;

/* The drop-in library calls this when it begins to share memory. */
EXPORTED void tulle_pass_advice_to(advise_function* function);
void tulle_pass_advice_to(advise_function* function) { atomic_store(&advise, function); }

static int ask_kernel(void* memory, size_t bytes, int advice) {
  return (int)syscall(SYS_madvise, memory, bytes, advice);
}

/* Other libraries replace madvise too, and find out by a call whether they have done so. So calls
   are passed to the next library. An allocator may call before that has been looked up. */
static _Atomic(madvise_function*) next;

__attribute__((constructor)) static void find_next(void) {
  madvise_function* function = NULL;
  *(void**)&function = dlsym(RTLD_NEXT, "madvise");
  atomic_store(&next, function);
}

EXPORTED int madvise(void* memory, size_t bytes, int advice);
int madvise(void* memory, size_t bytes, int advice) {
  madvise_function* const found = atomic_load(&next);
  madvise_function* const others = found != NULL ? found : ask_kernel;
  advise_function* const function = atomic_load(&advise);
  return function != NULL ? function(memory, bytes, advice, others) : others(memory, bytes, advice);
}

/* Preloaded by `tulle run --share-memory` into programs whose registered memory moves to files that
   other processes can map (live/path/memory/shared_regions.h). A program that gives up such pages
   with madvise(2) must find zeros there afterwards, as in private memory. So the program's calls
   come here first, and go on to whoever shares the memory.

   The library is written in C and uses nothing but the C library, because it lives in every
   program, also in those that bring another C++ runtime. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

/* Does what madvise(2) should and sets `result`, or returns false and has done nothing. */
typedef bool advise_function(void* memory, size_t bytes, int advice, int* result);

static _Atomic(advise_function*) advise;

/* The drop-in library calls this when it begins to share memory. */
EXPORTED void tulle_pass_advice_to(advise_function* function);
void tulle_pass_advice_to(advise_function* function) { atomic_store(&advise, function); }

EXPORTED int madvise(void* memory, size_t bytes, int advice);
int madvise(void* memory, size_t bytes, int advice) {
  advise_function* const function = atomic_load(&advise);
  int result = 0;
  if (function != NULL && function(memory, bytes, advice, &result)) return result;
  return (int)syscall(SYS_madvise, memory, bytes, advice);
}

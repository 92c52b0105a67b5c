#include "base/guarded_access.h"

#include <setjmp.h>

#include <atomic>
#include <cstdint>

namespace tulle {
namespace {

struct Attempt {
  jmp_buf before;
  MemoryPieces where;
  Attempt* outer = nullptr;
};

// A signal handler reads this variable in any thread. With this model the loader makes room for it
// when the thread starts; else the first use in a thread might allocate memory.
[[gnu::tls_model("initial-exec")]] thread_local Attempt* current = nullptr;

bool covers(MemoryPieces where, const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const auto& piece : where) {
    const auto start = reinterpret_cast<std::uintptr_t>(piece.data());
    if (at >= start && at - start < piece.size()) return true;
  }
  return false;
}

}  // namespace

bool attempt(MemoryPieces where, void (*touch)(void*), void* argument) {
  Attempt here;
  here.where = where;
  here.outer = current;
  if (_setjmp(here.before) != 0) return false;
  current = &here;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  touch(argument);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  current = here.outer;
  return true;
}

void leave_faulty_access(const void* address) {
  Attempt* const here = current;
  if (here == nullptr || (address != nullptr && !covers(here->where, address))) return;
  current = here->outer;
  // It keeps the mask, as _longjmp() does; the thread sanitizer knows it, and not the other.
  longjmp(here->before, 1);
}

}  // namespace tulle

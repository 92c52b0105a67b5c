#pragma once

// Access to memory that may be gone. A program registers memory, and may unmap it, shorten the file
// behind it or protect it while packets still arrive for it. Code that touches such memory inside
// of attempt() gets a result; elsewhere, the kernel's signal ends the process.
//
// The fault comes as SIGSEGV or SIGBUS, so a handler of both must call leave_faulty_access(). Where
// there is none, as in the simulator, an attempt is an ordinary access.

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

namespace tulle {

using MemoryPieces = std::span<const std::span<const std::byte>>;

// Calls touch(argument). Returns false if it touched bytes of `where` that are not there; what it
// did before that is not undone. Its destructors do not run then, so it must not own anything.
[[nodiscard]] bool attempt(MemoryPieces where, void (*touch)(void*), void* argument);

template <typename Touch>
[[nodiscard]] bool attempt(MemoryPieces where, Touch&& touch) {
  using Function = std::remove_reference_t<Touch>;
  return attempt(
      where, [](void* function) { (*static_cast<Function*>(function))(); },
      const_cast<void*>(static_cast<const void*>(std::addressof(touch))));
}

// Copies like std::memcpy. Returns false if some bytes are not there; those before them may have
// been copied. Bytes that are where they should be stay untouched.
[[nodiscard]] inline bool copy_guarded(void* to, const void* from, std::size_t bytes) {
  if (to == from) return true;
  const std::span<const std::byte> pieces[] = {{static_cast<const std::byte*>(to), bytes},
                                               {static_cast<const std::byte*>(from), bytes}};
  return attempt(pieces, [&] { std::memcpy(to, from, bytes); });
}

// Called by the handler of SIGSEGV and SIGBUS with the address of the fault, or null if the kernel
// does not know it. If the calling thread attempts an access to that address, its attempt() returns
// false and this call does not return.
void leave_faulty_access(const void* address);

}  // namespace tulle

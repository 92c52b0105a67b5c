#pragma once

// An exception must not reach a C program. A call that gets no memory fails with ENOMEM, in the way
// that its return type allows. Nor may a thread that is cancelled leave a call half done.

#include <cerrno>
#include <new>
#include <type_traits>

#include "os/cancellation.h"

namespace tulle::shim {

// Sets errno and returns what a function of the C API returns on failure: null, an errno (Error =
// ENOMEM) or -1.
template <typename Value, int error_value>
Value without_memory() {
  errno = ENOMEM;
  if constexpr (std::is_pointer_v<Value>) {
    return nullptr;
  } else if constexpr (!std::is_void_v<Value>) {
    return static_cast<Value>(error_value);
  }
}

template <auto function, int error_value>
struct Guarded;
template <typename Value, typename... Arguments, Value (*function)(Arguments...), int error_value>
struct Guarded<function, error_value> {
  static Value call(Arguments... arguments) {
    const NoCancellation no_cancellation;
    try {
      return function(arguments...);
    } catch (const std::bad_alloc&) {
      return without_memory<Value, error_value>();
    }
  }
};

// A function for a slot of the C API, whose calls return an errno or a pointer.
template <auto function>
inline constexpr auto guarded = &Guarded<function, ENOMEM>::call;

}  // namespace tulle::shim

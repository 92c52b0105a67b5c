#pragma once

#include <cstdio>
#include <cstdlib>

// Checks for a bug in Tulle, in release builds too. The errors of peers and callers are never
// checked with it.
#define TULLE_CHECK(condition)                                     \
  do {                                                             \
    if (!(condition)) [[unlikely]] {                               \
      ::tulle::base::check_failed(#condition, __FILE__, __LINE__); \
    }                                                              \
  } while (false)

namespace tulle::base {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tulle: internal error: %s at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace tulle::base

#pragma once

#include <cstdio>
#include <cstdlib>

// A bug of ours: always on, in release builds too. Peers' and callers' errors are never checks.
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

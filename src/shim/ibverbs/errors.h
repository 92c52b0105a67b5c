#pragma once

#include <cerrno>
#include <cstddef>

#include "verbs/types.h"

namespace tulle::shim {

// Turns a verbs status into an errno. No other code does that.
constexpr int to_errno(verbs::VerbsStatus status) {
  using verbs::VerbsStatus;
  switch (status) {
    case VerbsStatus::ok:
      return 0;
    case VerbsStatus::invalid_argument:
    case VerbsStatus::invalid_state:
      return EINVAL;
    case VerbsStatus::out_of_memory:
      return ENOMEM;
    case VerbsStatus::busy:
      return EBUSY;
    case VerbsStatus::not_supported:
      return EOPNOTSUPP;
  }
  return EINVAL;
}

// These serve calls that return a pointer or -1: they set errno and return null or -1.
inline std::nullptr_t fail(int error) {
  errno = error;
  return nullptr;
}
inline int fail_with_minus_one(int error) {
  errno = error;
  return -1;
}

}  // namespace tulle::shim

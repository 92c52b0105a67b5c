#pragma once

#include <cerrno>
#include <cstddef>

#include "verbs/types.h"

namespace tulle::shim {

// The one place that turns a verbs status into an errno.
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

// For calls that return a pointer or -1: sets errno and returns that.
inline std::nullptr_t fail(int error) {
  errno = error;
  return nullptr;
}
inline int fail_with_minus_one(int error) {
  errno = error;
  return -1;
}

}  // namespace tulle::shim

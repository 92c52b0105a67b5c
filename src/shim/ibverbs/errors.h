#pragma once

#include <cerrno>
#include <cstddef>

#include "rdma/verbs/types.h"

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

// Serves calls that return an errno: returns the error that it is given, and leaves it in errno
// too. rdma-core's providers do both, and programs print errno after a verb that returned its
// error. 0 is no error, and leaves errno alone. A call does this last, because sending changes
// errno.
inline int report(int error) {
  if (error != 0) [[unlikely]]
    errno = error;
  return error;
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

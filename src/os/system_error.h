#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/result.h"

namespace tulle {

// Returns an error that says what failed, and why by errno: "cannot make a socket: Too many open
// files".
inline Error system_error(std::string_view what) {
  const int number = errno;
  return {fmt::format("{}: {}", what, std::strerror(number)), number};
}

}  // namespace tulle

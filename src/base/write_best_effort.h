#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace tulle {

// Writes bytes for a reader that may be gone: last words to standard error, progress to a pipe. An
// interrupted or short write continues, and an error ends it, since nobody is left to report it to.
// Safe in a signal's handler.
inline void write_best_effort(int descriptor, const void* data, std::size_t bytes) {
  const char* rest = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor, rest, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    rest += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

}  // namespace tulle

#pragma once

// These functions serve the long-running processes: the host agent, the process of a fabric, a
// capture.

#include <cstddef>
#include <cstdint>
#include <string>

#include "os/unique_fd.h"

namespace tulle {

// Blocks SIGTERM and SIGINT, ignores SIGPIPE, and returns a descriptor that is readable when the
// process shall stop. The descriptor is none if there was none left.
UniqueFd stop_signals();
// Returns true if a signal to stop has come.
bool has_stop_signal(const UniqueFd& signals);

// Raises the limit of open files as far as this user may, since each client is an open file.
// Returns how many may be open now, or 0 if the system does not say.
std::uint64_t raise_file_limit();
// Returns how many files this process may have open.
std::size_t file_limit();

// Raises the limits of processor time, memory and files' lengths as far as this user may, since the
// program that started the service may have low ones. Returns the names of those that are still
// limits, or an empty text.
std::string raise_other_limits();

// Lets the standard descriptors go. A pipe of the process that started it would never reach its
// end while they stayed open here.
void drop_standard_descriptors();

}  // namespace tulle

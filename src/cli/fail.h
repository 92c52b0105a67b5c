#pragma once

// What both programs return and print when something went wrong.

#include <set>
#include <string>

#include "base/result.h"

namespace tulle::cli {

// The exit status where what was asked for is wrong: an option, a name, a value or a file. It is 1
// where the command was right and failed, and 128 plus the signal's number after Ctrl-C or SIGTERM.
inline constexpr int usage_status = 2;
inline constexpr int signal_status = 128;
// What a shell returns for a program that it does not find, and for one that it cannot run.
inline constexpr int not_found_status = 127;
inline constexpr int not_executable_status = 126;

// Prints "tulle: …" to standard error, and returns the exit status: usage_status if the error is of
// what was asked for, or else 1. Each of the two programs defines it: in the simulator, one rank
// speaks for all, and Ctrl-C has a status.
int fail(const Error& error);

inline int fail(const std::string& message) { return fail(Error{message}); }
// Does the same with an error of what was asked for.
inline int refuse(const std::string& message) { return fail(as_misuse(Error{message})); }

// Does the same with a warning, unless it was printed before.
inline void warn_once(const std::string& line) {
  static std::set<std::string> printed;
  if (printed.insert(line).second) fail(line);
}

}  // namespace tulle::cli

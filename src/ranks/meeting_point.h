#pragma once

// The address at which the ranks of several hosts meet: "HOST:PORT", or "[2001:db8::1]:PORT".

#include <chrono>
#include <string>

#include "base/result.h"
#include "os/unique_fd.h"

namespace tulle::ranks {

Result<UniqueFd> listen_at(const std::string& address);
// Tries until somebody listens there, but not longer than that.
Result<UniqueFd> connect_to(const std::string& address, std::chrono::milliseconds limit);

// Returns the beginning of a text, which may come from anybody, as one line (base/quoted.h) that is
// not longer than some lines of a terminal.
std::string short_line(const std::string& text);

}  // namespace tulle::ranks

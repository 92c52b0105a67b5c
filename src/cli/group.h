#pragma once

#include "base/result.h"
#include "ranks/plan.h"

namespace tulle::cli {

// Prepares this process for starting ranks, whose libibverbs is the one next to this program.
Result<ranks::Group> make_group(double timeout_seconds);

// Does what fail() does. If a signal has ended the ranks, the exit status says so.
int fail_by_signal(const Error& error);

}  // namespace tulle::cli

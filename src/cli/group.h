#pragma once

#include "base/result.h"
#include "ranks/plan.h"

namespace tulle::cli {

// Prepares this process for starting ranks, whose libibverbs is the one beside this program.
Result<ranks::Group> make_group(double timeout_seconds);

}  // namespace tulle::cli

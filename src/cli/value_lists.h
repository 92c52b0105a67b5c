#pragma once

// The values of the simulator's options, for completions.

#include "cli/complete.h"

namespace tulle::cli {

const ValueLists& value_lists();

}  // namespace tulle::cli

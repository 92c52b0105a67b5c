#pragma once

// The values of the simulator's options, for completions.

#include "terminal/complete.h"

namespace tulle::cli {

const terminal::ValueLists& value_lists();

}  // namespace tulle::cli

#pragma once

// The simulator, as `tulle` starts it.

#include <string>
#include <vector>

namespace tulle::cli {

// Replaces this process by the simulator, whose arguments these are. Returns an exit status only if
// that fails: not_found_status if the simulator is not installed.
int become_simulator(const std::vector<std::string>& arguments);

}  // namespace tulle::cli

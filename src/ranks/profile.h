#pragma once

// A machine's measured times as a profile of servers, which simulations read.

#include <string>

#include "ranks/calibration.h"

namespace tulle::ranks {

// Returns the profile in TOML, with the measured times of all sizes in comments. It names this
// machine and the time of now.
std::string profile_of(const Calibration& calibration);

}  // namespace tulle::ranks

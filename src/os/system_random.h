#pragma once

#include <cstdint>

namespace tulle {

// Returns a number of the system's generator (getrandom(2)), which nobody can predict from other
// such numbers. It costs a system call.
std::uint64_t system_random();

}  // namespace tulle

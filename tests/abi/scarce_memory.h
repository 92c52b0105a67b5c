#pragma once

// Replaces operator new for the whole program and its libraries, so that a test chooses which
// allocation fails.

#include <cstdint>

namespace tulle::scarce_memory {

enum class Mode : std::uint8_t { one_fails, all_fail };
enum class Threads : std::uint8_t { this_one, all };

// The n-th allocation from now fails, and with Mode::all_fail each one after it too, until
// is_plenty() is called.
void fail_at(std::uint64_t n, Mode mode, Threads threads = Threads::this_one);
// Ends the scarcity. Returns true if an allocation failed.
bool is_plenty();

// The number of allocations that were not freed.
std::int64_t allocations();

}  // namespace tulle::scarce_memory

#pragma once

// Checks whether the values that several requesters saw of one 64-bit word are possible: each
// operation takes effect once, one after the other, each between its post and its completion
// (linearizability, Herlihy and Wing 1990).

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace tulle::scenarios {

struct AtomicEntry {
  Time posted;
  Time completed = Time::never();  // never if it failed; it may or may not have been executed
  std::uint64_t original = 0;      // value that it returned
  std::uint64_t compare = 0;       // of a compare-and-swap
  std::uint64_t operand = 0;       // value that it adds, or swaps in (then unique in the history)

  bool known() const { return !completed.is_never(); }
};

// Both return an empty string if the history is possible, and otherwise the reason why not.
// Additions must not wrap.
std::string check_additions(std::uint64_t initial, std::uint64_t final,
                            const std::vector<AtomicEntry>& entries);
std::string check_swaps(std::uint64_t initial, std::uint64_t final,
                        const std::vector<AtomicEntry>& entries);

}  // namespace tulle::scenarios

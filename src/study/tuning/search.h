#pragma once

// Searches the unit cube for the place with the least score, where each score costs a simulation
// and has no gradient.
//
// The first half of the budget is spread over the whole cube: a Latin hypercube (McKay, Beckman and
// Conover 1979), all of whose places may be scored at the same time. The other half goes downhill
// from the best of them: subplex (Rowan 1990), NLopt's LN_SBPLX, which takes steps and noise.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tulle::tuning {

using Place = std::vector<double>;

// Returns the places' scores. A place that cannot be scored has infinity.
using Scores = std::function<std::vector<double>(std::span<const Place> places)>;

struct SearchSettings {
  std::size_t dimensions = 1;  // at least 1
  std::size_t budget = 100;    // places to score, at least 1
  std::uint64_t seed = 1;      // of the first half
};

struct Found {
  Place place;  // empty: none had a score
  double score = 0;
  std::size_t scored = 0;  // places that were scored
};

// Returns the best place. The result depends on the settings and the scores alone. `goes_on` is
// asked before each score; if it returns false, the search ends with what it has.
Found search(const SearchSettings& settings, const Scores& scores,
             const std::function<bool()>& goes_on);

}  // namespace tulle::tuning

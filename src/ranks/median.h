#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tulle::ranks {

// Returns the median of at least one value; of an even number, the mean of the two in the middle.
inline double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace tulle::ranks

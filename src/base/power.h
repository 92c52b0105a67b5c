#pragma once

#include <cstdint>

namespace tulle {

// By squaring: the same bits on every machine, which the C library's pow() does not promise.
constexpr double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if ((exponent & 1) != 0) result *= base;
  }
  return result;
}

}  // namespace tulle

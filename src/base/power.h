#pragma once

#include <cstdint>

namespace tulle {

// Multiplies by squaring, which gives the same bits on every machine. The C library's pow() does
// not promise that.
constexpr double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if ((exponent & 1) != 0) result *= base;
  }
  return result;
}

}  // namespace tulle

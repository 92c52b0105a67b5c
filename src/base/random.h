#pragma once

#include <cstdint>

namespace tulle {

// A seeded stream of random numbers (SplitMix64, Steele et al. 2014), the same on every machine and
// library.
class Random {
 public:
  constexpr explicit Random(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E37'79B9'7F4A'7C15);
    z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9;
    z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EB;
    return z ^ (z >> 31);
  }
  // Returns a uniform number in [0, bound); bound > 0. The bias of a 64-bit multiply, below 2^-32,
  // is accepted.
  constexpr std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  // Returns a uniform number in [0, 1).
  constexpr double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  constexpr bool chance(double probability) { return unit() < probability; }
  // Draws from the exponential distribution with mean 1 by von Neumann's method of falling runs
  // (1951). The method compares and never takes a logarithm, on whose last bit two libraries need
  // not agree.
  constexpr double exponential() {
    for (double whole = 0;; ++whole) {
      const double first = unit();
      bool odd = true;  // true if the run so far has an odd length
      for (double last = first;; odd = !odd) {
        const double value = unit();
        if (value > last) break;
        last = value;
      }
      if (odd) return whole + first;
    }
  }

 private:
  __extension__ using Wide = unsigned __int128;
  std::uint64_t state_;
};

}  // namespace tulle

#pragma once

#include <cstdint>

#include "base/random.h"

namespace tulle {

// Secrets come from a random source: keys, communication IDs. In a simulation and in tests this is
// a seeded stream, the same on every run. A live process gives a function that returns numbers of
// the system's generator, because the next numbers of a seeded stream follow from the last ones.
class RandomSource {
 public:
  using Draw = std::uint64_t (*)();

  constexpr RandomSource() : seeded_(0) {}
  constexpr explicit RandomSource(std::uint64_t seed) : seeded_(seed) {}
  constexpr explicit RandomSource(Draw draw) : seeded_(0), draw_(draw) {}

  constexpr std::uint64_t next() { return draw_ != nullptr ? draw_() : seeded_.next(); }

 private:
  Random seeded_;
  Draw draw_ = nullptr;
};

}  // namespace tulle

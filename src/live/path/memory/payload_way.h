#pragma once

// Decides how the payloads of long messages shall come from a peer: through the ring, which costs
// each side a copy, or from the peer's memory, which costs the reader a copy and a system call.
// Which of the two is faster depends on how the two processors share caches. So the reader measures
// what a byte costs it, and tries the other way now and then.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace tulle::live {

class PayloadWay {
 public:
  enum class Way : std::uint8_t { ring, memory };
  // The other way is tried with so many bytes, each time so many have come by the better one.
  static constexpr std::uint64_t trial_bytes = 512 << 10;
  static constexpr std::uint64_t period_bytes = 32 << 20;

  // Returns the way by which the next payloads shall come. The ring is the first.
  Way wanted() const { return wanted_; }
  // Must be called when some payloads have come by a way, with the time that it took to handle
  // them.
  void note(Way way, std::size_t bytes, Time took) {
    Cost& cost = cost_of(way);
    const double sample =
        static_cast<double>(took.to_nanoseconds()) / static_cast<double>(std::max<std::size_t>(bytes, 1));
    // A thread that lost its processor took long for another reason.
    cost.per_byte = cost.is_known
                        ? cost.per_byte + (std::min(sample, 2 * cost.per_byte) - cost.per_byte) / 8
                        : sample;
    cost.is_known = true;
    if (way != wanted_) return;
    came_ += bytes;
    const bool is_short = is_trying_ || is_first_;
    if (came_ < (is_short ? trial_bytes : period_bytes)) return;
    came_ = 0;
    is_first_ = false;
    if (is_trying_) {
      choose();
    } else {
      wanted_ = other(wanted_);
      cost_of(wanted_).is_known = false;
    }
    is_trying_ = !is_trying_;
  }

 private:
  struct Cost {
    double per_byte = 0;  // nanoseconds
    bool is_known = false;
  };
  // A way that is hardly better is not worth the change.
  static constexpr double worth_it = 0.95;

  static Way other(Way way) { return way == Way::ring ? Way::memory : Way::ring; }
  Cost& cost_of(Way way) { return costs_[static_cast<std::size_t>(way)]; }
  // Ends a trial.
  void choose() {
    const Way before = other(wanted_);
    if (cost_of(wanted_).per_byte > worth_it * cost_of(before).per_byte) wanted_ = before;
  }

  Way wanted_ = Way::ring;
  bool is_trying_ = false;
  bool is_first_ = true;     // the first trial comes early
  std::uint64_t came_ = 0;   // bytes by the wanted way, since it was chosen
  std::array<Cost, 2> costs_{};
};

}  // namespace tulle::live

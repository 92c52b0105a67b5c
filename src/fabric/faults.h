#pragma once

// What a bad network does to one datagram, drawn from a seed: it may lose it, deliver it twice,
// hold it up so that others overtake it, or damage its bytes. It draws; who carries the datagram
// acts on it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/random.h"
#include "base/time.h"

namespace tulle::fabric {

// Probabilities, in [0, 1], each drawn for every datagram.
struct FaultSettings {
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;
  double corrupt = 0;
  Time delay;                                   // of every datagram
  Time reorder_delay = Time::microseconds(50);  // one that is overtaken is held up for at most this
  std::uint64_t seed = 1;

  bool any() const {
    return drop > 0 || duplicate > 0 || reorder > 0 || corrupt > 0 || delay > Time::zero();
  }
};

// Reads "drop=0.01,duplicate=0.01,reorder=1%,corrupt=0.01,delay=100us,reorder_delay=50us,seed=7",
// any of them in any order. Times in ns, us, ms or s. The string: one line that says what is wrong.
std::variant<FaultSettings, std::string> parse_faults(std::string_view text);

struct FaultCounters {
  std::uint64_t dropped = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t corrupted = 0;
};

class Faults {
 public:
  explicit Faults(const FaultSettings& settings) : settings_(settings), random_(settings.seed) {}

  // One copy that is to arrive.
  struct Copy {
    Time held_up;
    bool damaged = false;
  };
  struct Copies {
    std::array<Copy, 2> copies;
    std::size_t count = 0;
  };
  Copies draw();

  // Damages bytes as a faulty buffer or cable would: single bits, a burst, or a cut-off end.
  // Returns how many bytes are left, at most bytes.size().
  std::size_t damage(std::span<std::byte> bytes);

  const FaultSettings& settings() const { return settings_; }
  const FaultCounters& counters() const { return counters_; }

 private:
  FaultSettings settings_;
  Random random_;
  FaultCounters counters_;
};

}  // namespace tulle::fabric

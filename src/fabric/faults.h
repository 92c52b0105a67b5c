#pragma once

// Faults that a bad network inflicts on one datagram, drawn from a seed. A datagram may be lost,
// delivered twice, delayed so that others overtake it, or damaged. This class only draws; the code
// that carries the datagram acts on the result.

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

// Probabilities in [0, 1]. Each is drawn for every datagram.
struct FaultSettings {
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;
  double corrupt = 0;
  Time delay;                                   // of every datagram
  Time reorder_delay = Time::microseconds(50);  // longest extra delay of a reordered datagram
  std::uint64_t seed = 1;

  bool any() const {
    return drop > 0 || duplicate > 0 || reorder > 0 || corrupt > 0 || delay > Time::zero();
  }
};

// Reads "drop=0.01,duplicate=0.01,reorder=1%,corrupt=0.01,delay=100us,reorder_delay=50us,seed=7".
// Every entry is optional and the order is free. Times are in ns, us, ms or s. Returns the
// settings, or one line that says what is wrong.
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

  // One copy of the datagram that must arrive.
  struct Copy {
    Time held_up;
    bool damaged = false;
  };
  struct Copies {
    std::array<Copy, 2> copies;
    std::size_t count = 0;
  };
  Copies draw();

  // Damages bytes as a faulty buffer or cable does: single bits, a burst, or a cut-off end. Returns
  // how many bytes are left, at most bytes.size().
  std::size_t damage(std::span<std::byte> bytes);

  const FaultSettings& settings() const { return settings_; }
  const FaultCounters& counters() const { return counters_; }

 private:
  FaultSettings settings_;
  Random random_;
  FaultCounters counters_;
};

}  // namespace tulle::fabric

#pragma once

// Decides how the payloads of long messages shall come from a peer: through the ring, which costs
// each side a copy, or from the peer's memory, which costs the reader a copy and a system call.
// Which of the two is faster depends on how the two processors share caches. So the reader measures
// how long messages take from their first packet to their last, and tries the other way now and
// then.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace tulle::live {

class PayloadWay {
 public:
  enum class Way : std::uint8_t { ring, memory };
  // A trial of a way has at least so many messages with so many bytes.
  static constexpr std::uint32_t trial_messages = 4;
  static constexpr std::uint64_t trial_bytes = 2 << 20;
  // Between two trials, so many times as many come by the better way.
  static constexpr std::uint32_t trial_share = 32;

  // Returns the way by which the next payloads shall come. The ring is the first.
  Way wanted() const { return wanted_; }
  // Must be called when a message has come by a way, with the time that it took.
  void note(Way way, std::size_t bytes, Time took) {
    if (way != wanted_) return;  // it was under way when the other way was chosen
    came_ += bytes;
    if (++messages_ > 1) sample(cost_of(way), bytes, took);
    const std::uint32_t times = is_trying_ || is_first_ ? 1 : trial_share;
    if (came_ < times * trial_bytes || messages_ < times * trial_messages) return;
    came_ = 0;
    messages_ = 0;
    is_first_ = false;
    if (is_trying_) {
      choose();
    } else {
      wanted_ = other(wanted_);
      cost_of(wanted_).is_known = false;
    }
    is_trying_ = !is_trying_;
  }

  // Must be called when a payload could not be read from the peer's memory. The next ones come
  // through the ring, until the next trial.
  void note_refusal() {
    wanted_ = Way::ring;
    is_trying_ = is_first_ = false;
    came_ = 0;
    messages_ = 0;
  }

 private:
  struct Cost {
    double per_byte = 0;  // nanoseconds
    bool is_known = false;
  };
  // A way that is hardly better is not worth the change.
  static constexpr double worth_it = 0.95;

  static void sample(Cost& cost, std::size_t bytes, Time took) {
    const double found = static_cast<double>(took.to_nanoseconds()) / static_cast<double>(bytes);
    // A thread that lost its processor took long for another reason.
    cost.per_byte = cost.is_known
                        ? cost.per_byte + (std::min(found, 2 * cost.per_byte) - cost.per_byte) / 8
                        : found;
    cost.is_known = true;
  }
  static Way other(Way way) { return way == Way::ring ? Way::memory : Way::ring; }
  Cost& cost_of(Way way) { return costs_[static_cast<std::size_t>(way)]; }
  // Ends a trial.
  void choose() {
    const Way before = other(wanted_);
    if (cost_of(wanted_).per_byte > worth_it * cost_of(before).per_byte) wanted_ = before;
  }

  Way wanted_ = Way::ring;
  bool is_trying_ = false;
  bool is_first_ = true;    // the first trial comes early
  std::uint64_t came_ = 0;  // bytes by the wanted way, since it was chosen
  std::uint32_t messages_ = 0;
  std::array<Cost, 2> costs_{};
};

}  // namespace tulle::live

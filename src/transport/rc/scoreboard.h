#pragma once

// What the sender of a selective repeat knows of its packets in flight (IRN 3.1): which of them
// have arrived beyond the cumulative acknowledgement, and which are to be sent again.
//
// A packet is sent again once in a recovery. Where that is lost too, only the time-out helps, as in
// IRN. After a time-out nothing may be known of what lies behind the first packet; then each
// acknowledgement that does not end the recovery shows the next one that is missing (RFC 6582, a
// partial acknowledgement), so that the loss of a message's end costs one time-out and not several.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace tulle::transport::rc {

class Scoreboard {
 public:
  // For as many packets in flight, the next of which is `first`.
  Scoreboard(std::uint32_t packets, std::uint32_t reordering_packets, Psn first)
      : words_(std::bit_ceil(packets / 64 + 1)),
        reordering_(static_cast<std::int32_t>(reordering_packets)),
        unacknowledged_(first),
        arrived_end_(first),
        next_(first) {}

  // `psns` packets from `first` on have arrived, one before them has not.
  void arrived(Psn first, std::uint32_t psns);
  // All before `psn` have.
  void acknowledged(Psn psn);

  // Begins a recovery, if enough has arrived behind the first packet and that was sent, as those
  // before `sent` were. `sent_end`: after the last packet ever sent, whose acknowledgement ends it.
  bool begin(Psn sent, Psn sent_end);
  void timed_out(Psn sent_end);
  // All is sent again anyway.
  void abandon() { recovering_ = false; }

  // The next packet to send again, of those before `sent`.
  std::optional<Psn> lost(Psn sent) const;
  // The packets before `psn` have been.
  void sent_again(Psn psn) { next_ = psn; }

 private:
  std::uint32_t capacity() const { return static_cast<std::uint32_t>(words_.size()) * 64; }
  std::uint64_t& word(Psn psn) { return words_[psn.value() / 64 % words_.size()]; }
  bool has_arrived(Psn psn) const {
    return (words_[psn.value() / 64 % words_.size()] >> psn.value() % 64 & 1) != 0;
  }

  std::vector<std::uint64_t> words_;  // a bit for each packet, by its PSN
  std::int32_t reordering_;
  Psn unacknowledged_;
  Psn arrived_end_;   // after the last that has arrived
  Psn recovery_end_;  // IRN's recovery sequence, and one
  Psn next_;          // what lies before it has been sent again
  bool recovering_ = false;
  bool after_timeout_ = false;
  bool first_is_lost_ = false;  // whatever has arrived behind it
};

inline void Scoreboard::arrived(Psn first, std::uint32_t psns) {
  const std::int32_t at = first.distance_from(unacknowledged_);
  if (at < 0 || at + std::int64_t{psns} > capacity()) return;
  for (Psn psn = first; psn != first + psns; ++psn) {
    word(psn) |= std::uint64_t{1} << psn.value() % 64;
  }
  if ((first + psns).after(arrived_end_)) arrived_end_ = first + psns;
}

inline void Scoreboard::acknowledged(Psn psn) {
  if (!psn.after(unacknowledged_)) return;
  const auto psns = static_cast<std::uint32_t>(psn.distance_from(unacknowledged_));
  for (std::uint32_t i = 0; i < std::min(psns, capacity()); ++i) {
    const Psn passed = unacknowledged_ + i;
    word(passed) &= ~(std::uint64_t{1} << passed.value() % 64);
  }
  unacknowledged_ = psn;
  if (arrived_end_.before(psn)) arrived_end_ = psn;
  if (next_.before(psn)) next_ = psn;
  if (!psn.before(recovery_end_)) recovering_ = false;
  first_is_lost_ = recovering_ && after_timeout_;
}

inline bool Scoreboard::begin(Psn sent, Psn sent_end) {
  const bool enough = arrived_end_.distance_from(unacknowledged_) > reordering_;
  if (recovering_ || !enough || !unacknowledged_.before(sent)) return false;
  recovering_ = true;
  after_timeout_ = first_is_lost_ = false;
  recovery_end_ = sent_end;
  next_ = unacknowledged_;
  return true;
}

inline void Scoreboard::timed_out(Psn sent_end) {
  recovering_ = after_timeout_ = first_is_lost_ = true;
  recovery_end_ = sent_end;
  next_ = unacknowledged_;
}

inline std::optional<Psn> Scoreboard::lost(Psn sent) const {
  if (!recovering_) return {};
  // Also where it has arrived: of a READ or an atomic it is the answer that is missing.
  if (first_is_lost_ && next_ == unacknowledged_ && next_.before(sent)) return next_;
  Psn psn = next_;
  while (psn.before(arrived_end_) && has_arrived(psn)) ++psn;
  if (!psn.before(sent)) return {};
  const bool overtaken = arrived_end_.distance_from(psn) > reordering_;
  return overtaken ? std::optional(psn) : std::nullopt;
}

}  // namespace tulle::transport::rc

#pragma once

// The scoreboard of a requester with selective repeat (IRN 3.1). It records which packets in flight
// have arrived beyond the cumulative acknowledgement, and which must be sent again.
//
// A packet is sent again once in a recovery. If the second copy is lost too, only the time-out
// helps, as in IRN. After a time-out, nothing may be known of the packets behind the first one.
// Each acknowledgement that does not end the recovery then shows the next missing packet (RFC 6582,
// a partial acknowledgement), so that the loss of a message's end costs one time-out, not several.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace tulle::transport::rc {

class Scoreboard {
 public:
  // At most `packets` may be in flight, and the next one to send is `first`.
  Scoreboard(std::uint32_t packets, std::uint32_t reordering_packets, Psn first)
      : words_(std::bit_ceil(packets / 64 + 1)),
        reordering_(static_cast<std::int32_t>(reordering_packets)),
        unacknowledged_(first),
        arrived_end_(first),
        next_(first) {}

  // `psns` packets from `first` on have arrived, but an earlier packet has not.
  void arrived(Psn first, std::uint32_t psns);
  // All packets before `psn` have arrived.
  void acknowledged(Psn psn);

  // Begins a recovery if enough packets have arrived behind the oldest unacknowledged one, and if
  // that one is before `sent`, the end of what was sent. `sent_end` is the PSN behind the last
  // packet ever sent, whose acknowledgement ends the recovery. Returns false if none began.
  bool begin(Psn sent, Psn sent_end);
  void timed_out(Psn sent_end);
  // The requester goes back and sends everything again.
  void abandon() { recovering_ = false; }

  // Returns the next packet before `sent` that must be sent again.
  std::optional<Psn> lost(Psn sent) const;
  // The lost packets before `psn` have been sent again.
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
  Psn arrived_end_;   // PSN behind the last packet that has arrived
  Psn recovery_end_;  // IRN's recovery sequence plus one
  Psn next_;          // lost packets before this one have been sent again
  bool recovering_ = false;
  bool after_timeout_ = false;
  bool first_is_lost_ = false;  // unacknowledged_ counts as lost, whatever has arrived
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
  // The packet may even have arrived: for a READ or an atomic, the answer may be missing.
  if (first_is_lost_ && next_ == unacknowledged_ && next_.before(sent)) return next_;
  Psn psn = next_;
  while (psn.before(arrived_end_) && has_arrived(psn)) ++psn;
  if (!psn.before(sent)) return {};
  const bool overtaken = arrived_end_.distance_from(psn) > reordering_;
  return overtaken ? std::optional(psn) : std::nullopt;
}

}  // namespace tulle::transport::rc

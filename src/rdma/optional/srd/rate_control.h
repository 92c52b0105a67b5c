#pragma once

// The rate at which one adapter sends to another over all paths together, and a bound on the bytes
// in flight. The paper describes it in words: the rate follows the rate of the acknowledgements.
// There is congestion when round trips grow on most paths, or when less arrives than is sent.
// Trouble on a single path is left to the choice of paths (paths.h). The paper's formulas are not
// published; the ones here are Tulle's (docs/decisions/009-scalable-reliable-datagram.md).

#include <cstdint>

#include "base/time.h"
#include "rdma/transport/srd_settings.h"

namespace tulle::transport::srd {

class RateControl {
 public:
  explicit RateControl(const Settings& settings)
      : settings_(&settings), bits_per_second_(settings.line_bits_per_second) {}

  // All byte counts are of frames, including headers.
  bool may_send(Time now, std::uint64_t in_flight_bytes, std::uint32_t frame_bytes);
  void sent(Time now, std::uint32_t frame_bytes);
  // A packet was acknowledged. `round_trip` is zero if it is not known.
  void acknowledged(Time now, Time sent_at, Time round_trip, std::uint32_t frame_bytes);
  void lost() { ++lost_; }
  // No answer has come for a whole time-out.
  void silent(Time now);

  // Returns the time until which the rate forbids sending although the window has room, or never if
  // the rate does not forbid it.
  Time next_deadline() const { return paced_ ? may_send_at_ : Time::never(); }
  void handle_deadline(Time now) {
    if (now >= may_send_at_) paced_ = false;
  }
  std::int64_t bits_per_second() const { return bits_per_second_; }
  std::uint64_t window_bytes(std::uint32_t frame_bytes) const;
  Time shortest_round_trip() const { return shortest_; }
  // Returns the longest of the recent round trips.
  Time longest_round_trip() const {
    return longest_ > longest_before_ ? longest_ : longest_before_;
  }
  bool has_measured() const { return shortest_ > Time::zero(); }
  void rebase(Time by) {
    tulle::rebase(by, may_send_at_, last_answer_at_, period_ends_, longest_ends_, round_begins_,
                  counted_from_);
  }

 private:
  Time target() const;
  void measure(Time now, Time round_trip);
  void begin_round(Time now);
  void end_round(Time now);
  void decrease(Time now, std::int64_t arriving_bits_per_second);
  void increase();

  const Settings* settings_;
  std::int64_t bits_per_second_;
  std::uint64_t starting_bytes_ = 0;  // bound on the bytes in flight during the start; 0: not known
  bool starting_ = true;
  bool limited_ = false;  // in this round the rate or the window limited the sender
  bool paced_ = false;
  bool settling_ = true;  // until packets sent at the start, or after a decrease, are answered
  Time may_send_at_ = Time::zero();
  Time last_answer_at_ = Time::zero();
  Time shortest_ = Time::zero();  // shortest round trip; zero: none was measured yet
  Time shortest_of_period_ = Time::zero();
  Time period_ends_ = Time::zero();
  Time longest_ = Time::zero(), longest_before_ = Time::zero();  // of this interval and the last
  Time longest_ends_ = Time::zero();
  // The members below count within the present round.
  Time round_begins_ = Time::zero();
  Time counted_from_ = Time::zero();  // packets sent earlier say nothing about the present rate
  std::uint64_t arrived_bytes_ = 0;
  std::int64_t round_trips_ps_ = 0;  // sum of the samples
  std::uint32_t samples_ = 0;
  std::uint32_t late_ = 0;  // samples with more queueing delay than the target
  std::uint32_t lost_ = 0;
  std::uint32_t arrived_ = 0;
  std::uint32_t good_rounds_ = 0;
};

}  // namespace tulle::transport::srd

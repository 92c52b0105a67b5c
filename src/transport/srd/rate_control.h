#pragma once

// How fast one adapter sends to another, over all paths together: a rate and a bound on what is in
// flight. The paper describes it so: the rate follows the one that acknowledgements come at; there
// is congestion when round trips grow on most paths, or when what arrives is less than what is
// sent; what is wrong with a single path is the business of the choice of paths. Its formulas are
// not published: those here are ours (docs/decisions/009-scalable-reliable-datagram.md).

#include <cstdint>

#include "base/time.h"
#include "transport/srd/settings.h"

namespace tulle::transport::srd {

class RateControl {
 public:
  explicit RateControl(const Settings& settings)
      : settings_(&settings), bits_per_second_(settings.line_bits_per_second) {}

  // Bytes are those of frames, headers included.
  bool may_send(Time now, std::uint64_t in_flight_bytes, std::uint32_t frame_bytes);
  void sent(Time now, std::uint32_t frame_bytes);
  // A packet's acknowledgement has come; `round_trip` zero where it says nothing about that.
  void acknowledged(Time now, Time sent_at, Time round_trip, std::uint32_t frame_bytes);
  void lost() { ++lost_; }
  // Nothing has come back for a whole time-out.
  void silent(Time now);

  // Until then it may not send, though less is in flight than may be; never: it may.
  Time next_deadline() const { return paced_ ? may_send_at_ : Time::never(); }
  void handle_deadline(Time now) {
    if (now >= may_send_at_) paced_ = false;
  }
  std::int64_t bits_per_second() const { return bits_per_second_; }
  std::uint64_t window_bytes(std::uint32_t frame_bytes) const;
  Time shortest_round_trip() const { return shortest_; }
  // The longest of late.
  Time longest_round_trip() const {
    return longest_ > longest_before_ ? longest_ : longest_before_;
  }
  bool has_measured() const { return shortest_ > Time::zero(); }

 private:
  Time target() const;
  void measure(Time now, Time round_trip);
  void begin_round(Time now);
  void end_round(Time now);
  void decrease(Time now, std::int64_t arriving_bits_per_second);
  void increase();

  const Settings* settings_;
  std::int64_t bits_per_second_;
  std::uint64_t starting_bytes_ = 0;  // in flight at most while it starts; 0: not yet known
  bool starting_ = true;
  bool limited_ = false;  // in this round something waited for it
  bool paced_ = false;
  bool settling_ = true;  // until what was sent at the start, or after a decrease, comes back
  Time may_send_at_ = Time::zero();
  Time last_answer_at_ = Time::zero();
  Time shortest_ = Time::zero();  // round trip; zero: none yet
  Time shortest_of_period_ = Time::zero();
  Time period_ends_ = Time::zero();
  Time longest_ = Time::zero(), longest_before_ = Time::zero();  // of this time and the one before
  Time longest_ends_ = Time::zero();
  // Of the present round.
  Time round_begins_ = Time::zero();
  Time counted_from_ = Time::zero();  // what was sent before says nothing about the present rate
  std::uint64_t arrived_bytes_ = 0;
  std::int64_t round_trips_ps_ = 0;  // their sum
  std::uint32_t samples_ = 0;
  std::uint32_t late_ = 0;  // of these, those above the target
  std::uint32_t lost_ = 0;
  std::uint32_t arrived_ = 0;
  std::uint32_t good_rounds_ = 0;
};

}  // namespace tulle::transport::srd

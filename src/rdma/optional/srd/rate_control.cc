#include "rdma/optional/srd/rate_control.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tulle::transport::srd {
namespace {

constexpr double bits_ps_per_byte = 8e12;
// A round without congestion adds this part of a packet to what is in flight. After
// rounds_before_hyper such rounds in a row, each round adds twice as much as the one before (as in
// TIMELY's hyperactive increase: Mittal et al., SIGCOMM 2015, 4.3).
constexpr double additive_packets = 0.125;
constexpr std::uint32_t rounds_before_hyper = 8;
constexpr std::uint32_t doublings_max = 10;
// The target grows at most by this multiple of itself, for a sender that shares with many others.
constexpr double sharing_most = 4;
// The part of the queue that a decrease empties within a round trip.
constexpr double drain = 0.5;
// Losses count as congestion if a round has at least lost_least of them, and more than one for
// every lost_share packets that arrived. Bit errors cost fewer.
constexpr std::uint32_t lost_share = 8;
constexpr std::uint32_t lost_least = 4;
constexpr std::int64_t least_bits_per_second = 10'000'000;
// After this many round trips without sending, the measured rate is out of date.
constexpr std::int64_t idle_round_trips = 16;
// The longest recent round trip is that of the present interval of this many round trips, and of
// the interval before it.
constexpr std::int64_t longest_round_trips = 16;
// The shortest round trip is measured again in each period, since routes change.
constexpr Time period = Time::seconds(1);
constexpr std::uint32_t usual_frame_bytes = 4'096;

}  // namespace

Time RateControl::target() const {
  const Time usual = settings_->target_delay > Time::zero() ? settings_->target_delay : shortest_;
  // A sender that shares a queue with many others may accept a longer one, since each of them has a
  // packet in it (as in Swift's flow scaling: Kumar et al., SIGCOMM 2020).
  const double packets = static_cast<double>(bits_per_second_) * static_cast<double>(shortest_.ps) /
                         bits_ps_per_byte / usual_frame_bytes;
  const double more = std::min(1 / std::sqrt(packets), sharing_most);
  return usual + Time{static_cast<std::int64_t>(static_cast<double>(usual.ps) * more)};
}

std::uint64_t RateControl::window_bytes(std::uint32_t frame_bytes) const {
  if (starting_) {
    return std::max<std::uint64_t>(starting_bytes_,
                                   std::uint64_t{settings_->initial_packets} * frame_bytes);
  }
  const double window = static_cast<double>(bits_per_second_) *
                        static_cast<double>((shortest_ + target()).ps) / bits_ps_per_byte;
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(window), frame_bytes);
}

bool RateControl::may_send(Time now, std::uint64_t in_flight_bytes, std::uint32_t frame_bytes) {
  if (in_flight_bytes == 0 && has_measured() &&
      now > std::max(may_send_at_, last_answer_at_) + shortest_ * idle_round_trips) {
    starting_ = true;
    starting_bytes_ = 0;
    bits_per_second_ = settings_->line_bits_per_second;
    settling_ = true;
    begin_round(now);
  }
  // Measurements from a time without packets to send say nothing about the network.
  if (in_flight_bytes == 0 && !settling_ &&
      now > std::max(may_send_at_, last_answer_at_) + Time{shortest_.ps / 2}) {
    settling_ = true;
    begin_round(now);
  }
  paced_ = false;
  if (in_flight_bytes > 0 && in_flight_bytes + frame_bytes > window_bytes(frame_bytes)) {
    limited_ = true;
    return false;
  }
  if (now < may_send_at_) {
    limited_ = paced_ = true;
    return false;
  }
  return true;
}

void RateControl::sent(Time now, std::uint32_t frame_bytes) {
  if (bits_per_second_ >= settings_->line_bits_per_second) {
    limited_ = true;
    return;
  }
  may_send_at_ = now + Time{static_cast<std::int64_t>(frame_bytes * bits_ps_per_byte /
                                                      static_cast<double>(bits_per_second_))};
}

void RateControl::measure(Time now, Time round_trip) {
  if (now >= longest_ends_) {
    longest_before_ = std::exchange(longest_, Time::zero());
    longest_ends_ = now + round_trip * longest_round_trips;
  }
  longest_ = std::max(longest_, round_trip);
  if (!has_measured() || round_trip < shortest_) shortest_ = round_trip;
  if (shortest_of_period_ == Time::zero() || round_trip < shortest_of_period_) {
    shortest_of_period_ = round_trip;
  }
  if (now < period_ends_) return;
  if (period_ends_ > Time::zero()) shortest_ = shortest_of_period_;
  shortest_of_period_ = Time::zero();
  period_ends_ = now + period;
}

void RateControl::acknowledged(Time now, Time sent_at, Time round_trip, std::uint32_t frame_bytes) {
  if (round_trip > Time::zero()) measure(now, round_trip);
  last_answer_at_ = now;
  arrived_bytes_ += frame_bytes;
  ++arrived_;
  if (round_trip > Time::zero() && sent_at >= counted_from_) {
    ++samples_;
    round_trips_ps_ += round_trip.ps;
    late_ += round_trip > shortest_ + target();
  }
  if (sent_at < round_begins_ || now <= round_begins_) return;
  if (settling_) {
    settling_ = false;
    begin_round(now);
  } else if (samples_ > 0) {
    end_round(now);
  }
}

void RateControl::begin_round(Time now) {
  round_begins_ = now;
  arrived_bytes_ = 0;
  round_trips_ps_ = 0;
  samples_ = late_ = lost_ = arrived_ = 0;
  limited_ = false;
}

void RateControl::end_round(Time now) {
  const auto arriving =
      static_cast<std::int64_t>(static_cast<double>(arrived_bytes_) * bits_ps_per_byte /
                                static_cast<double>((now - round_begins_).ps));
  const bool queues = late_ * 2 > samples_;
  const bool losses = lost_ >= lost_least && lost_ * lost_share > arrived_;
  if (queues || losses) {
    decrease(now, arriving);
  } else if (limited_ && (starting_ || arriving > bits_per_second_ / 2)) {
    increase();
  }
  begin_round(now);
}

void RateControl::decrease(Time now, std::int64_t arriving) {
  const double mean = static_cast<double>(round_trips_ps_) / samples_;
  const double excess =
      std::max(0.0, (mean - static_cast<double>((shortest_ + target()).ps)) / mean);
  const bool arrives_less = starting_ || arriving < bits_per_second_ / 2;
  const auto rate =
      static_cast<double>(arrives_less ? std::min(bits_per_second_, arriving) : bits_per_second_);
  bits_per_second_ =
      std::max(static_cast<std::int64_t>(rate * (1 - drain * excess)), least_bits_per_second);
  starting_ = false;
  good_rounds_ = 0;
  settling_ = true;
  counted_from_ = now;
}

void RateControl::increase() {
  if (starting_) {
    const std::uint64_t bytes = 2 * window_bytes(usual_frame_bytes);
    starting_bytes_ = bytes;
    const double enough = static_cast<double>(settings_->line_bits_per_second) *
                          static_cast<double>((shortest_ + target()).ps) / bits_ps_per_byte;
    if (static_cast<double>(bytes) >= enough) starting_ = false;
    return;
  }
  const std::uint32_t doublings =
      good_rounds_ < rounds_before_hyper
          ? 0
          : std::min(good_rounds_ - rounds_before_hyper + 1, doublings_max);
  ++good_rounds_;
  const double step = additive_packets * (1u << doublings) * usual_frame_bytes * bits_ps_per_byte /
                      static_cast<double>(shortest_.ps);
  bits_per_second_ =
      std::min(bits_per_second_ + static_cast<std::int64_t>(step), settings_->line_bits_per_second);
}

void RateControl::silent(Time now) {
  bits_per_second_ = std::max(bits_per_second_ / 2, least_bits_per_second);
  if (has_measured()) starting_ = false;
  good_rounds_ = 0;
  counted_from_ = now;
  settling_ = true;
  begin_round(now);
}

}  // namespace tulle::transport::srd

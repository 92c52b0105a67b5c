// A connection's response to acknowledgements and to their absence: RFC 8985's detection of losses,
// RFC 6298's time-out, and the changes of the window.

#include <algorithm>

#include "rdma/optional/tcp/connection.h"

namespace tulle::transport::tcp {

using State = SentSegment::State;

void Connection::handle_acknowledgement(Time now, const wire::Tcp& header, bool has_payload) {
  const std::int32_t ahead = header.acknowledgement.distance_from(sequence_of(acknowledged_));
  // Such an acknowledgement is older than the last, or acknowledges bytes that were never sent.
  if (ahead < 0 || acknowledged_ + static_cast<std::uint32_t>(ahead) > sent_end_) return;
  const Offset end = acknowledged_ + static_cast<std::uint32_t>(ahead);
  const std::uint64_t was_flying = segments_.flying_bytes();
  // RFC 7661 §4.1 and Linux: a window that was not used does not grow. In slow start it is enough
  // to use half of it.
  const bool limited = congestion_.in_slow_start()
                           ? 2 * was_flying > congestion_.window_bytes()
                           : was_flying + settings_.mss_bytes > congestion_.window_bytes();
  update_window(header, end);
  const std::uint64_t in_order = mark_acknowledged(now, end);
  const std::uint64_t delivered = in_order + mark_selectively(now, header, end);
  if (segments_.empty()) timeouts_in_row_ = 0;  // the peer answers, even if it has no room
  if (delivered > 0) {
    timeouts_in_row_ = 0;
    probed_ = false;
    probe_due_ = false;
  }
  if (in_order > 0 && recovery_ == Recovery::none) {
    congestion_.watch_slow_start(now, round_trip_.least(), end, sent_end_);
  }
  const bool listens = settings_.congestion_control == CongestionControl::dctcp || settings_.ecn;
  if (listens) {
    congestion_.observe(in_order, header.ece, end, sent_end_);
    // RFC 3168 §6.1.2, RFC 8257 §3.3: there is one decrease a window, for marks of what was sent
    // since the last one, and none in addition to that for a loss.
    if (header.ece && recovery_ == Recovery::none && acknowledged_ > cut_end_ &&
        (in_order > 0 || !has_payload)) {
      congestion_.marked();
      cut_end_ = sent_end_;
      cut_told_ = false;
    }
  }
  if (recovery_ != Recovery::none && acknowledged_ >= recovery_end_) recovery_ = Recovery::none;
  detect_losses(now);
  if (recovery_ == Recovery::fast) pace_recovery(delivered);
  if (in_order > 0 && recovery_ != Recovery::fast && acknowledged_ >= cut_end_) {
    congestion_.acknowledged(now, round_trip_.smoothed(), in_order,
                             limited || recovery_ == Recovery::timeout);
  }
  if (delivered > 0 || segments_.empty()) set_timers(now);
}

// RFC 9293 §3.10.7.4 takes the window of the newest segment. The right edge only moves on here, so
// the farthest one is the newest.
void Connection::update_window(const wire::Tcp& header, Offset end) {
  window_end_ = std::max(window_end_, end + (std::uint64_t{header.window} << window_shift_));
}

// Returns the number of bytes that are newly acknowledged in order.
std::uint64_t Connection::mark_acknowledged(Time now, Offset end) {
  const std::uint64_t bytes = end - acknowledged_;
  acknowledged_ = end;
  while (!segments_.empty() && segments_.front().end() <= end) {
    if (segments_.front().state != State::delivered) learn(now, segments_.front());
    segments_.pop();
  }
  return bytes;
}

// RFC 2018: returns the number of bytes that are newly known to have come early.
std::uint64_t Connection::mark_selectively(Time now, const wire::Tcp& header, Offset end) {
  std::uint64_t bytes = 0;
  for (const wire::Tcp::Block& block : header.sack()) {
    const std::int64_t first = block.first.distance_from(sequence_of(end));
    const std::int64_t last = block.end.distance_from(sequence_of(end));
    if (first < 0 || last <= first || end + static_cast<std::uint64_t>(last) > sent_end_) continue;
    const Offset block_first = end + static_cast<std::uint64_t>(first);
    const Offset block_end = end + static_cast<std::uint64_t>(last);
    for (std::uint32_t i = segments_.find(block_first); i < segments_.size(); ++i) {
      const SentSegment& segment = segments_[i];
      if (segment.end() > block_end) break;
      if (segment.offset < block_first || segment.state == State::delivered) continue;
      learn(now, segment);
      bytes += segment.bytes;
      segments_.set(i, State::delivered);
    }
  }
  return bytes;
}

// A segment was delivered: RFC 8985 §6.2 steps 1 to 3, and RFC 6298's sample (Karn: a segment that
// was sent twice gives none).
void Connection::learn(Time now, const SentSegment& segment) {
  const Time round_trip = now - segment.sent_at;
  if (!segment.again) {
    round_trip_.sample(round_trip);
    if (segment.end() < selective_end_) rack_.reordering_seen = true;
  }
  selective_end_ = std::max(selective_end_, segment.end());
  // The delivered segment may be the first transmission, not the second.
  if (segment.again && round_trip < round_trip_.least()) return;
  const bool later = segment.sent_at > rack_.sent_at ||
                     (segment.sent_at == rack_.sent_at && segment.end() > rack_.end);
  if (!later) return;
  rack_.sent_at = segment.sent_at;
  rack_.end = segment.end();
  rack_.round_trip = round_trip;
}

// RFC 8985 §6.2 steps 4 and 5: a segment is lost if it was sent before a delivered one, by more
// than the time that reordering may take.
void Connection::detect_losses(Time now) {
  reordering_at_ = Time::never();
  if (rack_.end == 0 || segments_.empty()) return;
  constexpr std::uint32_t duplicates = 3;  // DupThresh
  const bool at_once = !rack_.reordering_seen &&
                       (recovery_ != Recovery::none || segments_.delivered() >= duplicates);
  const Time tolerance =
      at_once ? Time::zero() : std::min(Time{round_trip_.least().ps / 4}, round_trip_.smoothed());
  bool found = false;
  // Unless retransmissions are under way, all segments were sent in the order of their offsets.
  const bool by_time = acknowledged_ >= again_end_;
  for (std::uint32_t i = 0; i < segments_.size(); ++i) {
    const SentSegment& segment = segments_[i];
    if (segment.state != State::flying) continue;
    const bool before = segment.sent_at < rack_.sent_at ||
                        (segment.sent_at == rack_.sent_at && segment.end() < rack_.end);
    if (!before && by_time) break;
    if (!before) continue;
    const Time lost_at = segment.sent_at + rack_.round_trip + tolerance;
    if (lost_at <= now) {
      segments_.set(i, State::lost);
      found = true;
    } else {
      reordering_at_ = std::min(reordering_at_, lost_at);
    }
  }
  if (found) enter_recovery();
}

void Connection::enter_recovery() {
  probe_at_ = Time::never();
  if (recovery_ != Recovery::none) return;
  recovery_ = Recovery::fast;
  recovery_end_ = sent_end_;
  recovery_flight_ = sent_end_ - acknowledged_;
  recovery_delivered_ = recovery_sent_ = 0;
  send_one_lost_ = true;
  if (acknowledged_ >= cut_end_) {
    congestion_.lost();
    cut_told_ = false;
  }
  ++counters_.fast_recoveries;
}

// RFC 6937 §3.1: as long as more is under way than the window after the recovery, the sender sends
// in proportion to what is delivered, and then no faster than slow start would (PRR-SSRB).
// Otherwise a window that was lost entirely would be sent again in one burst, into the queue that
// has just overflowed.
void Connection::pace_recovery(std::uint64_t delivered) {
  recovery_delivered_ += delivered;
  const std::uint64_t flying = segments_.flying_bytes();
  const std::uint64_t threshold = congestion_.window_bytes();
  std::uint64_t may_send = 0;
  if (flying > threshold && recovery_flight_ > 0) {
    const std::uint64_t share =
        (recovery_delivered_ * threshold + recovery_flight_ - 1) / recovery_flight_;
    may_send = share - std::min(share, recovery_sent_);
  } else {
    const std::uint64_t owed = recovery_delivered_ - std::min(recovery_delivered_, recovery_sent_);
    may_send = std::min(threshold - std::min(threshold, flying),
                        std::max(owed, delivered) + settings_.mss_bytes);
  }
  recovery_window_ = flying + may_send;
}

Time Connection::probe_timeout() const {
  // RFC 8985 §7.2.
  if (!round_trip_.measured()) return Time::seconds(1);
  Time time = round_trip_.smoothed() * 2;
  if (segments_.size() == 1) time += settings_.acknowledgement_delay;
  return time;
}

void Connection::set_timers(Time now) {
  timeout_at_ = probe_at_ = window_probe_at_ = Time::never();
  if (!segments_.empty()) {
    timeout_at_ = now + round_trip_.timeout(settings_, timeouts_in_row_);  // RFC 6298 §5.3
    if (settings_.tail_loss_probe && !probed_ && recovery_ == Recovery::none &&
        segments_.delivered() == 0) {
      probe_at_ = now + probe_timeout();
    }
  } else if (next_bytes() > 0 && sent_end_ + next_bytes() > window_end_) {
    window_probe_at_ = now + round_trip_.timeout(settings_, timeouts_in_row_);
  }
}

Time Connection::next_deadline() const {
  if (failed_) return Time::never();
  return std::min({timeout_at_, probe_at_, reordering_at_, window_probe_at_, keep_alive_at_,
                   receiver_.next_deadline()});
}

void Connection::handle_deadline(Time now) {
  if (failed_) return;
  receiver_.handle_deadline(now);
  if (reordering_at_ <= now) {
    detect_losses(now);
    if (recovery_ == Recovery::fast) pace_recovery(0);
  }
  if (window_probe_at_ <= now) {
    window_probe_due_ = true;
    window_probe_at_ = now + round_trip_.timeout(settings_, ++timeouts_in_row_);
    if (timeouts_in_row_ > settings_.retries_max) failed_ = true;
  }
  if (keep_alive_at_ <= now) {
    keep_alive_at_ = now + settings_.keep_alive;
    // Segments under way ask as well, and their time-outs decide when the connection fails.
    if (segments_.empty() && window_probe_at_.is_never()) {
      window_probe_due_ = true;
      if (++timeouts_in_row_ > settings_.retries_max) failed_ = true;
    }
  }
  if (timeout_at_ <= now) return handle_timeout(now);
  if (probe_at_ <= now) {
    probe_at_ = Time::never();
    probed_ = probe_due_ = true;
    // RFC 8985 §7.3: the time-out restarts.
    timeout_at_ = now + round_trip_.timeout(settings_, timeouts_in_row_);
  }
}

void Connection::expect(Time now, bool something) {
  if (!something || settings_.keep_alive == Time::zero()) {
    keep_alive_at_ = Time::never();
  } else if (keep_alive_at_.is_never()) {
    keep_alive_at_ = now + settings_.keep_alive;
  }
}

// RFC 6298 §5.4 to §5.6, RFC 6675 §5.1: everything that was not delivered is considered lost.
// Receivers here never drop bytes that came early, so these stay delivered.
void Connection::handle_timeout(Time now) {
  ++counters_.ack_timeouts;
  if (++timeouts_in_row_ > settings_.retries_max) {
    failed_ = true;
    return;
  }
  for (std::uint32_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i].state == State::flying) segments_.set(i, State::lost);
  }
  congestion_.timed_out(timeouts_in_row_ > 1);
  recovery_ = Recovery::timeout;
  recovery_end_ = sent_end_;
  send_one_lost_ = false;
  probed_ = true;  // no probe: the time-out is already the last resort
  probe_due_ = false;
  probe_at_ = reordering_at_ = Time::never();
  timeout_at_ = now + round_trip_.timeout(settings_, timeouts_in_row_);
}

}  // namespace tulle::transport::tcp

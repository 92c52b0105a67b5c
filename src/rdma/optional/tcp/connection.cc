// The sending half of a connection. Lost segments are sent first, then a probe, then new data, then
// an acknowledgement. An acknowledgement that no data can carry precedes them all.

#include "rdma/optional/tcp/connection.h"

#include <algorithm>

#include "base/check.h"

namespace tulle::transport::tcp {

namespace {

constexpr std::uint32_t records_max = 1'024;

// RFC 7323 §2.3: the window scale that both ends use, the least by which the window can name the
// whole buffer.
unsigned shift_for(std::uint32_t buffer_bytes) {
  unsigned shift = 0;
  while (shift < 14 && (0xFFFFull << shift) < buffer_bytes) ++shift;
  return shift;
}

}  // namespace

Connection::Connection(Kind kind, const Settings& settings, const Endpoints& ends,
                       Counters& counters)
    : settings_(settings),
      ends_(ends),
      kind_(kind),
      counters_(counters),
      window_end_(settings.receive_buffer_bytes),
      window_shift_(shift_for(settings.receive_buffer_bytes)),
      congestion_(settings_),
      receiver_(settings_) {}

bool Connection::append_record(std::uint32_t bytes, std::uint64_t tag) {
  TULLE_CHECK(kind_ == Kind::records && bytes > 0 && bytes <= settings_.mss_bytes);
  if (records_.size() == records_max) return false;
  records_.push({bytes, tag});
  appended_ += bytes;
  return true;
}

bool Connection::pull_segment(Time now, Segment& out) {
  if (failed_) return false;
  if (receiver_.needs_pure()) return pull_acknowledgement(out);
  if (pull_lost(now, out) || pull_probe(now, out) || pull_new(now, false, out)) return true;
  return receiver_.acknowledgement_due() && pull_acknowledgement(out);
}

bool Connection::has_work() const {
  if (failed_) return false;
  if (receiver_.acknowledgement_due() || probe_due_ || window_probe_due_) return true;
  if (segments_.lost() > 0) {
    return send_one_lost_ || segments_.flying_bytes() == 0 ||
           segments_.flying_bytes() + settings_.mss_bytes <= window();
  }
  return may_send_new(false) || is_to_watch_window();
}

// Returns true if the peer's window is too small, and nothing is under way whose acknowledgement
// could open it. The peer's window update may be lost.
bool Connection::is_to_watch_window() const {
  const std::uint32_t bytes = next_bytes();
  return bytes > 0 && segments_.empty() && sent_end_ + bytes > window_end_ &&
         window_probe_at_.is_never();
}

// RFC 6675 §5: sends a lost segment again as long as the pipe is below the window.
bool Connection::pull_lost(Time now, Segment& out) {
  if (segments_.lost() == 0) return false;
  const std::uint64_t flying = segments_.flying_bytes();
  if (!send_one_lost_ && flying > 0 && flying + settings_.mss_bytes > window()) {
    return false;
  }
  send_one_lost_ = false;
  const std::uint32_t i = segments_.first_lost();
  segments_.set(i, SentSegment::State::flying);
  emit(now, segments_[i], true, out);
  return true;
}

// RFC 8985 §7.3: the probe is new data if there is any, otherwise the last segment again. A probe
// of the window (RFC 9293 §3.8.6.1) has an old sequence number, which the peer answers.
bool Connection::pull_probe(Time now, Segment& out) {
  if (window_probe_due_) {
    window_probe_due_ = false;
    fill_header(out);
    out.header.sequence = sequence_of(acknowledged_ - 1);
    return true;
  }
  if (!probe_due_) return false;
  probe_due_ = false;
  ++counters_.tail_probes;
  if (pull_new(now, true, out)) return true;
  if (segments_.empty()) return false;
  const std::uint32_t last = segments_.size() - 1;
  if (segments_[last].state == SentSegment::State::delivered) return false;
  segments_.set(last, SentSegment::State::flying);
  emit(now, segments_[last], true, out);
  return true;
}

std::uint32_t Connection::next_bytes() const {
  if (kind_ == Kind::records) return records_.empty() ? 0 : records_.front().bytes;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(settings_.mss_bytes, appended_ - sent_end_));
}

// Nagle's algorithm is off (TCP_NODELAY), as message passing and storage set it.
bool Connection::may_send_new(bool beyond_window) const {
  const std::uint32_t bytes = next_bytes();
  if (bytes == 0 || sent_end_ + bytes > window_end_) return false;
  if (more_ && bytes < settings_.mss_bytes) return false;
  const std::uint64_t flying = segments_.flying_bytes();
  return beyond_window || flying == 0 || flying + bytes <= window();
}

bool Connection::pull_new(Time now, bool beyond_window, Segment& out) {
  if (segments_.empty()) restart_if_idle(now);
  if (!may_send_new(beyond_window)) {
    if (is_to_watch_window()) set_timers(now);
    return false;
  }
  SentSegment segment;
  segment.offset = sent_end_;
  segment.bytes = next_bytes();
  if (kind_ == Kind::records) {
    segment.tag = records_.front().tag;
    records_.pop();
  }
  sent_end_ = segment.end();
  segment.push = sent_end_ == appended_ && !more_;
  emit(now, segments_.push(segment), false, out);
  return true;
}

// RFC 5681 §4.1: the window restarts after an idle time.
void Connection::restart_if_idle(Time now) {
  if (!settings_.restart_after_idle || sent_end_ == 0) return;
  if (now - last_sent_ > round_trip_.timeout(settings_, 0)) congestion_.restarted();
}

void Connection::emit(Time now, SentSegment& segment, bool again, Segment& out) {
  segment.sent_at = now;
  segment.again = segment.again || again;
  last_sent_ = now;
  if (recovery_ == Recovery::fast) recovery_sent_ += segment.bytes;
  fill_header(out);
  receiver_.fill(out.header, ends_.peer_first, window_shift_, false);
  out.header.sequence = sequence_of(segment.offset);
  out.header.psh = segment.push;
  out.offset = segment.offset;
  out.bytes = segment.bytes;
  out.tag = segment.tag;
  out.again = again;
  // RFC 3168 §6.1.5: a segment that is sent again is not ECN-capable. RFC 8257 has no such rule,
  // and Linux makes all segments ECN-capable.
  const bool dctcp = settings_.congestion_control == CongestionControl::dctcp;
  out.ecn_capable = dctcp || (settings_.ecn && !again);
  if (!cut_told_ && !again) {
    out.header.cwr = true;
    cut_told_ = true;
  }
  if (again) {
    ++counters_.retransmitted_packets;
    again_end_ = std::max(again_end_, segment.end());
  }
  if (timeout_at_.is_never()) {
    timeout_at_ = now + round_trip_.timeout(settings_, timeouts_in_row_);
  }
  if (!probed_ && recovery_ == Recovery::none && settings_.tail_loss_probe) {
    probe_at_ = now + probe_timeout();
  }
}

bool Connection::pull_acknowledgement(Segment& out) {
  fill_header(out);
  receiver_.fill(out.header, ends_.peer_first, window_shift_, true);
  return true;
}

void Connection::fill_header(Segment& out) {
  out = {};
  out.header.source_port = ends_.local_port;
  out.header.destination_port = ends_.peer_port;
  out.header.sequence = sequence_of(sent_end_);
  out.header.ack = true;
  out.offset = sent_end_;
}

Arrival Connection::handle_segment(Time now, const wire::Tcp& header, std::uint32_t payload_bytes,
                                   bool congestion_experienced) {
  // These connections always exist: no segment sets them up or ends them.
  if (failed_ || header.syn || header.fin || header.rst || !header.ack) {
    ++counters_.dropped_packets;
    return {};
  }
  handle_acknowledgement(now, header, payload_bytes > 0);
  if (!keep_alive_at_.is_never()) keep_alive_at_ = now + settings_.keep_alive;
  const std::uint64_t in_order = receiver_.in_order();
  const wire::TcpSequence expected = ends_.peer_first + static_cast<std::uint32_t>(in_order);
  const std::int64_t offset =
      static_cast<std::int64_t>(in_order) + header.sequence.distance_from(expected);
  const Receiver::Taken taken =
      receiver_.take(now, offset, payload_bytes, header, congestion_experienced);
  if (payload_bytes > 0 && taken.bytes == 0) ++counters_.duplicate_requests;
  return {taken.offset, taken.skip, taken.bytes};
}

}  // namespace tulle::transport::tcp

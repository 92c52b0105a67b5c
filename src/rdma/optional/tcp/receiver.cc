#include "rdma/optional/tcp/receiver.h"

namespace tulle::transport::tcp {

Receiver::Taken Receiver::take(Time now, std::int64_t offset, std::uint32_t bytes,
                               const wire::Tcp& header, bool congestion_experienced) {
  Taken taken;
  if (bytes == 0) {
    // RFC 9293 §3.10.7.4: a segment outside the window is answered, and so is a probe.
    if (offset < static_cast<std::int64_t>(in_order_)) due_ = 1;
    return taken;
  }
  if (settings_.congestion_control == CongestionControl::dctcp) {
    note_mark(congestion_experienced);
  } else if (settings_.ecn) {
    if (header.cwr) marked_ = false;  // RFC 3168 §6.1.3
    if (congestion_experienced) marked_ = true;
  }
  const auto end = static_cast<std::uint64_t>(std::max<std::int64_t>(offset + bytes, 0));
  const auto first =
      std::max(static_cast<std::uint64_t>(std::max<std::int64_t>(offset, 0)), in_order_);
  const std::uint64_t last = std::min(end, room_end());
  if (last <= first) {
    due_ = 1;  // RFC 9293 §3.10.7.4: nothing of it is new, or there is no room
    return taken;
  }
  taken.offset = first;
  taken.skip = static_cast<std::uint32_t>(static_cast<std::int64_t>(first) - offset);
  taken.bytes = static_cast<std::uint32_t>(last - first);
  if (first > in_order_) {
    add_early(first, last);
    due_ = 1;  // RFC 5681 §4.2: acknowledged at once
    return taken;
  }
  in_order_ = last;
  pushed_ = header.psh;
  // RFC 5681 §4.2: a segment that fills a gap, or part of one, is acknowledged at once too.
  const bool gap = !early_.empty();
  if (join_early() || gap) {
    due_ = 1;
    return taken;
  }
  plan(now);
  return taken;
}

void Receiver::plan(Time now) {
  if (settings_.acknowledgement_delay == Time::zero()) {
    due_ = 1;
    return;
  }
  if (quick_ < settings_.quick_acknowledgements) {
    ++quick_;
    due_ = 1;
    return;
  }
  // RFC 9293 §3.8.6.3: at least every second full-sized segment is acknowledged.
  if (in_order_ - told_ >= 2ull * settings_.mss_bytes) {
    due_ = 1;
  } else if (delayed_until_.is_never()) {
    delayed_until_ = now + settings_.acknowledgement_delay;
  }
}

void Receiver::add_early(std::uint64_t first, std::uint64_t end) {
  ++heard_;
  auto at = std::find_if(early_.begin(), early_.end(),
                         [&](const Range& range) { return range.end >= first; });
  if (at == early_.end() || at->first > end) {
    early_.insert(at, {first, end, heard_});
    return;
  }
  at->first = std::min(at->first, first);
  at->end = std::max(at->end, end);
  at->heard = heard_;
  auto next = at + 1;
  for (; next != early_.end() && next->first <= at->end; ++next) {
    at->end = std::max(at->end, next->end);
  }
  early_.erase(at + 1, next);
}

// Joins early ranges that are next in order now. Returns true if there was one.
bool Receiver::join_early() {
  bool joined = false;
  while (!early_.empty() && early_.front().first <= in_order_) {
    in_order_ = std::max(in_order_, early_.front().end);
    early_.erase(early_.begin());
    joined = true;
  }
  return joined;
}

// RFC 8257 §3.2: in each acknowledgement, ECE says whether the acknowledged bytes were marked. When
// the mark changes, the bytes before the change are acknowledged at once.
void Receiver::note_mark(bool marked) {
  if (marked == marked_) return;
  const std::uint64_t before = old_marks_.empty() ? told_ : old_marks_.back().end;
  if (in_order_ > before) {
    old_marks_.push({in_order_, marked_});
    due_ = 1;
  }
  marked_ = marked;
}

void Receiver::consumed(std::uint64_t end) {
  read_ = std::max(read_, end);
  // As in Linux's tcp_cleanup_rbuf: a window that has become less than half of the buffer is
  // advertised again when it is twice as wide, but not for less than a segment (RFC 9293
  // §3.8.6.2.2).
  const std::uint64_t now = told_window_ - std::min(told_window_, in_order_);
  const std::uint64_t then = room_end() - in_order_;
  const std::uint64_t least =
      std::min<std::uint64_t>(settings_.receive_buffer_bytes / 2, settings_.mss_bytes);
  if (2 * now <= settings_.receive_buffer_bytes && then >= 2 * now && then - now >= least) due_ = 1;
  // As in tcp_cleanup_rbuf too: the reader has everything that its peer pushed, so there is nothing
  // to wait for.
  if (pushed_ && read_ == in_order_ && in_order_ > told_) due_ = 1;
}

void Receiver::fill(wire::Tcp& header, wire::TcpSequence first, unsigned window_shift, bool pure) {
  header.ack = true;
  std::uint64_t end = in_order_;
  bool ece = marked_;
  due_ = 0;
  if (!old_marks_.empty()) {
    end = old_marks_.front().end;
    ece = old_marks_.front().marked;
    old_marks_.pop();
    due_ = 1;  // the bytes that came later are due next
  } else {
    delayed_until_ = Time::never();
  }
  const bool echoes = settings_.congestion_control == CongestionControl::dctcp || settings_.ecn;
  header.ece = echoes && ece;
  header.acknowledgement = first + static_cast<std::uint32_t>(end);
  told_ = end;
  // RFC 9293 §3.8.6.2.2: the right edge moves on by at least half of the buffer or a segment.
  const std::uint64_t least =
      std::min<std::uint64_t>(settings_.receive_buffer_bytes / 2, settings_.mss_bytes);
  const std::uint64_t edge = room_end() >= told_window_ + least ? room_end() : told_window_;
  const std::uint64_t room = edge - std::min(edge, end);
  header.window = static_cast<std::uint16_t>(std::min<std::uint64_t>(room >> window_shift, 0xFFFF));
  told_window_ = std::max(told_window_, end + (std::uint64_t{header.window} << window_shift));
  header.block_count = 0;
  if (!pure) return;
  // RFC 2018 §4: the range that was extended last comes first. A frame here has room for two
  // blocks.
  const Range* newest = nullptr;
  const Range* second = nullptr;
  for (const Range& range : early_) {
    if (newest == nullptr || range.heard > newest->heard) {
      second = newest;
      newest = &range;
    } else if (second == nullptr || range.heard > second->heard) {
      second = &range;
    }
  }
  for (const Range* range : {newest, second}) {
    if (range == nullptr) continue;
    header.blocks[header.block_count++] = {first + static_cast<std::uint32_t>(range->first),
                                           first + static_cast<std::uint32_t>(range->end)};
  }
}

}  // namespace tulle::transport::tcp

#pragma once

// The receiving half of a connection. It records what has come in order and early, how much room is
// left, and what the network marked, and decides what to acknowledge and when (RFC 9293 §3.8.6, RFC
// 2018, RFC 3168, RFC 8257 §3.2).

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/growing_ring.h"
#include "base/time.h"
#include "rdma/transport/tcp_settings.h"
#include "rdma/wire/tcp.h"

namespace tulle::transport::tcp {

class Receiver {
 public:
  explicit Receiver(const Settings& settings)
      : settings_(settings), told_window_(settings.receive_buffer_bytes) {}

  struct Taken {
    std::uint64_t offset = 0;
    std::uint32_t skip = 0;
    std::uint32_t bytes = 0;
  };
  // Takes a segment with [offset, offset + bytes) of the stream. `offset` may be before the start
  // of the stream by less than a window (a probe).
  Taken take(Time now, std::int64_t offset, std::uint32_t bytes, const wire::Tcp& header,
             bool congestion_experienced);
  std::uint64_t in_order() const { return in_order_; }
  void consumed(std::uint64_t end);

  // Returns true if an acknowledgement must be sent, by itself if there is no data to carry it.
  bool acknowledgement_due() const { return due_ > 0; }
  // Returns true if a segment with a payload cannot carry the acknowledgement: data came early, or
  // the marks have changed.
  bool needs_pure() const { return due_ > 0 && (!early_.empty() || !old_marks_.empty()); }
  // Fills in the acknowledgement, and considers it sent. `pure` adds SACK blocks.
  void fill(wire::Tcp& header, wire::TcpSequence first, unsigned window_shift, bool pure);

  Time next_deadline() const { return delayed_until_; }
  void rebase(Time by) { tulle::rebase(by, delayed_until_); }
  void handle_deadline(Time now) {
    if (delayed_until_ > now) return;
    delayed_until_ = Time::never();
    due_ = std::max(due_, 1u);
  }

 private:
  // Bytes [first, end) that came early. The range that was extended last has the highest `heard`.
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
    std::uint64_t heard = 0;
  };

  void add_early(std::uint64_t first, std::uint64_t end);
  bool join_early();
  void note_mark(bool marked);
  void plan(Time now);
  std::uint64_t room_end() const { return read_ + settings_.receive_buffer_bytes; }

  const Settings& settings_;
  std::uint64_t in_order_ = 0;
  std::uint64_t read_ = 0;
  std::uint64_t told_ = 0;     // end of what was acknowledged
  std::uint64_t told_window_;  // right edge of the window that was advertised last
  std::vector<Range> early_;   // in the order of offsets, with gaps in between
  std::uint64_t heard_ = 0;
  std::uint32_t quick_ = 0;  // segments of a new connection acknowledged at once so far
  bool pushed_ = false;      // the last segment in order ended what its sender had
  bool marked_ = false;      // DCTCP.CE, or ECE until CWR is seen
  std::uint32_t due_ = 0;
  // RFC 8257 §3.2: bytes that came before the mark changed are acknowledged with the old mark.
  struct OldMark {
    std::uint64_t end = 0;
    bool marked = false;
  };
  GrowingRing<OldMark> old_marks_;
  Time delayed_until_ = Time::never();
};

}  // namespace tulle::transport::tcp

#pragma once

// One end of a TCP connection (RFC 9293) as a state machine without input or output. The connection
// exists from the beginning: there is no SYN and no FIN, and both ends are given the same facts
// instead.
//
// It holds no bytes. Its user appends lengths to the stream. A segment that is pulled names the
// part of the stream that it carries, and the user fills in the payload, even when the segment is
// sent again. For a segment that arrives, the user learns which part of the stream it brings, and
// stores the bytes. So a payload may be bytes, a ghost (a length without bytes), or headers before
// a ghost.
//
// There are two kinds of users. A socket appends bytes, which are cut wherever a full segment ends.
// With `Connection::Kind::records` each append is a record of at most one segment's length. A
// record is sent as a separate segment and is never split or merged, even when it is sent again;
// RFC 5044 §5 wants this of an MPA-aware TCP. The record's tag comes back with each segment that
// carries it.
//
//   sending    append / append_record …  pull_segment  … acknowledged() has grown
//   receiving  handle_segment → Arrival: store its part … in_order() has grown: read … consumed()
//
// Recovery is RACK-TLP (RFC 8985) over SACK (RFC 2018), at the rate that PRR allows (RFC 6937),
// with RFC 6298's time-out. Acknowledgements are delayed as in RFC 9293 §3.8.6.3 and Linux.

#include <cstdint>

#include "base/time.h"
#include "rdma/optional/tcp/congestion.h"
#include "rdma/optional/tcp/receiver.h"
#include "rdma/optional/tcp/round_trip.h"
#include "rdma/optional/tcp/sent_segments.h"
#include "rdma/transport/counters.h"
#include "rdma/transport/tcp_settings.h"
#include "rdma/wire/tcp.h"

namespace tulle::transport::tcp {

// The offset of a byte in its stream, from 0 on. It does not wrap. On the wire its low 32 bits are
// added to the initial sequence number.
using Offset = std::uint64_t;

// The facts that both ends know when a connection begins.
struct Endpoints {
  std::uint16_t local_port = 0;
  std::uint16_t peer_port = 0;
  wire::TcpSequence local_first;  // sequence number of the first byte that this end sends
  wire::TcpSequence peer_first;
};

// A segment to send. Its payload is [offset, offset + bytes) of the stream.
struct Segment {
  wire::Tcp header;  // without the checksum
  Offset offset = 0;
  std::uint32_t bytes = 0;  // 0: an acknowledgement, or a probe of the window
  std::uint64_t tag = 0;    // tag of the record
  bool again = false;       // the segment was sent before
  bool ecn_capable = false;
};

// The part of the stream that a segment brought: `bytes` bytes of its payload, from `skip` on, are
// [offset, offset + bytes) of the peer's stream.
struct Arrival {
  Offset offset = 0;
  std::uint32_t skip = 0;
  std::uint32_t bytes = 0;  // 0: the segment has nothing new, or there is no room
};

class Connection {
 public:
  enum class Kind : std::uint8_t { bytes, records };

  Connection(Kind kind, const Settings& settings, const Endpoints& ends, Counters& counters);

  const Settings& settings() const { return settings_; }

  // --- sending ---

  // Kind::bytes: appends any length; `room()` says how much a socket would take now. `more` means
  // that the application is still writing, so a segment that is not full waits (as Linux does
  // within a call).
  void append(std::uint64_t bytes, bool more = false) {
    appended_ += bytes;
    more_ = more;
  }
  std::uint64_t room() const {
    const std::uint64_t held = appended_ - acknowledged_;
    return held < settings_.send_buffer_bytes ? settings_.send_buffer_bytes - held : 0;
  }
  // Kind::records: appends a record of 1 to mss_bytes bytes. Returns false if too many records wait
  // to be sent; the caller may try again when some were sent.
  [[nodiscard]] bool append_record(std::uint32_t bytes, std::uint64_t tag);
  // The ends of what was appended, of what was ever sent, and of what was acknowledged in order.
  Offset appended() const { return appended_; }
  Offset sent() const { return sent_end_; }
  Offset acknowledged() const { return acknowledged_; }

  // --- receiving ---

  // Everything before this offset has come.
  Offset in_order() const { return receiver_.in_order(); }
  // The reader has taken everything before `end` (at most in_order()), so there is room again.
  void consumed(Offset end) { receiver_.consumed(end); }
  // The most bytes that the receiver holds. A user may keep a byte at its offset modulo this.
  std::uint32_t receive_buffer_bytes() const { return settings_.receive_buffer_bytes; }

  // --- segments and time ---

  // Fills in the next segment to send, except for its payload, which is left to the caller. Returns
  // false if there is nothing to send now.
  bool pull_segment(Time now, Segment& out);
  // Returns false if pull_segment would find nothing until something else happens.
  bool has_work() const;
  // `header` is decoded and addressed to this connection. The caller has dropped segments with a
  // wrong checksum. `congestion_experienced` is what the IP header says (RFC 3168).
  Arrival handle_segment(Time now, const wire::Tcp& header, std::uint32_t payload_bytes,
                         bool congestion_experienced);
  Time next_deadline() const;
  void rebase(Time by) {
    tulle::rebase(by, rack_.sent_at, last_sent_, timeout_at_, probe_at_, reordering_at_,
                  window_probe_at_, keep_alive_at_);
    segments_.rebase(by);
    congestion_.rebase(by);
    receiver_.rebase(by);
  }
  void handle_deadline(Time now);
  // Says whether the reader waits for something from the peer. If it does, and nothing has come for
  // Settings::keep_alive, the connection asks whether the peer is there.
  void expect(Time now, bool something);
  // Returns true after too many time-outs in a row: the peer does not answer.
  bool failed() const { return failed_; }

  // --- for observers ---

  std::uint64_t window_bytes() const { return congestion_.window_bytes(); }
  std::uint64_t flying_bytes() const { return segments_.flying_bytes(); }

 private:
  struct Record {
    std::uint32_t bytes = 0;
    std::uint64_t tag = 0;
  };
  enum class Recovery : std::uint8_t { none, fast, timeout };

  // The number of bytes that may be under way now.
  std::uint64_t window() const {
    return recovery_ == Recovery::fast ? recovery_window_ : congestion_.window_bytes();
  }

  // connection.cc: sending
  bool pull_lost(Time now, Segment& out);
  bool pull_probe(Time now, Segment& out);
  bool pull_new(Time now, bool beyond_window, Segment& out);
  bool pull_acknowledgement(Segment& out);
  bool may_send_new(bool beyond_window) const;
  bool is_to_watch_window() const;
  std::uint32_t next_bytes() const;
  void emit(Time now, SentSegment& segment, bool again, Segment& out);
  void fill_header(Segment& out);
  void restart_if_idle(Time now);
  wire::TcpSequence sequence_of(Offset offset) const {
    return ends_.local_first + static_cast<std::uint32_t>(offset);
  }

  // acknowledgement.cc: acknowledgements and time
  void handle_acknowledgement(Time now, const wire::Tcp& header, bool has_payload);
  void update_window(const wire::Tcp& header, Offset end);
  std::uint64_t mark_acknowledged(Time now, Offset end);
  std::uint64_t mark_selectively(Time now, const wire::Tcp& header, Offset end);
  void learn(Time now, const SentSegment& segment);
  void detect_losses(Time now);
  void enter_recovery();
  void pace_recovery(std::uint64_t delivered);
  void set_timers(Time now);
  void handle_timeout(Time now);
  Time probe_timeout() const;

  const Settings settings_;
  const Endpoints ends_;
  const Kind kind_;
  Counters& counters_;

  Offset appended_ = 0;
  bool more_ = false;
  Offset sent_end_ = 0;
  Offset acknowledged_ = 0;
  Offset window_end_ = 0;  // the peer has room up to here
  unsigned window_shift_ = 0;
  SentSegments segments_;
  GrowingRing<Record> records_;  // records that wait to be sent
  Congestion congestion_;
  RoundTrip round_trip_;
  Receiver receiver_;

  Recovery recovery_ = Recovery::none;
  Offset recovery_end_ = 0;     // recovery ends when this is acknowledged
  bool send_one_lost_ = false;  // RFC 6675 §5: the first lost segment is sent whatever the pipe is
  // RFC 6937: the bytes that a recovery has sent, and the bytes delivered since it began.
  std::uint64_t recovery_flight_ = 0;
  std::uint64_t recovery_delivered_ = 0;
  std::uint64_t recovery_sent_ = 0;
  std::uint64_t recovery_window_ = 0;
  bool cut_told_ = true;  // RFC 3168 §6.1.2: if false, the next new segment carries CWR
  Offset cut_end_ = 0;    // classic ECN: one decrease a window

  // RFC 8985 §5.2: the delivered segment that was sent last.
  struct {
    Time sent_at;
    Offset end = 0;
    Time round_trip;
    bool reordering_seen = false;
  } rack_;
  Offset again_end_ = 0;      // highest end of the segments that were sent again
  Offset selective_end_ = 0;  // highest end of the segments delivered, in whatever order

  bool probe_due_ = false;
  bool probed_ = false;  // a probe was sent; no other follows until something is acknowledged
  bool window_probe_due_ = false;
  std::uint32_t timeouts_in_row_ = 0;
  bool failed_ = false;
  Time last_sent_;
  Time timeout_at_ = Time::never();
  Time probe_at_ = Time::never();
  Time reordering_at_ = Time::never();
  Time window_probe_at_ = Time::never();
  Time keep_alive_at_ = Time::never();
};

}  // namespace tulle::transport::tcp

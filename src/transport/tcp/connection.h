#pragma once

// One end of a TCP connection (RFC 9293) as a state machine without input or output. It stands from
// the beginning: no SYN, no FIN; both ends are given the same facts instead.
//
// It holds no bytes. Who is above it appends lengths to the stream; a segment that is pulled names
// the part of the stream that it carries, and its payload is filled in there, also when it is sent
// again. What arrives is told as the part of the stream that it brings, to be put where it belongs.
// So a payload may be bytes, a ghost (a length without bytes), or headers before a ghost.
//
// Two kinds of users. A socket appends bytes, which are cut wherever a full segment ends. With
// `Connection::Kind::records` each append is a record of at most one segment's length, that is sent
// as a segment of its own and never split or merged, also when it is sent again (what RFC 5044 §5
// wants of an MPA-aware TCP); its tag comes back with each segment that carries it.
//
//   sending    append / append_record …  pull_segment  … acknowledged() has grown
//   receiving  handle_segment → Arrival: store its part … in_order() has grown: read … consumed()
//
// Recovery is RACK-TLP (RFC 8985) over SACK (RFC 2018), at the rate that PRR allows (RFC 6937), and
// RFC 6298's time-out. Acknowledgements are delayed as RFC 9293 §3.8.6.3 and Linux have it.

#include <cstdint>

#include "base/time.h"
#include "transport/counters.h"
#include "transport/tcp/congestion.h"
#include "transport/tcp/receiver.h"
#include "transport/tcp/round_trip.h"
#include "transport/tcp/sent_segments.h"
#include "transport/tcp/settings.h"
#include "wire/tcp.h"

namespace tulle::transport::tcp {

// Of a byte in its stream, from 0 on; what a connection carries does not wrap. On the wire its low
// 32 bits count on from the initial sequence number.
using Offset = std::uint64_t;

// What both ends know of each other when a connection begins.
struct Endpoints {
  std::uint16_t local_port = 0;
  std::uint16_t peer_port = 0;
  wire::TcpSequence local_first;  // of the first byte that this end sends
  wire::TcpSequence peer_first;
};

// A segment to send. Its payload is [offset, offset + bytes) of the stream.
struct Segment {
  wire::Tcp header;  // but for the checksum
  Offset offset = 0;
  std::uint32_t bytes = 0;  // 0: an acknowledgement, or a probe of the window
  std::uint64_t tag = 0;    // of the record
  bool again = false;       // it was sent before
  bool ecn_capable = false;
};

// What a segment brought: of its payload the bytes from `skip` on, `bytes` of them, are
// [offset, offset + bytes) of the peer's stream.
struct Arrival {
  Offset offset = 0;
  std::uint32_t skip = 0;
  std::uint32_t bytes = 0;  // 0: nothing that was not there, or nothing that there is room for
};

class Connection {
 public:
  enum class Kind : std::uint8_t { bytes, records };

  Connection(Kind kind, const Settings& settings, const Endpoints& ends, Counters& counters);

  const Settings& settings() const { return settings_; }

  // --- sending ---
  // Kind::bytes. Any length; `room()` says what a socket would take now. `more`: the application is
  // still writing, so that a segment that is not full waits for it (as Linux does within a call).
  void append(std::uint64_t bytes, bool more = false) {
    appended_ += bytes;
    more_ = more;
  }
  std::uint64_t room() const {
    const std::uint64_t held = appended_ - acknowledged_;
    return held < settings_.send_buffer_bytes ? settings_.send_buffer_bytes - held : 0;
  }
  // Kind::records, 1 to mss_bytes. False: as many as it can remember wait to be sent; to be tried
  // again when some were.
  [[nodiscard]] bool append_record(std::uint32_t bytes, std::uint64_t tag);
  // Ends of what was appended, was sent ever, and was acknowledged in order.
  Offset appended() const { return appended_; }
  Offset sent() const { return sent_end_; }
  Offset acknowledged() const { return acknowledged_; }

  // --- receiving ---
  // All before it has come.
  Offset in_order() const { return receiver_.in_order(); }
  // The reader has taken everything before `end` (at most in_order()), and there is room again.
  void consumed(Offset end) { receiver_.consumed(end); }
  // The most that the receiver holds: where what comes early lies, modulo this.
  std::uint32_t receive_buffer_bytes() const { return settings_.receive_buffer_bytes; }

  // --- segments and time ---
  // The next segment to send; false: nothing to send now. The caller fills in its payload.
  bool pull_segment(Time now, Segment& out);
  // False: pull_segment would find nothing until something else happens.
  bool has_work() const;
  // `header` is decoded and addressed to this connection; a segment with a wrong checksum never
  // comes here. `congestion_experienced`: as the IP header says (RFC 3168).
  Arrival handle_segment(Time now, const wire::Tcp& header, std::uint32_t payload_bytes,
                         bool congestion_experienced);
  Time next_deadline() const;
  void handle_deadline(Time now);
  // Whether the reader waits for something that the peer owes it: with Settings::keep_alive the
  // peer is asked whether it is there when nothing has come for so long.
  void expect(Time now, bool something);
  // Too many time-outs in a row: nobody answers.
  bool failed() const { return failed_; }

  // For who looks on.
  std::uint64_t window_bytes() const { return congestion_.window_bytes(); }
  std::uint64_t flying_bytes() const { return segments_.flying_bytes(); }

 private:
  struct Record {
    std::uint32_t bytes = 0;
    std::uint64_t tag = 0;
  };
  enum class Recovery : std::uint8_t { none, fast, timeout };

  // What may be under way now.
  std::uint64_t window() const {
    return recovery_ == Recovery::fast ? recovery_window_ : congestion_.window_bytes();
  }

  // connection.cc: what is sent.
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

  // acknowledgement.cc: what comes back.
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
  GrowingRing<Record> records_;  // that wait to be sent
  Congestion congestion_;
  RoundTrip round_trip_;
  Receiver receiver_;

  Recovery recovery_ = Recovery::none;
  Offset recovery_end_ = 0;     // recovery ends when this is acknowledged
  bool send_one_lost_ = false;  // RFC 6675 §5: the first goes out whatever the pipe is
  // RFC 6937: how much a recovery has sent for what was delivered since it began.
  std::uint64_t recovery_flight_ = 0;
  std::uint64_t recovery_delivered_ = 0;
  std::uint64_t recovery_sent_ = 0;
  std::uint64_t recovery_window_ = 0;
  bool cut_told_ = true;  // RFC 3168 §6.1.2: CWR is with the next new segment unless told
  Offset cut_end_ = 0;    // classic ECN: one decrease a window

  // RFC 8985 §5.2: the segment last sent of those that were delivered.
  struct {
    Time sent_at;
    Offset end = 0;
    Time round_trip;
    bool reordering_seen = false;
  } rack_;
  Offset again_end_ = 0;      // the highest that was sent again
  Offset selective_end_ = 0;  // the highest that was delivered in whatever order

  bool probe_due_ = false;
  bool probed_ = false;  // one probe, until something is acknowledged
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

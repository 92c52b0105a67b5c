#pragma once

// The settings of a TCP connection, which are the same at both ends. Defaults are Linux's unless
// another source is given.

#include <cstdint>

#include "base/time.h"

namespace tulle::transport::tcp {

enum class CongestionControl : std::uint8_t {
  cubic,  // RFC 9438
  dctcp,  // RFC 8257; the network must mark packets (ECN)
};

struct Settings {
  // Payload of a full segment: the IP packet's MTU less 40 bytes of headers. Data segments carry no
  // options.
  std::uint32_t mss_bytes = 8'960;
  // RFC 6928: ten segments.
  std::uint32_t initial_window_segments = 10;
  // The most bytes that may be under way or wait unread in the receiver's socket, and the most
  // unacknowledged bytes that the sender's socket holds.
  std::uint32_t receive_buffer_bytes = 3'145'728;
  std::uint32_t send_buffer_bytes = 4'194'304;
  CongestionControl congestion_control = CongestionControl::cubic;
  bool ecn = false;              // RFC 3168 for CUBIC; DCTCP always has it
  double dctcp_gain = 1.0 / 16;  // RFC 8257 §4.2: g
  // RFC 6298 §2.4 wants at least one second; Linux's TCP_RTO_MIN is 200 ms. Before the first
  // measurement the time-out is one second (§2.1). It is at most 120 s.
  Time timeout_min = Time::milliseconds(200);
  Time timeout_initial = Time::seconds(1);
  Time timeout_max = Time::seconds(120);
  // The time that the acknowledgement of one segment may wait for a second segment. RFC 9293
  // §3.8.6.3 allows half a second; Linux's TCP_DELACK_MIN is 40 ms.
  Time acknowledgement_delay = Time::milliseconds(40);
  // The number of segments of a new connection that are acknowledged at once (Linux's
  // TCP_MAX_QUICKACKS).
  std::uint32_t quick_acknowledgements = 16;
  bool tail_loss_probe = true;  // RFC 8985 §7
  // An end that only waits for the peer asks whether the peer is there after this time without a
  // segment from it (RFC 9293 §3.8.4). Zero means that it never asks, as sockets do by default.
  Time keep_alive = Time::zero();
  bool restart_after_idle = true;  // RFC 5681 §4.1
  // Consecutive time-outs after which the connection fails (Linux's tcp_retries2).
  std::uint32_t retries_max = 15;
};

inline constexpr Settings default_settings;

}  // namespace tulle::transport::tcp

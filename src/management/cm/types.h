#pragma once

// The types by which a connection manager and its driver communicate.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/time.h"
#include "rdma/wire/cm.h"

namespace tulle::management::cm {

// Local communication ID of a connection or of a question for a service. 0 means none.
using ConnectionId = Id<struct ConnectionIdTag, std::uint32_t>;

// The addresses between which a connection's messages travel.
struct Route {
  Gid local;
  Gid remote;
  std::uint8_t traffic_class = 0;
  std::uint16_t remote_lid = 0;  // on InfiniBand, where known
  bool is_roce_v1 = false;       // by frames of Ethernet

  auto operator<=>(const Route&) const = default;
};

struct PrivateData {
  std::array<std::byte, 224> bytes{};
  std::uint8_t size = 0;

  PrivateData() = default;
  explicit PrivateData(std::span<const std::byte> from)
      : size(static_cast<std::uint8_t>(std::min(from.size(), bytes.size()))) {
    std::copy_n(from.begin(), size, bytes.begin());
  }
  std::span<const std::byte> span() const { return std::span(bytes).first(size); }
};

enum class Service : std::uint8_t { rc, uc, xrc };

// The LIDs of a path, from the sender's view. RoCE has none, and sends the permissive LID.
struct PathLids {
  std::uint16_t local = 0xFFFF;
  std::uint16_t remote = 0xFFFF;
  std::uint8_t service_level = 0;
};

// The contents of a REQ, always from the sender's view: `responder_resources` are those that the
// sender offers.
struct Request {
  Route route;
  std::uint64_t service_id = 0;
  Service service = Service::rc;
  QpNumber qp;
  Psn starting_psn;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  bool flow_control = false;
  bool srq = false;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  Pkey pkey = default_pkey;
  std::uint8_t path_mtu = 0;  // IBTA's code: 1 is 256 bytes, 5 is 4096
  // 4.096 us * 2^packet_lifetime. The receiver derives it from the ACK timeout: the timeout - 1.
  std::uint8_t packet_lifetime = 0;
  std::uint8_t ack_timeout = 0;
  std::uint8_t hop_limit = 0;
  std::uint32_t flow_label = 0;
  PathLids lids;             // when received: from the receiver's view
  PrivateData private_data;  // at most 92 bytes sent; always 92 when received
};

// The contents of a REP, from the sender's view as in a Request.
struct Reply {
  QpNumber qp;
  Psn starting_psn;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  bool flow_control = false;
  bool srq = false;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t target_ack_delay = 0;
  PrivateData private_data;  // at most 196 bytes
};

struct ServiceQuestion {
  Route route;
  std::uint64_t service_id = 0;
  Pkey pkey = default_pkey;
  PrivateData private_data;  // at most 216 bytes
};

struct ServiceAnswer {
  wire::cm::ServiceStatus status{};
  QpNumber qp;
  Qkey qkey;
  PrivateData private_data;  // at most 136 bytes
};

struct Event {
  enum class Kind : std::uint8_t {
    request,             // a REQ came: accept or reject it
    reply,               // a REP came: establish or reject it
    established,         // on the accepting side: the peer is ready
    rejected,            // the connection no longer exists
    unreachable,         // the peer did not answer; the connection no longer exists
    disconnect_request,  // the peer wants to disconnect: do so too
    disconnected,        // as asked for; time wait follows. `timed_out` if no answer came
    time_wait_over,      // the connection no longer exists
    service_question,    // a SIDR_REQ came: answer it
    service_answer,      // our question was answered and no longer exists
    service_unreachable,
  };
  Kind kind{};
  ConnectionId id;
  Request request;       // request; service_question: route, service_id, pkey, private_data
  Reply reply;           // reply
  ServiceAnswer answer;  // service_answer
  wire::cm::Reason reason{};
  bool timed_out = false;
  PrivateData private_data;  // rejected, established, disconnect_request, disconnected
};

// A datagram for QP1.
struct Outgoing {
  Route route;
  std::array<std::byte, wire::mad_bytes> bytes;
  // True if this answers a peer that has not shown that the address is its own. Anybody can cause
  // many such datagrams, also to addresses where nobody is.
  bool is_to_stranger = false;
};

struct Counters {
  std::uint64_t retransmitted = 0;
  std::uint64_t received = 0;
  std::uint64_t duplicates = 0;  // answered again or ignored
  std::uint64_t malformed = 0;
  std::uint64_t unknown = 0;  // messages of no known connection
  std::uint64_t held = 0;     // requests that waited for a listener
};

}  // namespace tulle::management::cm

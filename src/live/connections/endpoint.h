#pragma once

// An endpoint of a program, as the host's connection manager keeps it, and what follows from its
// fields alone: what the program is told of it, and the route of its messages.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "live/connections/channel_owner.h"
#include "live/connections/network.h"
#include "live/message/connection_values.h"
#include "live/message/device_info.h"
#include "management/cm/types.h"

namespace tulle::live {

struct Endpoint {
  enum class State : std::uint8_t {
    idle,
    bound,
    listening,
    address_resolved,
    resolving_route,
    route_resolved,
    connecting,  // sent a request, no answer yet
    requested,   // received a request, not answered yet
    answered,    // accepted, or was accepted, but not yet established
    connected,
    disconnected,
    closed,  // rejected, unreachable, or ended
  };
  // Names a sent request, which may be there no longer: an endpoint may be in another channel than
  // the one to which its request was sent.
  struct RequestName {
    ChannelNumber channel = 0;
    std::uint64_t number = 0;
  };
  // Value of RDMA_UDP_QKEY in librdmacm's header.
  static constexpr std::uint32_t default_qkey = 0x0123'4567;

  EndpointId id;
  ChannelNumber channel = 0;
  PortSpace space{};
  ConnectionQpType qp_type{};
  State state = State::idle;
  SocketAddress source;
  SocketAddress destination;
  bool has_device = false;
  std::string device;  // the device's name
  std::uint64_t listened_service = 0;
  LocalAddress local;
  std::uint16_t local_lid = 0;  // 0: there are no LIDs
  Gid remote;
  bool may_share = false;
  bool is_ipv6_only = false;
  std::uint8_t traffic_class = 0;
  // RDMA_OPTION_ID_ACK_TIMEOUT; 0 means not set.
  std::uint8_t ack_timeout = 0;
  // Starting PSN of this side's REQ or REP. It tells the peer where to begin to send (IBTA
  // 12.6.5), so this side begins to receive there.
  Psn psn;
  // The connection, as this side's queue pair needs it.
  management::cm::ConnectionId connection;
  bool is_passive = false;
  QpNumber own_qp;  // as the program named it; 0 means none
  QpNumber remote_qp;
  Psn remote_psn;
  ConnectionRoute route;  // path_mtu 0: it is not known
  std::uint8_t target_ack_delay = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry = 0;
  std::uint32_t qkey = 0;  // 0 means the default
  EndpointId listener;
  // The request that made it, while that waits on the channel's socket.
  std::optional<RequestName> request;
  std::uint32_t requests_max = 0;   // backlog of a listener
  std::uint32_t requests = 0;       // requests that the program has not taken; may be too high
  std::uint32_t requests_sent = 0;  // its entries in the channel's `requests_sent`
  std::uint32_t events_sent = 0;    // events sent to the channel's socket
  std::vector<SocketAddress> groups;
};

// Hop limit on RoCE, whose packets have IP headers.
inline constexpr std::uint8_t roce_hop_limit = 64;

// Sets the endpoint's device and the device's address that it uses.
void use_device(Endpoint& endpoint, const DeviceInfo& device, const LocalAddress& local);

// Returns the route of the endpoint's messages to the peer.
management::cm::Route route_of(const Endpoint& endpoint);
ConnectionPath path_of(const Endpoint& endpoint);
EndpointStatus status_of(const Endpoint& endpoint);
// Returns the attributes of the endpoint's queue pair. The endpoint has a device.
QpAttributesOfStates attributes_of(const Endpoint& endpoint);
std::uint32_t qkey_of(const Endpoint& endpoint);

// Returns the ACK timeout for the round trip and the peer's ACK delay: about their sum, in
// exponents.
std::uint8_t ack_timeout_for(std::uint8_t packet_lifetime, std::uint8_t ack_delay);

}  // namespace tulle::live

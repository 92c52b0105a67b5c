#pragma once

// The values of which the connection manager's messages consist (live/message/connection.h).

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace tulle::live {

// An endpoint is what librdmacm calls an id. The agent numbers endpoints; 0 means none.
using EndpointId = Id<struct EndpointIdTag, std::uint32_t>;

// The numbers of librdmacm's rdma_port_space.
enum class PortSpace : std::uint16_t {
  ipoib = 0x0002,
  tcp = 0x0106,
  udp = 0x0111,
  ib = 0x013F,
};

// Returns true if the endpoints of a port space exchange datagrams, and have no connections.
constexpr bool is_datagram(PortSpace space) {
  return space == PortSpace::udp || space == PortSpace::ipoib;
}

// The numbers of libibverbs' ibv_qp_type.
enum class ConnectionQpType : std::uint8_t {
  rc = 2,
  uc = 3,
  ud = 4,
  xrc_send = 9,
  xrc_receive = 10
};

// AF_IB of Linux (include/linux/socket.h): an address is a port's GID, and messages name a service
// without an address of IP.
inline constexpr std::uint16_t infiniband_family = 27;

// An IPv4 or IPv6 address or a GID, and a port. `family` 0 means no address.
struct SocketAddress {
  std::uint16_t family = 0;             // AF_INET, AF_INET6 or infiniband_family
  std::uint16_t port = 0;               // host order
  std::array<std::byte, 16> address{};  // network order; IPv4 uses the first four bytes
  std::uint32_t scope_id = 0;           // applies to link-local addresses
  std::uint32_t flow_information = 0;   // host order

  bool operator==(const SocketAddress&) const = default;
  bool is_wildcard() const { return address == std::array<std::byte, 16>{}; }
  bool is_gid() const { return family == infiniband_family; }
  static SocketAddress of(const Gid& gid, std::uint16_t port);
  // These two know the addresses of IP. from() returns nothing if the address is of another family,
  // or shorter than its family's.
  static std::optional<SocketAddress> from(const sockaddr* address, std::size_t bytes);
  // Returns the number of bytes of `to` that are used; 0 means that there is no address.
  socklen_t copy_to(sockaddr_storage& to) const;
  // Returns the address as a GID: an address of IP as RoCE v2's, with IPv4 mapped into IPv6.
  Gid gid() const;
};

// Parameters of a connection, as in librdmacm's rdma_conn_param.
struct ConnectionParameters {
  std::vector<std::byte> private_data;
  std::uint8_t responder_resources = 0;  // READs and atomics that this side serves at a time
  std::uint8_t initiator_depth = 0;      // READs and atomics that this side has under way at a time
  std::uint8_t flow_control = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t srq = 0;
  std::uint32_t qp_number = 0;
  // UD: the Q_Key that the peer's datagrams must carry; 0 means 0x01234567.
  std::uint32_t qkey = 0;
};

// The path to the peer, as in an address handle.
struct ConnectionPath {
  Gid source;
  Gid destination;
  std::uint8_t gid_index = 0;  // index of `source` among the device's GIDs
  std::uint8_t hop_limit = 0;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
  bool is_global = true;         // packets have GIDs; on InfiniBand, LIDs are enough
  std::uint16_t lid = 0;         // of the destination, on InfiniBand
  std::uint16_t source_lid = 0;  // on InfiniBand
  std::uint8_t service_level = 0;
};

// The state of an endpoint. Fields that are not known yet are zero.
struct EndpointStatus {
  SocketAddress source;
  SocketAddress destination;
  bool has_device = false;  // bound to one address or resolved: the fields below are known
  std::string device;
  std::uint8_t port_number = 0;
  std::uint16_t pkey = 0;
  bool has_path = false;
  std::uint16_t path_mtu_bytes = 0;
  std::uint8_t packet_lifetime = 0;  // 4.096 us * 2^packet_lifetime
  ConnectionPath path;               // `source` and `gid_index` are valid as soon as has_device is
};

// The bits of libibverbs' ibv_qp_attr_mask that QpAttributes uses.
namespace qp_attribute {
inline constexpr std::uint32_t state = 1u << 0;
inline constexpr std::uint32_t access_flags = 1u << 3;
inline constexpr std::uint32_t pkey_index = 1u << 4;
inline constexpr std::uint32_t port = 1u << 5;
inline constexpr std::uint32_t qkey = 1u << 6;
inline constexpr std::uint32_t address_vector = 1u << 7;
inline constexpr std::uint32_t path_mtu = 1u << 8;
inline constexpr std::uint32_t timeout = 1u << 9;
inline constexpr std::uint32_t retry_count = 1u << 10;
inline constexpr std::uint32_t rnr_retry = 1u << 11;
inline constexpr std::uint32_t rq_psn = 1u << 12;
inline constexpr std::uint32_t max_rd_atomic = 1u << 13;
inline constexpr std::uint32_t min_rnr_timer = 1u << 15;
inline constexpr std::uint32_t sq_psn = 1u << 16;
inline constexpr std::uint32_t max_dest_rd_atomic = 1u << 17;
inline constexpr std::uint32_t destination_qp = 1u << 20;
}  // namespace qp_attribute

// The numbers of libibverbs' ibv_qp_state.
enum class QpTarget : std::uint8_t { init = 1, ready_to_receive = 2, ready_to_send = 3 };

// The attributes with which the endpoint's queue pair must be modified to reach one state.
struct QpAttributes {
  std::uint32_t mask = 0;         // the fields that are valid; 0: the state cannot be reached yet
  std::uint8_t state = 0;         // QpTarget
  std::uint8_t access_flags = 0;  // ibv_access_flags: remote write 2, remote read 4, atomic 8
  std::uint16_t pkey_index = 0;
  std::uint8_t port_number = 0;
  std::uint32_t qkey = 0;
  ConnectionPath path;
  std::uint16_t path_mtu_bytes = 0;
  std::uint32_t destination_qp = 0;
  std::uint32_t rq_psn = 0;
  std::uint32_t sq_psn = 0;
  std::uint8_t max_rd_atomic = 0;
  std::uint8_t max_dest_rd_atomic = 0;
  std::uint8_t min_rnr_timer = 0;
  std::uint8_t timeout = 0;  // 4.096 us * 2^timeout
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry = 0;
};

// One answer has the attributes of all states, so that connecting a queue pair takes one question
// to the agent.
struct QpAttributesOfStates {
  QpAttributes init;
  QpAttributes ready_to_receive;
  QpAttributes ready_to_send;
};

}  // namespace tulle::live

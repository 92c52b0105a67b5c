#pragma once

// What a ConnectionChannel and the agent say to each other, after Hello and ChannelOpened: on the
// connection itself one ConnectionReply to each ConnectionCommand, in order; on the other socket,
// which came with ChannelOpened, one ConnectionEvent a packet, from the agent alone.

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "live/message/protocol.h"

namespace tulle::live {

// An endpoint is what librdmacm calls an id. The agent numbers them; 0 is none.
using EndpointId = Id<struct EndpointIdTag, std::uint32_t>;

// The numbers of librdmacm's rdma_port_space.
enum class PortSpace : std::uint16_t {
  ipoib = 0x0002,
  tcp = 0x0106,
  udp = 0x0111,
  ib = 0x013F,
};

// The numbers of libibverbs' ibv_qp_type.
enum class ConnectionQpType : std::uint8_t {
  rc = 2,
  uc = 3,
  ud = 4,
  xrc_send = 9,
  xrc_receive = 10
};

// An IPv4 or IPv6 address and port; `family` 0: none.
struct SocketAddress {
  std::uint16_t family = 0;             // AF_INET or AF_INET6
  std::uint16_t port = 0;               // host order
  std::array<std::byte, 16> address{};  // IPv4: the first four; network order
  std::uint32_t scope_id = 0;           // of link-local addresses
  std::uint32_t flow_information = 0;   // host order

  bool operator==(const SocketAddress&) const = default;
  bool is_wildcard() const { return address == std::array<std::byte, 16>{}; }
  // None: of another family, or shorter than its family's.
  static std::optional<SocketAddress> from(const sockaddr* address, std::size_t bytes);
  // Returns how many bytes of `to` are used; 0: there is no address.
  socklen_t copy_to(sockaddr_storage& to) const;
  // As RoCE v2 has it: IPv4 mapped into IPv6.
  Gid gid() const;
};

// Of a connection, as librdmacm's rdma_conn_param has it.
struct ConnectionParameters {
  std::vector<std::byte> private_data;
  std::uint8_t responder_resources = 0;  // READs and atomics that we serve at a time
  std::uint8_t initiator_depth = 0;      // that we have under way at a time
  std::uint8_t flow_control = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t srq = 0;
  std::uint32_t qp_number = 0;
  std::uint32_t qkey = 0;  // UD: what the other side's datagrams must carry; 0: 0x01234567
};

// How to reach the other end: what an address handle says.
struct ConnectionPath {
  Gid source;
  Gid destination;
  std::uint8_t gid_index = 0;  // of `source`, among the device's
  std::uint8_t hop_limit = 0;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
};

// Where an endpoint stands. Fields that are not known yet are zero.
struct EndpointStatus {
  SocketAddress source;
  SocketAddress destination;
  bool has_device = false;  // what follows is known: bound to one address, or resolved
  std::string device;
  std::uint8_t port_number = 0;
  std::uint16_t pkey = 0;
  bool has_path = false;
  std::uint16_t path_mtu_bytes = 0;
  std::uint8_t packet_lifetime = 0;  // 4.096 us * 2^it
  ConnectionPath path;               // `source` and `gid_index` with the device already
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

// What the endpoint's queue pair must be modified with.
struct QpAttributes {
  std::uint32_t mask = 0;         // of the fields that hold
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
  std::uint8_t timeout = 0;  // 4.096 us * 2^it
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry = 0;
};

// The numbers of librdmacm's rdma_cm_event_type.
enum class ConnectionEventType : std::uint8_t {
  address_resolved = 0,
  address_error = 1,
  route_resolved = 2,
  route_error = 3,
  connect_request = 4,
  connect_response = 5,
  connect_error = 6,
  unreachable = 7,
  rejected = 8,
  established = 9,
  disconnected = 10,
  device_removal = 11,
  multicast_join = 12,
  multicast_error = 13,
  address_change = 14,
  timewait_exit = 15,
  // These come by a program's own report alone.
  address_information_resolved = 16,
  address_information_error = 17,
  user = 18,
};

struct ConnectionEvent {
  static constexpr auto kind = MessageKind::connection_event;
  ConnectionEventType type{};
  EndpointId endpoint;
  EndpointId listener;         // connect_request: whose it is; `endpoint` is the new one
  std::int32_t status = 0;     // 0, -errno, or the reason of a rejection (IBTA 12.6.7.2)
  std::uint64_t argument = 0;  // user: what the program reported with it
  bool is_datagram = false;    // of UD: `path` holds, and `parameters.qkey`
  ConnectionParameters parameters;
  ConnectionPath path;
  EndpointStatus known;  // where `tells_status`: so that nobody has to ask for it
};

// Whether the endpoint's status is with events of that type.
constexpr bool tells_status(ConnectionEventType type) {
  return type == ConnectionEventType::address_resolved ||
         type == ConnectionEventType::route_resolved ||
         type == ConnectionEventType::connect_request;
}

struct ChannelOpened {
  static constexpr auto kind = MessageKind::channel_opened;
  std::uint32_t channel = 0;
};

enum class ConnectionOperation : std::uint8_t {
  create,
  bind,
  listen,
  resolve_address,
  resolve_route,
  query,
  connect,
  accept,
  establish,
  reject,
  notify_established,
  disconnect,
  destroy,
  set_option,
  qp_attributes,
  join_multicast,
  leave_multicast,
  hold,       // sends this channel no event until `give_back`
  give_back,  // events that the program had not taken; number 1: more of them follow
  migrate,
  report,  // puts an event of the program's own behind those that wait
};

// Which of the fields travel is said beside fields() in messages.cc.
struct ConnectionCommand {
  static constexpr auto kind = MessageKind::connection_command;
  ConnectionOperation operation{};
  EndpointId endpoint;
  std::uint32_t events_taken = 0;  // of the channel's socket, ever: how far the program has read
  PortSpace port_space{};
  ConnectionQpType qp_type{};
  SocketAddress source;
  SocketAddress destination;
  std::uint32_t number = 0;  // backlog, milliseconds, reason, join flags, option, or a channel
  std::uint32_t level = 0;   // of an option; of destroy: events of it that the program has taken
  std::vector<std::byte> bytes;
  ConnectionParameters parameters;
  QpTarget target{};
  std::vector<ConnectionEvent> events;
};

struct ConnectionReply {
  static constexpr auto kind = MessageKind::connection_reply;
  ConnectionOperation operation{};
  std::int32_t error = 0;  // an errno; 0: done
  EndpointId endpoint;
  SocketAddress source;
  bool is_held = false;  // destroy: events lie on the channel, which is held as by `hold`
  EndpointStatus status;
  QpAttributes attributes;
};

std::vector<std::byte> encode(ConnectionEvent message);
std::vector<std::byte> encode(ChannelOpened message);
std::vector<std::byte> encode(ConnectionCommand message);
std::vector<std::byte> encode(ConnectionReply message);

bool decode(std::span<const std::byte> bytes, ConnectionEvent& message);
bool decode(std::span<const std::byte> bytes, ChannelOpened& message);
bool decode(std::span<const std::byte> bytes, ConnectionCommand& message);
bool decode(std::span<const std::byte> bytes, ConnectionReply& message);

}  // namespace tulle::live

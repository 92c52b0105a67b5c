#pragma once

// The messages between a ConnectionChannel and the host agent, after Hello and ChannelOpened. The
// connection itself carries one ConnectionReply for each CommandMessage, in order. The other
// socket, which came with ChannelOpened, carries one ConnectionEvent a packet, from the agent only.
//
// Each command, reply and event is a struct with the fields that it has. On the wire its position
// in its variant precedes the fields, so a change of a variant's order changes protocol_version.

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "live/message/connection_values.h"
#include "live/message/protocol.h"

namespace tulle::live {

struct ChannelOpened {
  static constexpr auto kind = MessageKind::channel_opened;
  std::uint32_t channel = 0;
  std::uint16_t seal_key_id = 0;  // as in Opened
};

// The numbers of librdmacm's rdma_cm_event_type. The numbers that are left out belong to events
// that the agent never raises.
enum class ConnectionEventType : std::uint8_t {
  address_resolved = 0,
  address_error = 1,
  route_resolved = 2,
  route_error = 3,
  connect_request = 4,
  connect_response = 5,
  unreachable = 7,
  rejected = 8,
  established = 9,
  disconnected = 10,
  device_removal = 11,
  multicast_join = 12,
  timewait_exit = 15,
  // Only the program's own report() raises these.
  address_information_resolved = 16,
  address_information_error = 17,
  user = 18,
};

namespace event {

using Type = ConnectionEventType;

// An event with the endpoint's status, or with the attributes of its queue pair, saves the program
// a query. The attributes are of no use once an option of the endpoint has been set: the event may
// be older than that.
struct AddressResolved {
  static constexpr auto type = Type::address_resolved;
  EndpointId endpoint;
  EndpointStatus known;
  QpAttributesOfStates attributes;
};
struct AddressError {
  static constexpr auto type = Type::address_error;
  EndpointId endpoint;
  std::int32_t status = 0;  // -errno
};
struct RouteResolved {
  static constexpr auto type = Type::route_resolved;
  EndpointId endpoint;
  EndpointStatus known;
};
struct RouteError {
  static constexpr auto type = Type::route_error;
  EndpointId endpoint;
  std::int32_t status = 0;  // -errno
};
struct ConnectRequest {
  static constexpr auto type = Type::connect_request;
  EndpointId endpoint;  // new, and has not been told of before
  EndpointId listener;
  bool is_datagram = false;  // true for UD
  ConnectionParameters parameters;
  EndpointStatus known;
  QpAttributesOfStates attributes;
};
struct ConnectResponse {
  static constexpr auto type = Type::connect_response;
  EndpointId endpoint;
  ConnectionParameters parameters;
  QpAttributesOfStates attributes;
};
struct Unreachable {
  static constexpr auto type = Type::unreachable;
  EndpointId endpoint;
  std::int32_t status = 0;  // -errno, or the status of a SIDR_REP (IBTA 12.11.1)
  std::vector<std::byte> private_data;
};
struct Rejected {
  static constexpr auto type = Type::rejected;
  EndpointId endpoint;
  std::int32_t status = 0;  // the reason (IBTA 12.6.7.2)
  std::vector<std::byte> private_data;
};
struct Established {
  static constexpr auto type = Type::established;
  EndpointId endpoint;
};
// UD: the peer has told its queue pair and Q_Key.
struct DatagramEstablished {
  static constexpr auto type = Type::established;
  EndpointId endpoint;
  std::uint32_t qp_number = 0;
  std::uint32_t qkey = 0;
  ConnectionPath path;
  std::vector<std::byte> private_data;
};
struct Disconnected {
  static constexpr auto type = Type::disconnected;
  EndpointId endpoint;
  std::int32_t status = 0;  // 0, or -ETIMEDOUT if the peer did not answer
};
// The channel itself raises this event, when the agent is gone.
struct DeviceRemoval {
  static constexpr auto type = Type::device_removal;
  EndpointId endpoint;
};
struct MulticastJoined {
  static constexpr auto type = Type::multicast_join;
  EndpointId endpoint;
  std::uint32_t qp_number = 0;
  std::uint32_t qkey = 0;
  Gid address;              // of the group, as the program named it
  ConnectionPath path;      // the destination is the group
  std::int32_t status = 0;  // -errno: the group was not joined
};
struct TimewaitExit {
  static constexpr auto type = Type::timewait_exit;
  EndpointId endpoint;
};
// An event that the program reported to itself.
struct Reported {
  Type type = Type::user;  // one of the last three
  EndpointId endpoint;
  std::int32_t status = 0;
  std::uint64_t argument = 0;
};

}  // namespace event

using ConnectionEvent =
    std::variant<event::AddressResolved, event::AddressError, event::RouteResolved,
                 event::ConnectRequest, event::ConnectResponse, event::Unreachable, event::Rejected,
                 event::Established, event::DatagramEstablished, event::Disconnected,
                 event::DeviceRemoval, event::MulticastJoined, event::TimewaitExit, event::Reported,
                 event::RouteError>;

ConnectionEventType type_of(const ConnectionEvent& event);
EndpointId endpoint_of(const ConnectionEvent& event);
// Returns the endpoint with whose events this one counts: a request counts with its listener.
EndpointId counted_with(const ConnectionEvent& event);

namespace reply {

struct Failed {
  std::int32_t error = 0;  // an errno
};
struct Done {};
struct Created {
  EndpointId endpoint;
};
struct Bound {
  SocketAddress address;
};
struct Destroyed {
  // Events are queued on the channel, which is now held as by command::Hold.
  bool is_held = false;
};

}  // namespace reply

// A command is answered with its Reply, or with Failed.
using ConnectionReply = std::variant<reply::Failed, reply::Done, reply::Created, reply::Bound,
                                     reply::Destroyed, EndpointStatus, QpAttributesOfStates>;

namespace command {

// A command that has no more to say than which endpoint it is for.
struct OfEndpoint {
  using Reply = reply::Done;
  EndpointId endpoint;
};

struct Create {
  using Reply = reply::Created;
  PortSpace port_space{};
  ConnectionQpType qp_type{};
};
struct Bind {
  using Reply = reply::Bound;
  EndpointId endpoint;
  SocketAddress address;
};
struct Listen {
  using Reply = reply::Done;
  EndpointId endpoint;
  std::uint32_t backlog = 0;  // 0 means as many as the agent allows
};
struct ResolveAddress {
  using Reply = reply::Done;
  EndpointId endpoint;
  SocketAddress source;  // may be absent
  SocketAddress destination;
};
struct ResolveRoute : OfEndpoint {};
struct Query : OfEndpoint {
  using Reply = EndpointStatus;
};
struct Connect {
  using Reply = reply::Done;
  EndpointId endpoint;
  ConnectionQpType qp_type{};
  ConnectionParameters parameters;
};
struct Accept {
  using Reply = reply::Done;
  EndpointId endpoint;
  ConnectionQpType qp_type{};
  ConnectionParameters parameters;
};
struct Establish : OfEndpoint {};
struct Reject {
  using Reply = reply::Done;
  EndpointId endpoint;
  std::uint32_t reason = 0;
  std::vector<std::byte> private_data;
};
struct NotifyEstablished : OfEndpoint {};
struct Disconnect : OfEndpoint {};
struct Destroy {
  using Reply = reply::Destroyed;
  EndpointId endpoint;
  std::uint32_t events_taken = 0;  // the endpoint's events that the program has taken
};
struct SetOption {
  using Reply = reply::Done;
  EndpointId endpoint;
  std::uint32_t level = 0;
  std::uint32_t option = 0;
  std::vector<std::byte> value;
};
struct GetQpAttributes {
  using Reply = QpAttributesOfStates;
  EndpointId endpoint;
};
struct JoinMulticast {
  using Reply = reply::Done;
  EndpointId endpoint;
  SocketAddress group;
};
struct LeaveMulticast {
  using Reply = reply::Done;
  EndpointId endpoint;
  SocketAddress group;
};
// Stops events to this channel until GiveBack.
struct Hold : OfEndpoint {};
// Returns events that the program had not taken.
struct GiveBack {
  using Reply = reply::Done;
  bool more_follow = false;
  std::vector<ConnectionEvent> events;
};
// Moves the endpoint to another channel of the process, with the last of the events that the
// program had not taken.
struct Migrate {
  using Reply = reply::Done;
  EndpointId endpoint;
  std::uint32_t channel = 0;
  std::vector<ConnectionEvent> events;
};
// Adds an event of the program's own behind those that wait.
struct Report {
  using Reply = reply::Done;
  EndpointId endpoint;
  ConnectionEventType type{};  // one of the last three
  std::int32_t status = 0;
  std::uint64_t argument = 0;
};

}  // namespace command

using ConnectionCommand =
    std::variant<command::Create, command::Bind, command::Listen, command::ResolveAddress,
                 command::ResolveRoute, command::Query, command::Connect, command::Accept,
                 command::Establish, command::Reject, command::NotifyEstablished,
                 command::Disconnect, command::Destroy, command::SetOption,
                 command::GetQpAttributes, command::JoinMulticast, command::LeaveMulticast,
                 command::Hold, command::GiveBack, command::Migrate, command::Report>;

struct CommandMessage {
  static constexpr auto kind = MessageKind::connection_command;
  // Number of events that the program has taken from the channel's socket since it was opened.
  std::uint32_t events_taken = 0;
  ConnectionCommand command;
};
struct ReplyMessage {
  static constexpr auto kind = MessageKind::connection_reply;
  ConnectionReply reply;
};
struct EventMessage {
  static constexpr auto kind = MessageKind::connection_event;
  ConnectionEvent event;
};

std::vector<std::byte> encode(ChannelOpened message);
std::vector<std::byte> encode(CommandMessage message);
std::vector<std::byte> encode(ReplyMessage message);
std::vector<std::byte> encode(EventMessage message);

// Returns false unless the bytes are exactly one such message of this version.
bool decode(std::span<const std::byte> bytes, ChannelOpened& message);
bool decode(std::span<const std::byte> bytes, CommandMessage& message);
bool decode(std::span<const std::byte> bytes, ReplyMessage& message);
bool decode(std::span<const std::byte> bytes, EventMessage& message);

}  // namespace tulle::live

#include "live/message/connection.h"

#include "live/message/framing.h"

namespace tulle::live {

template <typename Archive>
void fields(Archive& archive, EndpointId& id) {
  archive(id.value);
}
template <typename Archive>
void fields(Archive& archive, SocketAddress& address) {
  archive(address.family, address.port, address.address, address.scope_id,
          address.flow_information);
}
template <typename Archive>
void fields(Archive& archive, ConnectionParameters& p) {
  archive(p.private_data, p.responder_resources, p.initiator_depth, p.flow_control, p.retry_count,
          p.rnr_retry_count, p.srq, p.qp_number, p.qkey);
}
template <typename Archive>
void fields(Archive& archive, ConnectionPath& path) {
  archive(path.source, path.destination, path.gid_index, path.hop_limit, path.traffic_class,
          path.flow_label, path.is_global, path.lid, path.source_lid, path.service_level);
}
template <typename Archive>
void fields(Archive& archive, EndpointStatus& s) {
  archive(s.source, s.destination, s.has_device, s.device, s.port_number, s.pkey, s.has_path,
          s.path_mtu_bytes, s.packet_lifetime, s.path);
}
template <typename Archive>
void fields(Archive& archive, QpAttributes& a) {
  archive(a.mask, a.state, a.access_flags, a.pkey_index, a.port_number, a.qkey, a.path,
          a.path_mtu_bytes, a.destination_qp, a.rq_psn, a.sq_psn, a.max_rd_atomic,
          a.max_dest_rd_atomic, a.min_rnr_timer, a.timeout, a.retry_count, a.rnr_retry);
}
template <typename Archive>
void fields(Archive& archive, QpAttributesOfStates& a) {
  archive(a.init, a.ready_to_receive, a.ready_to_send);
}
template <typename Archive>
void fields(Archive& archive, ChannelOpened& message) {
  archive(message.channel, message.seal_key_id);
}

namespace event {

template <typename Archive>
void fields(Archive& archive, AddressResolved& e) {
  archive(e.endpoint, e.known, e.attributes);
}
template <typename Archive>
void fields(Archive& archive, AddressError& e) {
  archive(e.endpoint, e.status);
}
template <typename Archive>
void fields(Archive& archive, RouteResolved& e) {
  archive(e.endpoint, e.known);
}
template <typename Archive>
void fields(Archive& archive, RouteError& e) {
  archive(e.endpoint, e.status);
}
template <typename Archive>
void fields(Archive& archive, ConnectRequest& e) {
  archive(e.endpoint, e.listener, e.is_datagram, e.parameters, e.known, e.attributes);
}
template <typename Archive>
void fields(Archive& archive, ConnectResponse& e) {
  archive(e.endpoint, e.parameters, e.attributes);
}
template <typename Archive>
void fields(Archive& archive, Unreachable& e) {
  archive(e.endpoint, e.status, e.private_data);
}
template <typename Archive>
void fields(Archive& archive, Rejected& e) {
  archive(e.endpoint, e.status, e.private_data);
}
template <typename Archive>
void fields(Archive& archive, Established& e) {
  archive(e.endpoint);
}
template <typename Archive>
void fields(Archive& archive, DatagramEstablished& e) {
  archive(e.endpoint, e.qp_number, e.qkey, e.path, e.private_data);
}
template <typename Archive>
void fields(Archive& archive, Disconnected& e) {
  archive(e.endpoint, e.status);
}
template <typename Archive>
void fields(Archive& archive, DeviceRemoval& e) {
  archive(e.endpoint);
}
template <typename Archive>
void fields(Archive& archive, MulticastJoined& e) {
  archive(e.endpoint, e.qp_number, e.qkey, e.address, e.path, e.status);
}
template <typename Archive>
void fields(Archive& archive, TimewaitExit& e) {
  archive(e.endpoint);
}
template <typename Archive>
void fields(Archive& archive, Reported& e) {
  archive(e.type, e.endpoint, e.status, e.argument);
}

}  // namespace event

namespace reply {

template <typename Archive>
void fields(Archive& archive, Failed& r) {
  archive(r.error);
}
template <typename Archive>
void fields(Archive&, Done&) {}
template <typename Archive>
void fields(Archive& archive, Created& r) {
  archive(r.endpoint);
}
template <typename Archive>
void fields(Archive& archive, Bound& r) {
  archive(r.address);
}
template <typename Archive>
void fields(Archive& archive, Destroyed& r) {
  archive(r.is_held);
}

}  // namespace reply

namespace command {

template <typename Archive>
void fields(Archive& archive, OfEndpoint& c) {
  archive(c.endpoint);
}
template <typename Archive>
void fields(Archive& archive, Create& c) {
  archive(c.port_space, c.qp_type);
}
template <typename Archive>
void fields(Archive& archive, Bind& c) {
  archive(c.endpoint, c.address);
}
template <typename Archive>
void fields(Archive& archive, Listen& c) {
  archive(c.endpoint, c.backlog);
}
template <typename Archive>
void fields(Archive& archive, ResolveAddress& c) {
  archive(c.endpoint, c.source, c.destination);
}
template <typename Archive>
void fields(Archive& archive, Connect& c) {
  archive(c.endpoint, c.qp_type, c.parameters);
}
template <typename Archive>
void fields(Archive& archive, Accept& c) {
  archive(c.endpoint, c.qp_type, c.parameters);
}
template <typename Archive>
void fields(Archive& archive, Reject& c) {
  archive(c.endpoint, c.reason, c.private_data);
}
template <typename Archive>
void fields(Archive& archive, Destroy& c) {
  archive(c.endpoint, c.events_taken);
}
template <typename Archive>
void fields(Archive& archive, SetOption& c) {
  archive(c.endpoint, c.level, c.option, c.value);
}
template <typename Archive>
void fields(Archive& archive, GetQpAttributes& c) {
  archive(c.endpoint);
}
template <typename Archive>
void fields(Archive& archive, JoinMulticast& c) {
  archive(c.endpoint, c.group);
}
template <typename Archive>
void fields(Archive& archive, LeaveMulticast& c) {
  archive(c.endpoint, c.group);
}
template <typename Archive>
void fields(Archive& archive, GiveBack& c) {
  archive(c.more_follow, c.events);
}
template <typename Archive>
void fields(Archive& archive, Migrate& c) {
  archive(c.endpoint, c.channel, c.events);
}
template <typename Archive>
void fields(Archive& archive, Report& c) {
  archive(c.endpoint, c.type, c.status, c.argument);
}

}  // namespace command

template <typename Archive>
void fields(Archive& archive, CommandMessage& message) {
  archive(message.events_taken, message.command);
}
template <typename Archive>
void fields(Archive& archive, ReplyMessage& message) {
  archive(message.reply);
}
template <typename Archive>
void fields(Archive& archive, EventMessage& message) {
  archive(message.event);
}

std::vector<std::byte> encode(ChannelOpened message) { return encoded(message); }
std::vector<std::byte> encode(CommandMessage message) { return encoded(message); }
std::vector<std::byte> encode(ReplyMessage message) { return encoded(message); }
std::vector<std::byte> encode(EventMessage message) { return encoded(message); }

bool decode(std::span<const std::byte> bytes, ChannelOpened& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, CommandMessage& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, ReplyMessage& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, EventMessage& message) {
  return decoded(bytes, message);
}

ConnectionEventType type_of(const ConnectionEvent& event) {
  return std::visit([](const auto& each) { return each.type; }, event);
}

EndpointId endpoint_of(const ConnectionEvent& event) {
  return std::visit([](const auto& each) { return each.endpoint; }, event);
}

EndpointId counted_with(const ConnectionEvent& event) {
  const auto* request = std::get_if<event::ConnectRequest>(&event);
  return request != nullptr ? request->listener : endpoint_of(event);
}

}  // namespace tulle::live

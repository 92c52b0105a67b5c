#include "live/connection/messages.h"

#include <cstring>

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
          path.flow_label);
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
void fields(Archive& archive, ConnectionEvent& event) {
  archive(event.type, event.endpoint, event.listener, event.status, event.is_datagram,
          event.parameters, event.path);
  if (tells_status(event.type)) archive(event.known);
  if (event.type == ConnectionEventType::user) archive(event.argument);
}
template <typename Archive>
void fields(Archive& archive, ChannelOpened& message) {
  archive(message.channel);
}
template <typename Archive>
void fields(Archive& archive, ConnectionCommand& c) {
  archive(c.operation, c.endpoint, c.events_taken);
  switch (c.operation) {
    case ConnectionOperation::create:
      return archive(c.port_space, c.qp_type);
    case ConnectionOperation::bind:
      return archive(c.source);
    case ConnectionOperation::listen:
    case ConnectionOperation::resolve_route:
      return archive(c.number);
    case ConnectionOperation::resolve_address:
      return archive(c.source, c.destination, c.number);
    case ConnectionOperation::connect:
    case ConnectionOperation::accept:
      return archive(c.parameters, c.qp_type);
    case ConnectionOperation::reject:
      return archive(c.number, c.bytes);
    case ConnectionOperation::destroy:
      return archive(c.level);
    case ConnectionOperation::set_option:
      return archive(c.level, c.number, c.bytes);
    case ConnectionOperation::qp_attributes:
      return archive(c.target);
    case ConnectionOperation::join_multicast:
    case ConnectionOperation::leave_multicast:
      return archive(c.destination, c.number);
    case ConnectionOperation::give_back:
    case ConnectionOperation::migrate:
    case ConnectionOperation::report:
      return archive(c.number, c.events);
    case ConnectionOperation::query:
    case ConnectionOperation::establish:
    case ConnectionOperation::notify_established:
    case ConnectionOperation::disconnect:
    case ConnectionOperation::hold:
      return;
  }
}
template <typename Archive>
void fields(Archive& archive, ConnectionReply& r) {
  archive(r.operation, r.error, r.endpoint);
  if (r.operation == ConnectionOperation::bind) archive(r.source);
  if (r.operation == ConnectionOperation::destroy) archive(r.is_held);
  if (r.operation == ConnectionOperation::query) archive(r.status);
  if (r.operation == ConnectionOperation::qp_attributes) archive(r.attributes);
}

std::vector<std::byte> encode(ConnectionEvent message) { return encoded(message); }
std::vector<std::byte> encode(ChannelOpened message) { return encoded(message); }
std::vector<std::byte> encode(ConnectionCommand message) { return encoded(message); }
std::vector<std::byte> encode(ConnectionReply message) { return encoded(message); }

bool decode(std::span<const std::byte> bytes, ConnectionEvent& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, ChannelOpened& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, ConnectionCommand& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, ConnectionReply& message) {
  return decoded(bytes, message);
}

std::optional<SocketAddress> SocketAddress::from(const sockaddr* name, std::size_t bytes) {
  SocketAddress out;
  if (name == nullptr || bytes < sizeof(sa_family_t)) return std::nullopt;
  if (name->sa_family == AF_INET && bytes >= sizeof(sockaddr_in)) {
    sockaddr_in in;
    std::memcpy(&in, name, sizeof(in));
    std::memcpy(out.address.data(), &in.sin_addr, sizeof(in.sin_addr));
    out.port = ntohs(in.sin_port);
  } else if (name->sa_family == AF_INET6 && bytes >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in6;
    std::memcpy(&in6, name, sizeof(in6));
    std::memcpy(out.address.data(), &in6.sin6_addr, sizeof(in6.sin6_addr));
    out.port = ntohs(in6.sin6_port);
    out.scope_id = in6.sin6_scope_id;
    out.flow_information = ntohl(in6.sin6_flowinfo);
  } else {
    return std::nullopt;
  }
  out.family = name->sa_family;
  return out;
}

socklen_t SocketAddress::copy_to(sockaddr_storage& to) const {
  to = {};
  if (family == AF_INET) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, address.data(), sizeof(in.sin_addr));
    std::memcpy(&to, &in, sizeof(in));
    return sizeof(in);
  }
  if (family != AF_INET6) return 0;
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(port);
  in6.sin6_scope_id = scope_id;
  in6.sin6_flowinfo = htonl(flow_information);
  std::memcpy(&in6.sin6_addr, address.data(), sizeof(in6.sin6_addr));
  std::memcpy(&to, &in6, sizeof(in6));
  return sizeof(in6);
}

Gid SocketAddress::gid() const {
  Gid gid;
  if (family == AF_INET) {
    gid.bytes[10] = gid.bytes[11] = 0xFF;
    std::memcpy(gid.bytes.data() + 12, address.data(), 4);
  } else {
    std::memcpy(gid.bytes.data(), address.data(), address.size());
  }
  return gid;
}

}  // namespace tulle::live

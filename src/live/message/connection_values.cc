#include "live/message/connection_values.h"

#include <cstring>

namespace tulle::live {

SocketAddress SocketAddress::of(const Gid& gid, std::uint16_t port) {
  SocketAddress out;
  out.family = infiniband_family;
  out.port = port;
  std::memcpy(out.address.data(), gid.bytes.data(), out.address.size());
  return out;
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

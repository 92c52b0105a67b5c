#include "live/path/packets/udp_socket.h"
#include "live/path/packets/kernel_socket.h"

#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/ids.h"

namespace tulle::live {
namespace {

constexpr int buffer_bytes = 8 << 20;

bool set(int socket, int level, int name, int value) {
  return setsockopt(socket, level, name, &value, sizeof(value)) == 0;
}

Error system_error(const char* what, std::uint16_t port) {
  const int number = errno;
  if (number == EADDRINUSE) return {fmt::format("UDP port {} is in use", port), number};
  return {fmt::format("{} (UDP port {}): {}", what, port, std::strerror(number)), number};
}

void set_options(int socket, bool ipv6) {
  if (!set(socket, SOL_SOCKET, SO_RCVBUFFORCE, buffer_bytes)) {
    set(socket, SOL_SOCKET, SO_RCVBUF, buffer_bytes);
  }
  if (!set(socket, SOL_SOCKET, SO_SNDBUFFORCE, buffer_bytes)) {
    set(socket, SOL_SOCKET, SO_SNDBUF, buffer_bytes);
  }
  // Sets "don't fragment": RoCE does not use fragments, and the flag keeps the identification
  // known. An ICMP message about a path's MTU is ignored: anyone could forge one that makes the
  // kernel refuse all longer packets to a peer for ten minutes.
  set(socket, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  set(socket, IPPROTO_IP, IP_RECVTOS, 1);
  set(socket, IPPROTO_IP, IP_RECVTTL, 1);
  set(socket, IPPROTO_UDP, UDP_GRO, 1);  // must be set before data arrives
  // The socket receives only the multicast groups that it has joined, not all that other sockets of
  // the host have joined.
  set(socket, IPPROTO_IP, IP_MULTICAST_ALL, 0);
  if (ipv6) {
    set(socket, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
    set(socket, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
    set(socket, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);  // IPv4's too, as mapped addresses
    set(socket, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    set(socket, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    // The kernel's Soft-RoCE sends checksum 0 over IPv6 too, which sockets refuse unless told
    // otherwise (RFC 6936 lets applications choose). The ICRC protects what the checksum would.
    set(socket, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
  } else {
    set(socket, IPPROTO_IP, IP_PKTINFO, 1);
  }
}

int bind_any(int socket, bool ipv6, std::uint16_t port) {
  if (ipv6) {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    return bind(socket, reinterpret_cast<const sockaddr*>(&any), sizeof(any));
  }
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  return bind(socket, reinterpret_cast<const sockaddr*>(&any), sizeof(any));
}

template <typename T>
void put_control(SendAddress& address, int level, int type, const T& value) {
  cmsghdr header{};
  header.cmsg_len = CMSG_LEN(sizeof(T));
  header.cmsg_level = level;
  header.cmsg_type = type;
  std::byte* at = address.control + address.control_bytes;
  std::memcpy(at, &header, sizeof(header));
  std::memcpy(at + CMSG_LEN(0), &value, sizeof(T));
  address.control_bytes += CMSG_SPACE(sizeof(T));
  static_assert(sizeof(T) <= sizeof(in6_pktinfo));
}

bool is_link_local(const Gid& gid) { return gid.bytes[0] == 0xFE && (gid.bytes[1] & 0xC0) == 0x80; }

void fill_ipv6(SendAddress& address, const wire::IpUdp& ip, std::uint32_t interface_index,
               std::uint16_t port) {
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_port = htons(port);
  std::memcpy(&to.sin6_addr, ip.destination.bytes.data(), 16);
  const bool is_multicast = ip.destination.is_multicast();
  if (is_link_local(ip.destination) || is_multicast) to.sin6_scope_id = interface_index;
  std::memcpy(&address.name, &to, sizeof(to));
  address.name_bytes = sizeof(to);
  in6_pktinfo from{};
  std::memcpy(&from.ipi6_addr, ip.source.bytes.data(), 16);
  if (is_link_local(ip.source) || is_multicast) from.ipi6_ifindex = interface_index;
  put_control(address, IPPROTO_IPV6, IPV6_PKTINFO, from);
}

void fill_ipv4(SendAddress& address, const wire::IpUdp& ip, std::uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(ip.destination.ipv4());
  std::memcpy(&address.name, &to, sizeof(to));
  address.name_bytes = sizeof(to);
  in_pktinfo from{};
  from.ipi_spec_dst.s_addr = htonl(ip.source.ipv4());
  put_control(address, IPPROTO_IP, IP_PKTINFO, from);
}

template <typename T>
T control_value(const cmsghdr* control) {
  T value;
  std::memcpy(&value, CMSG_DATA(control), sizeof(value));
  return value;
}

Gid gid_of(const in6_addr& address) {
  Gid gid;
  std::memcpy(gid.bytes.data(), &address, gid.bytes.size());
  return gid;
}

void read_control(const cmsghdr* control, ReceivedHeaders& out) {
  if (control->cmsg_level == IPPROTO_IPV6) {
    if (control->cmsg_type == IPV6_PKTINFO) {
      out.ip.destination = gid_of(control_value<in6_pktinfo>(control).ipi6_addr);
    } else if (control->cmsg_type == IPV6_TCLASS) {
      out.ip.traffic_class = static_cast<std::uint8_t>(control_value<int>(control));
    } else if (control->cmsg_type == IPV6_HOPLIMIT) {
      out.ip.hop_limit = static_cast<std::uint8_t>(control_value<int>(control));
    }
  } else if (control->cmsg_level == IPPROTO_IP) {
    if (control->cmsg_type == IP_PKTINFO) {
      out.ip.destination =
          Gid::from_ipv4(ntohl(control_value<in_pktinfo>(control).ipi_addr.s_addr));
    } else if (control->cmsg_type == IP_TOS) {
      out.ip.traffic_class = control_value<std::uint8_t>(control);
    } else if (control->cmsg_type == IP_TTL) {
      out.ip.hop_limit = static_cast<std::uint8_t>(control_value<int>(control));
    }
  } else if (control->cmsg_level == IPPROTO_UDP && control->cmsg_type == UDP_GRO) {
    out.segment_bytes = static_cast<std::uint16_t>(control_value<int>(control));
  }
}

}  // namespace

Result<UniqueFd> bind_udp(std::uint16_t port, PortUse use) {
  bool ipv6 = true;
  UniqueFd fd = kernel_socket(AF_INET6, SOCK_DGRAM);
  if (fd && !set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0)) fd.reset();
  for (;;) {
    if (!fd) {
      ipv6 = false;
      fd = kernel_socket(AF_INET, SOCK_DGRAM);
      if (!fd) return system_error("cannot make a socket", port);
    }
    if (use == PortUse::shared && !set(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1)) {
      return system_error("cannot share the port", port);
    }
    if (bind_any(fd.get(), ipv6, port) == 0) break;
    // A host with net.ipv6.conf.all.disable_ipv6 has IPv6 sockets, but no address to bind.
    if (!ipv6 || errno != EADDRNOTAVAIL) return system_error("cannot bind", port);
    fd.reset();
  }
  set_options(fd.get(), ipv6);
  return fd;
}

Result<UniqueFd> bind_sender(std::uint32_t preferred) {
  constexpr std::uint16_t first = 0xC000;
  constexpr std::uint32_t tries = 8;
  for (std::uint32_t i = 0; i <= tries; ++i) {
    const std::uint32_t choice = (preferred + i * 0x9E5u) & 0x3FFF;
    const auto port = static_cast<std::uint16_t>(i < tries ? first | choice : 0);
    auto bound = bind_udp(port, PortUse::exclusive);
    if (!bound && bound.error().error_number == EADDRINUSE) continue;
    if (!bound) return bound;
    sock_filter refuse[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    const sock_fprog program{1, refuse};
    setsockopt(bound->get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
    return bound;
  }
  return Error{"no UDP port is free to send from", EADDRINUSE};
}

std::uint16_t port_of(int socket) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  getsockname(socket, reinterpret_cast<sockaddr*>(&name), &bytes);
  sockaddr_in in;  // the port is at the same place in sockaddr_in6
  std::memcpy(&in, &name, sizeof(in));
  return ntohs(in.sin_port);
}

bool is_ipv6(int socket) {
  int domain = 0;
  socklen_t bytes = sizeof(domain);
  getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes);
  return domain == AF_INET6;
}

void fill(SendAddress& address, const wire::IpUdp& ip, bool ipv6_socket,
          std::uint32_t interface_index, std::uint16_t port, std::uint16_t segment_bytes) {
  address.control_bytes = 0;
  if (ipv6_socket) {
    fill_ipv6(address, ip, interface_index, port);
  } else {
    fill_ipv4(address, ip, port);
  }
  constexpr std::uint8_t default_hop_limit = 64;
  const bool ipv4 = wire::is_ipv4(ip);
  const int hop_limit = ip.hop_limit == 0 ? default_hop_limit : ip.hop_limit;
  if (ip.traffic_class != 0) {
    put_control(address, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS,
                int{ip.traffic_class});
  }
  // Linux sends to multicast groups with hop limit 1 unless told otherwise.
  if (hop_limit != default_hop_limit || ip.destination.is_multicast()) {
    put_control(address, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TTL : IPV6_HOPLIMIT,
                hop_limit);
  }
  if (segment_bytes != 0) put_control(address, IPPROTO_UDP, UDP_SEGMENT, segment_bytes);
}

ReceivedHeaders read_headers(msghdr& message) {
  ReceivedHeaders out;
  if (message.msg_namelen >= sizeof(sockaddr_in6)) {
    sockaddr_in6 from;
    std::memcpy(&from, message.msg_name, sizeof(from));
    out.ip.source = gid_of(from.sin6_addr);
    out.ip.source_port = ntohs(from.sin6_port);
  } else {
    sockaddr_in from;
    std::memcpy(&from, message.msg_name, sizeof(from));
    out.ip.source = Gid::from_ipv4(ntohl(from.sin_addr.s_addr));
    out.ip.source_port = ntohs(from.sin_port);
  }
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    read_control(c, out);
  }
  return out;
}

}  // namespace tulle::live

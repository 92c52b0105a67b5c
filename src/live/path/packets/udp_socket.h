#pragma once

// The options of every UDP socket of a device, and the control data that goes with each datagram.
//
// The sockets are IPv6 sockets with IPv4 mapped into them, so that an address is a GID as it is. If
// the host has no IPv6, they are IPv4 sockets. They stay unconnected, because Linux then writes
// IPv4 identification 0 (k for the k-th segment of one call), which the ICRC covers
// (docs/decisions/004-udp-sockets-without-privileges.md).

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "os/unique_fd.h"
#include "rdma/wire/ip_udp.h"

namespace tulle::live {

enum class PortUse : std::uint8_t {
  exclusive,  // fails with EADDRINUSE if the port is in use
  shared,     // SO_REUSEPORT
};

// Returns a socket bound to that port on all addresses. Port 0 means any port.
Result<UniqueFd> bind_udp(std::uint16_t port, PortUse use);
// Returns a socket to send from, with a source port from 0xC000 up if one is free (IBTA A17.9.1).
// It receives nothing.
Result<UniqueFd> bind_sender(std::uint32_t preferred);
std::uint16_t port_of(int socket);
bool is_ipv6(int socket);

// The destination and header fields of a datagram, in the form that sendmsg takes.
struct SendAddress {
  sockaddr_storage name;
  socklen_t name_bytes = 0;
  alignas(cmsghdr) std::byte control[160];
  std::size_t control_bytes = 0;
};
// `interface_index` applies to link-local and multicast addresses. segment_bytes 0 means one
// datagram.
void fill(SendAddress& address, const wire::IpUdp& ip, bool ipv6_socket,
          std::uint32_t interface_index, std::uint16_t port, std::uint16_t segment_bytes);

inline constexpr std::size_t receive_control_bytes = 160;
struct ReceivedHeaders {
  wire::IpUdp ip;
  std::uint16_t segment_bytes = 0;  // 0 means one datagram
};
// Reads the headers of a message that recvmsg has filled in.
ReceivedHeaders read_headers(msghdr& message);

}  // namespace tulle::live

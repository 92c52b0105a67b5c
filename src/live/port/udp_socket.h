#pragma once

// The options of every UDP socket of a device, and what they say with each datagram.
//
// Sockets are IPv6's with IPv4 mapped into it, so that an address is a GID as it stands; where the
// host has no IPv6, IPv4's. They stay unconnected: then Linux writes IPv4 identification 0 (k for
// the k-th segment of one call), which the ICRC covers
// (docs/decisions/004-udp-sockets-without-privileges.md).

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "live/unique_fd.h"
#include "wire/ip_udp.h"

namespace tulle::live {

enum class PortUse : std::uint8_t {
  exclusive,  // fails with EADDRINUSE if the port is in use
  shared,     // SO_REUSEPORT
};

// A socket bound to that port on all addresses; port 0: any.
Result<UniqueFd> bind_udp(std::uint16_t port, PortUse use);
// One to send from, with a source port from 0xC000 up where one is free (IBTA A17.9.1), which
// receives nothing.
Result<UniqueFd> bind_sender(std::uint32_t preferred);
std::uint16_t port_of(int socket);
bool is_ipv6(int socket);

// Where a datagram goes, and what its header says, as sendmsg wants to be told.
struct SendAddress {
  sockaddr_storage name;
  socklen_t name_bytes = 0;
  alignas(cmsghdr) std::byte control[160];
  std::size_t control_bytes = 0;
};
// `interface_index` is for link-local addresses. segment_bytes 0: one datagram.
void fill(SendAddress& address, const wire::IpUdp& ip, bool ipv6_socket,
          std::uint32_t interface_index, std::uint16_t port, std::uint16_t segment_bytes);

inline constexpr std::size_t receive_control_bytes = 160;
struct ReceivedHeaders {
  wire::IpUdp ip;
  std::uint16_t segment_bytes = 0;  // 0: one datagram
};
// `message` is as recvmsg left it.
ReceivedHeaders read_headers(msghdr& message);

}  // namespace tulle::live

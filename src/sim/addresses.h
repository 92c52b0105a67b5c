#pragma once

// The addresses of a simulated network's hosts, and the headers that a frame would have in front of
// its transport's headers, and which it does not carry.

#include <cstdint>

#include "fabric/lids.h"
#include "rdma/port/frame.h"
#include "rdma/wire/path.h"
#include "sim/network_settings.h"

namespace tulle::sim {

inline constexpr std::uint32_t first_address = 0x0A00'0001;  // 10.0.0.1

// Returns the GID of a host's port on Ethernet, which is an IPv4 address.
inline Gid gid_of(std::uint32_t host) { return Gid::from_ipv4(first_address + host); }
// Returns the address of a host's port: on Ethernet its GID; on InfiniBand the one of its 2^LMC
// LIDs that the path bits select.
PortAddress address_of(const NetworkSettings& settings, std::uint32_t host,
                       std::uint8_t path_bits = 0);
// Returns the host that has an address.
inline std::uint32_t host_at(const NetworkSettings& settings, const PortAddress& address) {
  return settings.link_layer == LinkLayer::infiniband ? fabric::host_of(address.lid, settings.lmc)
                                                      : address.gid.ipv4() - first_address;
}
// Returns the MAC address of a host: a locally administered one (IEEE 802) that holds its number.
wire::MacAddress mac_of(std::uint32_t host);

// Sets the headers of IP and UDP, which have their defaults so far.
inline void set_ip(const port::Frame& frame, wire::IpUdp& ip) {
  ip.source = gid_of(frame.source);
  ip.destination = gid_of(frame.destination);
  ip.source_port = frame.source_port;
  ip.traffic_class = frame.traffic_class;
}
// Returns the headers of IP and UDP.
inline wire::IpUdp ip_of(const port::Frame& frame) {
  wire::IpUdp ip;
  set_ip(frame, ip);
  return ip;
}
// Returns the same of a packet of RoCE v1: those of Ethernet, and the GRH.
wire::EthernetPath ethernet_path_of(const port::Frame& frame);
// Returns the LRH of a packet between hosts with 2^lmc LIDs.
wire::LocalRoute local_route_of(const port::Frame& frame, unsigned lmc);

}  // namespace tulle::sim

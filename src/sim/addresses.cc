#include "sim/addresses.h"

namespace tulle::sim {

PortAddress address_of(const NetworkSettings& settings, std::uint32_t host,
                       std::uint8_t path_bits) {
  if (settings.link_layer == LinkLayer::ethernet) return gid_of(host);
  return fabric::lid_of(host, settings.lmc, path_bits);
}

wire::MacAddress mac_of(std::uint32_t host) {
  wire::MacAddress mac{0x02, 0};
  for (std::size_t i = 0; i < 4; ++i) mac[2 + i] = static_cast<std::uint8_t>(host >> (24 - 8 * i));
  return mac;
}

wire::EthernetPath ethernet_path_of(const port::Frame& frame) {
  wire::EthernetPath path;
  path.source = mac_of(frame.source);
  path.destination = mac_of(frame.destination);
  path.priority = frame.service_level & 7;
  path.global.source = gid_of(frame.source);
  path.global.destination = gid_of(frame.destination);
  path.global.traffic_class = frame.traffic_class;
  return path;
}

wire::LocalRoute local_route_of(const port::Frame& frame, unsigned lmc) {
  wire::LocalRoute route;
  route.vl = frame.service_class;
  route.service_level = frame.service_level;
  route.destination = fabric::lid_of(frame.destination, lmc, frame.path);
  // Each end uses one of its LIDs for a connection, since the receiver checks where packets come
  // from (IBTA 9.6.1).
  route.source = fabric::lid_of(frame.source, lmc, frame.path);
  return route;
}

}  // namespace tulle::sim

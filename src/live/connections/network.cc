#include "live/connections/network.h"

#include <sys/socket.h>

namespace tulle::live {

ConnectionRoute ConnectionRoute::of(const wire::PathRecord& record) {
  ConnectionRoute route;
  route.path_mtu = wire::selected_value(record.mtu);
  route.packet_lifetime = wire::selected_value(record.life_time);
  route.remote_lid = record.destination_lid;
  route.service_level = record.qos_class_and_sl & 0xF;
  return route;
}

bool is_loopback(const SocketAddress& address) {
  if (address.family == AF_INET) return address.address[0] == std::byte{127};
  const Gid gid = address.gid();
  if (gid.is_ipv4_mapped()) return gid.bytes[12] == 127;
  Gid loopback;
  loopback.bytes[15] = 1;
  return gid == loopback;
}

std::optional<LocalAddress> local_address(const DeviceInfo& device, const SocketAddress& address,
                                          const Gid& wanted) {
  std::optional<LocalAddress> alias;
  bool alias_is_of_family = false;
  for (std::size_t i = 0; i < device.gids.size() && i < gids_max; ++i) {
    const GidEntry& entry = device.gids[i];
    if (!entry.in_use()) continue;
    const LocalAddress found{entry.gid, static_cast<std::uint8_t>(i), entry.interface_index};
    const bool is_other_link = address.scope_id != 0 && address.scope_id != entry.interface_index;
    if (entry.gid == wanted && !is_other_link) return found;
    const bool is_of_family = entry.gid.is_ipv4_mapped() == wanted.is_ipv4_mapped();
    if (!alias || (is_of_family && !alias_is_of_family)) {
      alias = found;
      alias_is_of_family = is_of_family;
    }
  }
  return is_loopback(address) ? alias : std::nullopt;
}

}  // namespace tulle::live

#include "live/connections/network.h"

#include <sys/socket.h>

#include <algorithm>

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

namespace {

// Where an address is used by both versions of RoCE, connections are RoCE v2's, as in Linux
// (drivers/infiniband/core/cma.c: default_roce_mode).
LocalAddress of_version(const DeviceInfo& device, const LocalAddress& found, bool is_roce_v1) {
  if (found.is_roce_v1 == is_roce_v1) return found;
  GidEntry wanted = device.gids[found.gid_index];
  wanted.is_roce_v1 = is_roce_v1;
  const auto other = std::ranges::find(device.gids, wanted);
  if (other == device.gids.end()) return found;
  LocalAddress preferred = found;
  preferred.gid_index = static_cast<std::uint8_t>(other - device.gids.begin());
  preferred.is_roce_v1 = is_roce_v1;
  return preferred;
}

}  // namespace

std::optional<LocalAddress> local_address(const DeviceInfo& device, const SocketAddress& address,
                                          const Gid& wanted, bool of_roce_v1) {
  std::optional<LocalAddress> alias;
  bool alias_is_of_family = false;
  for (std::size_t i = 0; i < device.gids.size() && i < gids_max; ++i) {
    const GidEntry& entry = device.gids[i];
    if (!entry.in_use()) continue;
    const LocalAddress found{entry.gid, static_cast<std::uint8_t>(i), entry.interface_index,
                             entry.is_roce_v1};
    const bool is_other_link = address.scope_id != 0 && address.scope_id != entry.interface_index;
    if (entry.gid == wanted && !is_other_link) return of_version(device, found, of_roce_v1);
    const bool is_of_family = entry.gid.is_ipv4_mapped() == wanted.is_ipv4_mapped();
    if (!alias || (is_of_family && !alias_is_of_family)) {
      alias = found;
      alias_is_of_family = is_of_family;
    }
  }
  if (!alias || !is_loopback(address)) return std::nullopt;
  return of_version(device, *alias, of_roce_v1);
}

}  // namespace tulle::live

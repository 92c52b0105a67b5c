#include "live/path/packets/multicast.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <set>

namespace tulle::live {
namespace {

bool change_ipv4(int socket, int option, const Gid& group, std::uint32_t interface_index) {
  ip_mreqn request{};
  request.imr_multiaddr.s_addr = htonl(group.ipv4());
  request.imr_ifindex = static_cast<int>(interface_index);
  return setsockopt(socket, IPPROTO_IP, option, &request, sizeof(request)) == 0;
}

bool change_ipv6(int socket, int option, const Gid& group, std::uint32_t interface_index) {
  ipv6_mreq request{};
  std::memcpy(&request.ipv6mr_multiaddr, group.bytes.data(), sizeof(request.ipv6mr_multiaddr));
  request.ipv6mr_interface = interface_index;
  return setsockopt(socket, IPPROTO_IPV6, option, &request, sizeof(request)) == 0;
}

// Returns the interfaces on which the device has addresses of the group's family.
std::set<std::uint32_t> interfaces_of(const DeviceInfo& device, const Gid& group) {
  std::set<std::uint32_t> found;
  for (const GidEntry& entry : device.gids) {
    if (!entry.in_use()) continue;
    if (entry.gid.is_ipv4_mapped() == group.is_ipv4_mapped()) found.insert(entry.interface_index);
  }
  return found;
}

}  // namespace

int join_group(int socket, const DeviceInfo& device, const Gid& group) {
  const auto interfaces = interfaces_of(device, group);
  if (interfaces.empty()) return EADDRNOTAVAIL;
  for (const std::uint32_t interface_index : interfaces) {
    const bool joined = group.is_ipv4_mapped()
                            ? change_ipv4(socket, IP_ADD_MEMBERSHIP, group, interface_index)
                            : change_ipv6(socket, IPV6_JOIN_GROUP, group, interface_index);
    // EADDRINUSE: the slot's last process had joined the group and was ended before it could leave.
    if (joined || errno == EADDRINUSE) continue;
    const int error = errno;
    leave_group(socket, device, group);
    return error;
  }
  return 0;
}

void leave_group(int socket, const DeviceInfo& device, const Gid& group) {
  for (const std::uint32_t interface_index : interfaces_of(device, group)) {
    if (group.is_ipv4_mapped()) {
      change_ipv4(socket, IP_DROP_MEMBERSHIP, group, interface_index);
    } else {
      change_ipv6(socket, IPV6_LEAVE_GROUP, group, interface_index);
    }
  }
}

}  // namespace tulle::live

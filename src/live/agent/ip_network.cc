#include "live/agent/ip_network.h"

#include <sys/socket.h>

#include <cerrno>

#include "verbs/types.h"

namespace tulle::live {
namespace {

// The packet lifetime that Linux's rdma_cm assumes for RoCE: 4.096 us * 2^16 = 0.27 s
// (CMA_IBOE_PACKET_LIFETIME in cma.c; kernels before 6.5 used 18).
constexpr std::uint8_t default_packet_lifetime = 16;

UniqueFd datagram_socket(std::uint16_t family) {
  return UniqueFd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

int bind_to(int socket, SocketAddress address) {
  address.port = 0;
  sockaddr_storage name;
  const socklen_t bytes = address.copy_to(name);
  return bind(socket, reinterpret_cast<const sockaddr*>(&name), bytes) == 0 ? 0 : errno;
}

}  // namespace

Result<DeviceInfo> IpNetwork::describe(const DeviceChoice& choice) {
  auto device = devices_.find(choice);
  if (!device) return device.error();
  return (*device)->info;
}

int IpNetwork::check_is_local(const SocketAddress& address) {
  const UniqueFd fd = datagram_socket(address.family);
  if (!fd) return errno;
  return bind_to(fd.get(), address);
}

int IpNetwork::find_source(SocketAddress& source, const SocketAddress& destination) {
  const UniqueFd fd = datagram_socket(destination.family);
  if (!fd) return errno;
  if (source.family != 0 && !source.is_wildcard()) {
    if (source.family != destination.family) return EINVAL;
    if (const int error = bind_to(fd.get(), source); error != 0) return error;
  }
  SocketAddress to = destination;
  if (to.port == 0) to.port = 1;  // any port serves, since nothing is sent
  sockaddr_storage name;
  const socklen_t bytes = to.copy_to(name);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), bytes) != 0) return errno;
  socklen_t own_bytes = sizeof(name);
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &own_bytes) != 0) return errno;
  const auto own = SocketAddress::from(reinterpret_cast<const sockaddr*>(&name), own_bytes);
  if (!own) return EADDRNOTAVAIL;
  source = *own;
  source.port = 0;
  return 0;
}

std::optional<ConnectionRoute> IpNetwork::find_route(Asker, const DeviceInfo& device, const Gid&) {
  return ConnectionRoute{verbs::mtu_code(device.mtu_bytes), default_packet_lifetime};
}

void IpNetwork::send(const management::cm::Outgoing& datagram) {
  wire::IpUdp ip;
  ip.source = datagram.route.local;
  ip.destination = datagram.route.remote;
  ip.traffic_class = datagram.route.traffic_class;
  port_.send(ip, devices_.interface_of(ip.source), datagram.bytes);
}

bool IpNetwork::receive(Time now, const Handle& handle) {
  if (seal_ != nullptr) seal_->look_at_file(now);
  return port_.receive([&](const wire::IpUdp& ip, std::span<const std::byte> payload) {
    // The bits in which the network marks congestion are removed.
    const auto traffic_class = static_cast<std::uint8_t>(ip.traffic_class & ~wire::ecn_mask);
    handle({ip.destination, ip.source, traffic_class}, payload);
  });
}

void IpNetwork::rebase(Time by) {
  if (seal_ != nullptr) seal_->rebase(by);
}

}  // namespace tulle::live

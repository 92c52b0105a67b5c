#include "live/agent/connection_addresses.h"

#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "live/message/device_info.h"
#include "live/unique_fd.h"

namespace tulle::live {
namespace {

// The default of Linux's net.ipv4.ip_local_port_range.
constexpr std::uint32_t ephemeral_first = 32'768;
constexpr std::uint32_t ephemeral_count = 60'999 - ephemeral_first + 1;

UniqueFd datagram_socket(std::uint16_t family) {
  return UniqueFd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

int bind_to(int socket, SocketAddress address) {
  address.port = 0;
  sockaddr_storage name;
  const socklen_t bytes = address.copy_to(name);
  return bind(socket, reinterpret_cast<const sockaddr*>(&name), bytes) == 0 ? 0 : errno;
}

bool conflicts(const PortTable::Binding& a, const PortTable::Binding& b) {
  const auto covers = [](const PortTable::Binding& wide, const PortTable::Binding& other) {
    if (!wide.address.is_wildcard()) return false;
    if (wide.address.family == other.address.family) return true;
    return wide.address.family == AF_INET6 && !wide.is_ipv6_only;
  };
  const bool is_same =
      a.address.family == b.address.family && a.address.address == b.address.address;
  return is_same || covers(a, b) || covers(b, a);
}

}  // namespace

bool is_loopback(const SocketAddress& address) {
  if (address.family == AF_INET) return address.address[0] == std::byte{127};
  const Gid gid = address.gid();
  if (gid.is_ipv4_mapped()) return gid.bytes[12] == 127;
  Gid loopback;
  loopback.bytes[15] = 1;
  return gid == loopback;
}

std::optional<LocalAddress> local_address(const DeviceInfo& device, const SocketAddress& address) {
  const Gid wanted = address.gid();
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

int check_is_local(const SocketAddress& address) {
  const UniqueFd fd = datagram_socket(address.family);
  if (!fd) return errno;
  return bind_to(fd.get(), address);
}

int find_source(SocketAddress& source, const SocketAddress& destination) {
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

int PortTable::bind(PortSpace space, Binding binding, SocketAddress& address,
                    std::uint32_t random) {
  const bool is_chosen = address.port != 0;
  const std::uint32_t tries = is_chosen ? 1 : ephemeral_count;
  for (std::uint32_t i = 0; i < tries; ++i) {
    const auto port =
        is_chosen ? address.port
                  : static_cast<std::uint16_t>(ephemeral_first + (random + i) % ephemeral_count);
    const auto found = ports_.find(Key{space, port});
    if (found != ports_.end()) {
      if (!is_chosen) continue;
      for (const Binding& other : found->second) {
        if (conflicts(binding, other) && !(binding.may_share && other.may_share)) {
          return EADDRINUSE;
        }
      }
    }
    address.port = port;
    binding.address = address;
    ports_[Key{space, port}].push_back(binding);
    return 0;
  }
  return EADDRNOTAVAIL;
}

void PortTable::release(PortSpace space, std::uint16_t port, EndpointId endpoint) {
  const auto found = ports_.find(Key{space, port});
  if (found == ports_.end()) return;
  std::erase_if(found->second, [&](const Binding& b) { return b.endpoint == endpoint; });
  if (found->second.empty()) ports_.erase(found);
}

int PortTable::listen(PortSpace space, std::uint16_t port, EndpointId endpoint) {
  const auto found = ports_.find(Key{space, port});
  if (found == ports_.end()) return EINVAL;
  auto& bindings = found->second;
  const auto own = std::find_if(bindings.begin(), bindings.end(),
                                [&](const Binding& b) { return b.endpoint == endpoint; });
  if (own == bindings.end()) return EINVAL;
  for (const Binding& other : bindings) {
    if (&other != &*own && other.is_listening && conflicts(*own, other)) return EADDRINUSE;
  }
  own->is_listening = true;
  return 0;
}

// Chooses the most exact listener: the address itself, then the wildcard of its family, then
// IPv6's, which serves IPv4 too.
EndpointId PortTable::listener(PortSpace space, const SocketAddress& destination) const {
  const auto found = ports_.find(Key{space, destination.port});
  if (found == ports_.end()) return {};
  EndpointId best;
  int best_rank = 0;
  for (const Binding& binding : found->second) {
    if (!binding.is_listening) continue;
    const SocketAddress& at = binding.address;
    int rank = 0;
    if (at.is_wildcard()) {
      if (at.family == destination.family) rank = 2;
      if (at.family == AF_INET6 && destination.family == AF_INET && !binding.is_ipv6_only) rank = 1;
    } else if (at.gid() == destination.gid()) {
      rank = 3;
    }
    if (rank > best_rank) {
      best_rank = rank;
      best = binding.endpoint;
    }
  }
  return best;
}

}  // namespace tulle::live

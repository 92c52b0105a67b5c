#include "live/connections/port_table.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace tulle::live {
namespace {

// The default of Linux's net.ipv4.ip_local_port_range.
constexpr std::uint32_t ephemeral_first = 32'768;
constexpr std::uint32_t ephemeral_count = 60'999 - ephemeral_first + 1;

// Returns the family of the requests that come to an address: an IPv4 address that is written as an
// IPv6 one is an IPv4 address.
std::uint16_t family_of(const SocketAddress& address) {
  const bool is_mapped = address.family == AF_INET6 && address.gid().is_ipv4_mapped();
  return is_mapped ? std::uint16_t{AF_INET} : address.family;
}

// True if a request may find both. Addresses are compared as listener() compares them: else
// somebody could listen at another's address in another form.
bool conflicts(const PortTable::Binding& a, const PortTable::Binding& b) {
  const auto covers = [](const PortTable::Binding& wide, const PortTable::Binding& other) {
    if (!wide.address.is_wildcard()) return false;
    if (wide.address.family == family_of(other.address)) return true;
    const bool is_ip = !other.address.is_gid();
    return wide.address.family == AF_INET6 && is_ip && !wide.is_ipv6_only;
  };
  const bool is_same =
      a.address.is_gid() == b.address.is_gid() && a.address.gid() == b.address.gid();
  return is_same || covers(a, b) || covers(b, a);
}

}  // namespace

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
// IPv6's, which serves IPv4 too. A GID and an address of IP are never the same address.
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
    } else if (at.is_gid() == destination.is_gid() && at.gid() == destination.gid()) {
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

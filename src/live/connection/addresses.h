#pragma once

// Which addresses and ports endpoints have: the kernel's routing says the addresses, and the agent
// gives the ports, since UDP and TCP ports of the host are others.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "live/connection/messages.h"
#include "live/device.h"

namespace tulle::live {

// An address of the device's, by which an endpoint is bound to it.
struct LocalAddress {
  Gid gid;
  std::uint8_t gid_index = 0;
  std::uint32_t interface_index = 0;
};

// The device's GID for an address of this host; none: the address is not the device's. Loopback
// addresses stand for the device's first, of their family if there is one, unless it has them.
std::optional<LocalAddress> local_address(const DeviceInfo& device, const SocketAddress& address);
bool is_loopback(const SocketAddress& address);

// Fills in the source, if that is a wildcard or none, as the kernel would send to `destination`:
// with port 0. Returns 0 or an errno: ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL (no such source).
int find_source(SocketAddress& source, const SocketAddress& destination);

// Whether this host has the address: 0, EADDRNOTAVAIL or another errno.
int check_is_local(const SocketAddress& address);

// Who is bound to which port of a port space.
class PortTable {
 public:
  struct Binding {
    EndpointId endpoint;
    SocketAddress address;
    bool may_share = false;  // RDMA_OPTION_ID_REUSEADDR
    bool is_ipv6_only = false;
    bool is_listening = false;
  };
  // Binds to address.port, or where that is 0, to one from `first` on that is free, which is filled
  // in. Returns 0, EADDRINUSE, or EADDRNOTAVAIL where no port is free.
  int bind(PortSpace space, Binding binding, SocketAddress& address, std::uint32_t random);
  void release(PortSpace space, std::uint16_t port, EndpointId endpoint);
  // EADDRINUSE where another listens at the same address.
  int listen(PortSpace space, std::uint16_t port, EndpointId endpoint);
  // Who listens for requests to that address; EndpointId{}: nobody.
  EndpointId listener(PortSpace space, const SocketAddress& destination) const;
  std::size_t size() const { return ports_.size(); }

 private:
  using Key = std::pair<PortSpace, std::uint16_t>;
  std::map<Key, std::vector<Binding>> ports_;
};

}  // namespace tulle::live

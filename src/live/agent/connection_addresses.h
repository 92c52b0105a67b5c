#pragma once

// The addresses and ports of endpoints. The kernel's routing determines the addresses. The host
// agent gives the ports, because they are not the host's UDP and TCP ports.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "live/message/connection.h"
#include "live/message/device_info.h"

namespace tulle::live {

// An address of the device to which an endpoint is bound.
struct LocalAddress {
  Gid gid;
  std::uint8_t gid_index = 0;
  std::uint32_t interface_index = 0;
};

// Returns the device's GID for an address of this host, or nothing if the address is not the
// device's. A loopback address that the device lacks stands for the device's first GID, of the same
// family if possible.
std::optional<LocalAddress> local_address(const DeviceInfo& device, const SocketAddress& address);
bool is_loopback(const SocketAddress& address);

// Fills in the source if it is a wildcard or absent, with the address that the kernel would use to
// reach `destination` and port 0. Returns 0 or an errno: ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL
// (no such source).
int find_source(SocketAddress& source, const SocketAddress& destination);

// Returns 0 if this host has the address, else EADDRNOTAVAIL or another errno.
int check_is_local(const SocketAddress& address);

// Records which endpoint is bound to which port of a port space.
class PortTable {
 public:
  struct Binding {
    EndpointId endpoint;
    SocketAddress address;
    bool may_share = false;  // RDMA_OPTION_ID_REUSEADDR
    bool is_ipv6_only = false;
    bool is_listening = false;
  };
  // Binds to address.port. If that is 0, binds to a free ephemeral port, chosen by `random`, and
  // fills it in. Returns 0, EADDRINUSE, or EADDRNOTAVAIL if no port is free.
  int bind(PortSpace space, Binding binding, SocketAddress& address, std::uint32_t random);
  void release(PortSpace space, std::uint16_t port, EndpointId endpoint);
  // Returns EADDRINUSE if another endpoint listens at the same address.
  int listen(PortSpace space, std::uint16_t port, EndpointId endpoint);
  // Returns the endpoint that listens for requests to that address, or EndpointId{} if there is
  // none.
  EndpointId listener(PortSpace space, const SocketAddress& destination) const;
  std::size_t size() const { return ports_.size(); }

 private:
  using Key = std::pair<PortSpace, std::uint16_t>;
  std::map<Key, std::vector<Binding>> ports_;
};

}  // namespace tulle::live

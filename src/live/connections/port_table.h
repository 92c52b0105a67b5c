#pragma once

// The ports of endpoints. The connection manager gives them out, because they are not the host's
// UDP and TCP ports.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "live/message/connection.h"

namespace tulle::live {

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

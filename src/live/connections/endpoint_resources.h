#pragma once

// Creates and destroys endpoints. An endpoint that is destroyed gives back what it has of the host:
// its user's share, its port and service, its connection, its groups and its waiting events.

#include <cstdint>

#include "base/random_source.h"
#include "live/clock.h"
#include "live/connections/endpoint_table.h"
#include "live/connections/network.h"
#include "live/connections/port_table.h"
#include "live/connections/program_channels.h"
#include "live/connections/user_shares.h"
#include "management/cm/manager.h"

namespace tulle::live {

class EndpointResources {
 public:
  // All that is referred to must outlive this object. `random` chooses ephemeral ports.
  EndpointResources(ConnectionNetwork& network, management::cm::Manager& manager,
                    const DriverClock& clock, EndpointTable& endpoints, ProgramChannels& channels,
                    UserShares& shares, RandomSource random)
      : network_(network),
        manager_(manager),
        clock_(clock),
        endpoints_(endpoints),
        channels_(channels),
        shares_(shares),
        random_(random) {}

  // Returns true if the channel's owner may have another endpoint.
  bool may_create(const ProgramChannel& channel) const;
  Endpoint& create(ProgramChannel& channel, PortSpace space, ConnectionQpType qp_type);
  // Destroys an endpoint and ends its connection. A listener's requests that no program has seen
  // are destroyed too. `may_return` means that the program lives and may listen there again.
  void destroy(Endpoint& endpoint, bool may_return);

  // Binds an endpoint to a port of the address, or to a free one if the address has none. Returns 0
  // or an errno. If that fails, the endpoint has no device.
  int bind(Endpoint& endpoint, SocketAddress address);
  // Listens at the endpoint's port. Returns 0 or an errno.
  int listen(Endpoint& endpoint);
  // Expects that the program will listen at the endpoint's port, in that port space.
  void expect_listener(const Endpoint& endpoint, PortSpace space);
  // Returns the endpoint that listens for requests to that address, or nullptr.
  Endpoint* listener_at(PortSpace space, const SocketAddress& address);

 private:
  Time now() const { return clock_.peek(); }
  void expect_return(const Endpoint& endpoint);

  ConnectionNetwork& network_;
  management::cm::Manager& manager_;
  const DriverClock& clock_;
  EndpointTable& endpoints_;
  ProgramChannels& channels_;
  UserShares& shares_;
  RandomSource random_;
  PortTable ports_;
};

}  // namespace tulle::live

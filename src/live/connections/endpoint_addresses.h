#pragma once

// The addresses of endpoints: which address an endpoint is bound to, from which address of the
// device it reaches its peer, and by which route.

#include <cstddef>
#include <optional>
#include <span>

#include "base/result.h"
#include "live/connections/endpoint_resources.h"
#include "live/connections/endpoint_table.h"
#include "live/connections/network.h"
#include "live/connections/program_channels.h"

namespace tulle::live {

class EndpointAddresses {
 public:
  // All that is referred to must outlive this object.
  EndpointAddresses(ConnectionNetwork& network, EndpointTable& endpoints, ProgramChannels& channels,
                    EndpointResources& resources)
      : network_(network), endpoints_(endpoints), channels_(channels), resources_(resources) {}

  // The commands return 0 or an errno. The endpoint is in the channel.
  int bind(const ProgramChannel& channel, Endpoint& endpoint, const SocketAddress& address);
  // Resolves at once, but answers by an event.
  int resolve(const ProgramChannel& channel, Endpoint& endpoint,
              const command::ResolveAddress& command);
  int resolve_route(const ProgramChannel& channel, Endpoint& endpoint);
  // Uses the route of a program that knows a path (struct ibv_path_data).
  int use_route(const ProgramChannel& channel, Endpoint& endpoint,
                std::span<const std::byte> path_data);
  // Takes the network's answer to a question for a route.
  void take_route(EndpointId asker, Result<ConnectionRoute> found);

 private:
  using State = Endpoint::State;

  int bind_to_device(const ProgramChannel& channel, Endpoint& endpoint,
                     const SocketAddress& address);
  std::optional<LocalAddress> local_address_of(const DeviceInfo& device,
                                               const SocketAddress& address) const;

  ConnectionNetwork& network_;
  EndpointTable& endpoints_;
  ProgramChannels& channels_;
  EndpointResources& resources_;
};

}  // namespace tulle::live

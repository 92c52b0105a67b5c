#pragma once

// Turns management::cm's events, which are what peers do, into librdmacm's. A peer's request makes
// an endpoint for the program that listens.

#include <optional>

#include "live/clock.h"
#include "live/connections/endpoint_resources.h"
#include "live/connections/endpoint_table.h"
#include "live/connections/network.h"
#include "live/connections/program_channels.h"
#include "live/connections/request_addresses.h"
#include "management/cm/manager.h"

namespace tulle::live {

class PeerEvents {
 public:
  // All that is referred to must outlive this object.
  PeerEvents(ConnectionNetwork& network, management::cm::Manager& manager, const DriverClock& clock,
             EndpointTable& endpoints, ProgramChannels& channels, EndpointResources& resources)
      : network_(network),
        manager_(manager),
        clock_(clock),
        endpoints_(endpoints),
        channels_(channels),
        resources_(resources) {}

  void handle(const management::cm::Event& event);

 private:
  using State = Endpoint::State;
  // The addresses by which a request asks for a connection, if they are given as they should be,
  // and who listens there.
  struct Asked {
    std::optional<RequestAddresses> addresses;
    Endpoint* listener = nullptr;
  };

  Time now() const { return clock_.peek(); }
  void handle_request(const management::cm::Event& event);
  void refuse(const management::cm::Event& event, wire::cm::Reason reason,
              wire::cm::ServiceStatus status);
  void handle_reply(Endpoint& endpoint, const management::cm::Event& event);
  void handle_service_answer(Endpoint& endpoint, const management::cm::Event& event);
  Endpoint* listener_at(PortSpace space, const SocketAddress& address);
  Asked asked_by(const management::cm::Request& request);
  void make_endpoint(const management::cm::Event& event, Endpoint& listener,
                     const RequestAddresses& addresses, const DeviceInfo& device,
                     const LocalAddress& local);
  bool is_as_it_came(const RequestAddresses& named, const management::cm::Route& route,
                     const DeviceInfo& device) const;
  bool has_room(Endpoint& listener);

  ConnectionNetwork& network_;
  management::cm::Manager& manager_;
  const DriverClock& clock_;
  EndpointTable& endpoints_;
  ProgramChannels& channels_;
  EndpointResources& resources_;
};

}  // namespace tulle::live

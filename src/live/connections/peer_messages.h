#pragma once

// What programs send to their peers: requests, their answers, and the end of a connection. For
// endpoints of datagrams, these are questions for a service and their answers (SIDR).

#include "live/clock.h"
#include "live/connections/endpoint_table.h"
#include "live/message/connection.h"
#include "management/cm/manager.h"

namespace tulle::live {

// The commands return 0 or an errno: EINVAL if the endpoint is in the wrong state.
class PeerMessages {
 public:
  // All that is referred to must outlive this object.
  PeerMessages(management::cm::Manager& manager, const DriverClock& clock, EndpointTable& endpoints)
      : manager_(manager), clock_(clock), endpoints_(endpoints) {}

  int connect(Endpoint& endpoint, const command::Connect& command);
  int accept(Endpoint& endpoint, const command::Accept& command);
  int establish(Endpoint& endpoint);
  int reject(Endpoint& endpoint, const command::Reject& command);
  int notify_established(Endpoint& endpoint);
  int disconnect(Endpoint& endpoint);
  // Ends the connections of queue pairs that have gone, and tells their peers. The numbers may get
  // another owner, in whose way they would be.
  void end_connections_of(QpNumbers gone);

 private:
  using State = Endpoint::State;

  Time now() const { return clock_.peek(); }
  int ask_service(Endpoint& endpoint, const ConnectionParameters& parameters);
  int answer_service(Endpoint& endpoint, const ConnectionParameters& parameters);
  int begin_connecting(Endpoint& endpoint, management::cm::ConnectionId connection);

  management::cm::Manager& manager_;
  const DriverClock& clock_;
  EndpointTable& endpoints_;
};

}  // namespace tulle::live

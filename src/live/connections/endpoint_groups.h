#pragma once

// The multicast groups that endpoints join.

#include "base/result.h"
#include "live/connections/endpoint_table.h"
#include "live/connections/network.h"
#include "live/connections/program_channels.h"
#include "live/connections/user_shares.h"

namespace tulle::live {

class EndpointGroups {
 public:
  // All that is referred to must outlive this object.
  EndpointGroups(ConnectionNetwork& network, EndpointTable& endpoints, ProgramChannels& channels,
                 UserShares& shares)
      : network_(network), endpoints_(endpoints), channels_(channels), shares_(shares) {}

  // The commands return 0 or an errno. The endpoint is in the channel.
  int join(const ProgramChannel& channel, Endpoint& endpoint, const SocketAddress& group);
  int leave(const ProgramChannel& channel, Endpoint& endpoint, const SocketAddress& group);
  // Takes the network's answer to a question for a group.
  void take_group(EndpointId asker, const SocketAddress& address, Result<ConnectionGroup> group);

 private:
  ConnectionNetwork& network_;
  EndpointTable& endpoints_;
  ProgramChannels& channels_;
  UserShares& shares_;
};

}  // namespace tulle::live

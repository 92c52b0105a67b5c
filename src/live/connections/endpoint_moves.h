#pragma once

// Events that a program gives back because it had not taken them, and endpoints that move between
// its channels.

#include <vector>

#include "live/connections/endpoint_resources.h"
#include "live/connections/endpoint_table.h"
#include "live/connections/program_channels.h"

namespace tulle::live {

class EndpointMoves {
 public:
  // All that is referred to must outlive this object.
  EndpointMoves(EndpointTable& endpoints, ProgramChannels& channels, EndpointResources& resources)
      : endpoints_(endpoints), channels_(channels), resources_(resources) {}

  // The commands return 0 or an errno.
  int give_back(ProgramChannel& channel, const command::GiveBack& command);
  // Moves an endpoint of the channel `from`.
  int migrate(ProgramChannel& from, Endpoint& endpoint, const command::Migrate& command);

 private:
  void put_back(ProgramChannel& channel, ProgramChannel& to, EndpointId moved);

  EndpointTable& endpoints_;
  ProgramChannels& channels_;
  EndpointResources& resources_;
};

}  // namespace tulle::live

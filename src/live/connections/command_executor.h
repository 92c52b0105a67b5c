#pragma once

// Executes the commands that programs give to the connection manager. A command finds an endpoint
// only through the channel on which it came.

#include "live/connections/endpoint_addresses.h"
#include "live/connections/endpoint_groups.h"
#include "live/connections/endpoint_moves.h"
#include "live/connections/endpoint_resources.h"
#include "live/connections/endpoint_table.h"
#include "live/connections/peer_messages.h"
#include "live/connections/program_channels.h"
#include "live/message/connection.h"

namespace tulle::live {

class CommandExecutor {
 public:
  // All that is referred to must outlive this object.
  CommandExecutor(EndpointTable& endpoints, ProgramChannels& channels, EndpointResources& resources,
                  EndpointAddresses& addresses, EndpointGroups& groups, EndpointMoves& moves,
                  PeerMessages& peers)
      : endpoints_(endpoints),
        channels_(channels),
        resources_(resources),
        addresses_(addresses),
        groups_(groups),
        moves_(moves),
        peers_(peers) {}

  // Returns the command's answer, which is Failed if the command cannot be executed.
  ConnectionReply execute(ProgramChannel& channel, const ConnectionCommand& command);

 private:
  using Channel = ProgramChannel;
  using State = Endpoint::State;

  template <typename Command>
  ConnectionReply dispatch(Channel& channel, const Command& command);

  // Each executes a command, and returns 0 or an errno.
  int run(Channel& channel, const command::Create& command, reply::Created& reply);
  int run(Channel& channel, Endpoint& endpoint, const command::Bind& command, reply::Bound& reply);
  int run(Channel& channel, Endpoint& endpoint, const command::Listen& command);
  int run(Channel&, Endpoint& endpoint, const command::Query&, EndpointStatus& reply);
  int run(Channel&, Endpoint& endpoint, const command::GetQpAttributes&,
          QpAttributesOfStates& reply);
  int run(Channel& channel, Endpoint& endpoint, const command::SetOption& command);
  int run(Channel& channel, Endpoint& endpoint, const command::Report& command);
  int run(Channel& channel, Endpoint&, const command::Hold&);
  int run(Channel& channel, Endpoint& endpoint, const command::Destroy& command,
          reply::Destroyed& reply);
  // These commands are executed by other parts.
  int run(Channel& channel, Endpoint& endpoint, const command::ResolveAddress& command) {
    return addresses_.resolve(channel, endpoint, command);
  }
  int run(Channel& channel, Endpoint& endpoint, const command::ResolveRoute&) {
    return addresses_.resolve_route(channel, endpoint);
  }
  int run(Channel&, Endpoint& endpoint, const command::Connect& command) {
    return peers_.connect(endpoint, command);
  }
  int run(Channel&, Endpoint& endpoint, const command::Accept& command) {
    return peers_.accept(endpoint, command);
  }
  int run(Channel&, Endpoint& endpoint, const command::Establish&) {
    return peers_.establish(endpoint);
  }
  int run(Channel&, Endpoint& endpoint, const command::Reject& command) {
    return peers_.reject(endpoint, command);
  }
  int run(Channel&, Endpoint& endpoint, const command::NotifyEstablished&) {
    return peers_.notify_established(endpoint);
  }
  int run(Channel&, Endpoint& endpoint, const command::Disconnect&) {
    return peers_.disconnect(endpoint);
  }
  int run(Channel& channel, Endpoint& endpoint, const command::JoinMulticast& command) {
    return groups_.join(channel, endpoint, command.group);
  }
  int run(Channel& channel, Endpoint& endpoint, const command::LeaveMulticast& command) {
    return groups_.leave(channel, endpoint, command.group);
  }
  int run(Channel& channel, const command::GiveBack& command) {
    return moves_.give_back(channel, command);
  }
  int run(Channel& channel, Endpoint& endpoint, const command::Migrate& command) {
    return moves_.migrate(channel, endpoint, command);
  }

  EndpointTable& endpoints_;
  ProgramChannels& channels_;
  EndpointResources& resources_;
  EndpointAddresses& addresses_;
  EndpointGroups& groups_;
  EndpointMoves& moves_;
  PeerMessages& peers_;
};

}  // namespace tulle::live

#pragma once

// The connection manager of a host. It serves ConnectionChannels with management::cm over QP1.
// It knows what librdmacm calls ids, addresses and port spaces; management::cm knows the messages
// and repeats them.
//
// A channel is two sockets (live/message/connection.h). Commands are answered at once. Events go
// to the other socket, and wait here while that socket is full.
//
// This class composes the parts: CommandExecutor does what programs command, and PeerEvents what
// peers ask for. Both work on the endpoints (EndpointTable) and tell programs by ProgramChannels.

#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.h"
#include "live/clock.h"
#include "live/connections/channel_owner.h"
#include "live/connections/command_executor.h"
#include "live/connections/endpoint_addresses.h"
#include "live/connections/endpoint_groups.h"
#include "live/connections/endpoint_moves.h"
#include "live/connections/endpoint_resources.h"
#include "live/connections/endpoint_table.h"
#include "live/connections/network.h"
#include "live/connections/peer_events.h"
#include "live/connections/peer_messages.h"
#include "live/connections/program_channels.h"
#include "live/connections/user_shares.h"
#include "live/message/connection.h"
#include "management/cm/manager.h"
#include "os/unique_fd.h"

namespace tulle::live {

class ConnectionService {
 public:
  using ChannelNumber = live::ChannelNumber;
  using Owner = ChannelOwner;

  // `node_guid` names this host to other hosts. `network` must outlive this object.
  ConnectionService(ConnectionNetwork& network, std::uint64_t node_guid);
  ConnectionService(const ConnectionService&) = delete;
  ConnectionService& operator=(const ConnectionService&) = delete;

  // Opens a new channel for that process, over the device that it asks for. Returns
  // the program's end of the event socket.
  Result<UniqueFd> open_channel(const Owner& owner, const DeviceChoice& device,
                                ChannelNumber& number);
  // Executes a command and returns its answer, which is Failed if the command cannot be executed.
  ConnectionReply execute(ChannelNumber channel, const CommandMessage& message);
  // Closes a channel and destroys its endpoints. Peers are told.
  void close_channel(ChannelNumber channel);

  // Handles the datagrams that came to QP1 and the timers that are due, sends pending datagrams and
  // delivers events. The driver calls it when datagrams have come, after commands, and at the
  // deadline.
  void progress();
  // Takes the answers of the network to questions for a route or a group. Those to endpoints that
  // have gone are dropped. The error_number is what the program gets.
  void take_route(EndpointId asker, Result<ConnectionRoute> route) {
    addresses_.take_route(asker, std::move(route));
  }
  void take_group(EndpointId asker, const SocketAddress& address, Result<ConnectionGroup> group) {
    groups_.take_group(asker, address, std::move(group));
  }
  // Ends the connections of queue pairs whose process has gone, though its channels may stay.
  void end_connections_of(QpNumbers gone);
  // Returns Time::never() if there is no deadline.
  Time next_deadline() const { return manager_.next_deadline(); }
  // Returns the time on the clock by which the deadline is told.
  Time now() const { return clock_.peek(); }
  // Returns true if the last progress() left datagrams waiting.
  bool has_more() const { return has_more_; }
  // Returns the channels whose program does not read. The agent calls flush() when a channel's
  // socket is writable.
  std::vector<std::pair<int, ChannelNumber>> take_blocked() { return channels_.take_blocked(); }
  void flush(ChannelNumber channel);

  std::uint32_t listener_count() const;
  // Returns whose endpoints have the address that is or was at that index of the table of the
  // device, as programs asked for it.
  HeldBy holder_of(const DeviceChoice& device, std::size_t gid_index) const;
  // Returns true if no connection has unfinished work.
  bool is_quiet() const { return manager_.unfinished_count() == 0; }

 private:
  ConnectionNetwork& network_;
  management::cm::Manager manager_;
  DriverClock clock_;
  EndpointTable endpoints_;
  ProgramChannels channels_;
  UserShares shares_;
  EndpointResources resources_;
  EndpointAddresses addresses_;
  EndpointGroups groups_;
  EndpointMoves moves_;
  PeerMessages peer_messages_;
  PeerEvents peer_events_;
  CommandExecutor commands_;
  bool has_more_ = false;
};

}  // namespace tulle::live

#pragma once

// The channels of a host's programs, and the events on their way to the programs. A channel's
// events wait here while its socket is full, or while the program holds the channel.
//
// An event counts with an endpoint (counted_with): a request with its listener. The agent knows how
// many events of each endpoint it sent, and which requests a program has not taken.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "live/connections/channel_owner.h"
#include "live/connections/endpoint_table.h"
#include "live/message/connection.h"
#include "live/message/device_info.h"
#include "os/unique_fd.h"

namespace tulle::live {

struct ProgramChannel {
  struct SentRequest {
    std::uint32_t position;  // in the channel's `events_sent`
    EndpointId listener;
  };

  ChannelNumber number = 0;
  ChannelOwner owner;
  DeviceChoice device;
  std::vector<EndpointId> endpoints;

  UniqueFd events;
  std::deque<ConnectionEvent> waiting;
  std::uint32_t events_sent = 0;  // events sent to the socket since it was opened
  // Requests on the socket that the program has not taken, as far as the agent knows. An endpoint
  // that a request made has at most one.
  std::map<std::uint64_t, SentRequest> requests_sent;  // by a number that grows
  std::uint64_t next_request = 0;
  std::vector<ConnectionEvent> given_back;
  bool is_held = false;
  // True if the socket is full and the agent's loop must watch it.
  bool is_blocked = false;
};

class ProgramChannels {
 public:
  // Counts what it sends at the endpoints of the table, which must outlive this object.
  explicit ProgramChannels(EndpointTable& endpoints) : endpoints_(endpoints) {}

  // Opens a channel, and returns the program's end of the event socket.
  Result<UniqueFd> open(const ChannelOwner& owner, const DeviceChoice& device,
                        ChannelNumber& number);
  ProgramChannel* find(ChannelNumber number);
  // The channel exists.
  ProgramChannel& at(ChannelNumber number) { return channels_.at(number); }
  const ProgramChannel& at(ChannelNumber number) const { return channels_.at(number); }
  // Closes a channel that has no more endpoints.
  void close(ProgramChannel& channel);
  // Returns the sockets of the channels whose program does not read.
  std::vector<std::pair<int, ChannelNumber>> take_blocked();

  // Sends an event to the endpoint's program, behind those that wait.
  void tell(const Endpoint& endpoint, ConnectionEvent event);
  void send_waiting(ProgramChannel& channel);
  // The program has taken so many events from the socket since it was opened.
  void note_taken(ProgramChannel& channel, std::uint32_t events_taken);
  // The request that made an endpoint waits on the socket no longer.
  void forget_request(Endpoint& endpoint);
  // Drops the waiting events that count with an endpoint, which is gone. Returns the endpoints that
  // its requests among them made.
  std::vector<EndpointId> drop_waiting(ProgramChannel& channel, EndpointId gone);
  // Counts the requests of a listener that its program has not taken.
  std::uint32_t untaken_requests(const Endpoint& listener);

  // Returns true if another event may wait for the channel's program because of a command.
  bool may_ask_for_event(const ProgramChannel& channel) const;
  // Returns true if so many more events may wait for the channel's program because of commands.
  bool may_wait(const ProgramChannel& channel, std::size_t more) const;
  // Keeps events that the program gives back in `given_back`. Returns false if it gives back more
  // than it can have got, or has too much waiting.
  bool take_back(ProgramChannel& channel, const std::vector<ConnectionEvent>& events);

 private:
  void drop_request(ProgramChannel& channel, std::uint64_t number);

  EndpointTable& endpoints_;
  std::map<ChannelNumber, ProgramChannel> channels_;
  ChannelNumber next_ = 1;
};

}  // namespace tulle::live

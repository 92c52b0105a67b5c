#pragma once

// A program's side of the connection manager: its channel to the host agent. Commands go to the
// agent, which answers each at once, and events come on a descriptor. A program has one such
// channel for each of librdmacm's event channels.
//
// Every call returns 0 or an errno, as librdmacm documents them, or one of these:
// - ENODEV       the agent that knew the endpoint is gone; most likely it was killed
// - EINVAL       there is no such endpoint, or its state does not allow the command
//
// When the agent dies, each endpoint gets one DeviceRemoval event. After that the descriptor is
// silent, and commands to those endpoints return ENODEV. create() then starts a new agent.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "live/message/connection.h"
#include "live/settings.h"
#include "os/unique_fd.h"

namespace tulle::live {

class ConnectionChannel {
 public:
  // Opens a channel. Starts a host agent if none is running.
  static Result<std::unique_ptr<ConnectionChannel>> open();
  static Result<std::unique_ptr<ConnectionChannel>> open(const Settings& settings);
  // The agent destroys the remaining endpoints, as it does for a process that died.
  ~ConnectionChannel();
  ConnectionChannel(const ConnectionChannel&) = delete;
  ConnectionChannel& operator=(const ConnectionChannel&) = delete;

  // Returns a descriptor that is readable exactly while an event waits. It blocks until the program
  // sets O_NONBLOCK. The channel closes it.
  int event_fd() const { return events_.get(); }
  // Takes the next event. Waits for one unless the descriptor is O_NONBLOCK. Returns EAGAIN, or
  // EINTR if a signal came first, which loses no event. Holds no lock while it waits; any number of
  // threads may call it.
  int next_event(ConnectionEvent& event);
  // Ends the connection to the agent. Threads that wait in next_event() wait on until a signal
  // comes, as in a kernel's call, so that the channel must outlive them. A program such as rping
  // ends at an error there.
  void end();

  // Creates an endpoint. `qp_type` may be given again with connect and accept. Returns
  // EPROTONOSUPPORT if the port space does not exist.
  int create(PortSpace space, ConnectionQpType qp_type, EndpointId& endpoint);
  // Binds the endpoint. Port 0 means an ephemeral port. A wildcard address stays a wildcard.
  // Returns EADDRINUSE, EADDRNOTAVAIL, or ENODEV (the address belongs to the host, but not to the
  // device).
  int bind(EndpointId endpoint, const SocketAddress& address, SocketAddress& bound);
  // Listens. Binds to a wildcard address and an ephemeral port if the endpoint is not yet bound. A
  // backlog of 0 or less means as many requests as the agent allows.
  int listen(EndpointId endpoint, int backlog);
  // Resolves an address. The answer is an AddressResolved or AddressError event, which comes at
  // once. `source` may be absent (family 0).
  int resolve_address(EndpointId endpoint, const SocketAddress& source,
                      const SocketAddress& destination);
  // Resolves a route. The answer is a RouteResolved event, which comes at once.
  int resolve_route(EndpointId endpoint);
  int query(EndpointId endpoint, EndpointStatus& status);
  // Connects. The answer is a ConnectResponse, Unreachable or Rejected event; for UD it is
  // DatagramEstablished or Unreachable.
  int connect(EndpointId endpoint, ConnectionQpType qp_type,
              const ConnectionParameters& parameters);
  // Accepts the endpoint of a ConnectRequest. The answer is an Established, Rejected or
  // Unreachable event. For UD no event follows.
  int accept(EndpointId endpoint, ConnectionQpType qp_type, const ConnectionParameters& parameters);
  // Tells the peer, after ConnectResponse, that the queue pair is ready to send. No event follows.
  int establish(EndpointId endpoint);
  // Rejects a ConnectRequest, or the peer's answer after ConnectResponse. `reason` 0 means 28
  // (consumer). Another reason, such as 24 for a hand-over to other resources, is sent as given.
  int reject(EndpointId endpoint, std::uint32_t reason, std::span<const std::byte> private_data);
  // Tells that the accepting side's queue pair has received a packet. This is as good as the peer's
  // message that it is ready.
  int notify_established(EndpointId endpoint);
  // Disconnects. Both sides get a Disconnected event, and TimewaitExit later. Returns EINVAL if
  // there is no connection.
  int disconnect(EndpointId endpoint);
  // Destroys an endpoint. Later calls deliver none of its events. `events_taken` is the number of
  // its events that next_event() has delivered; a connect request counts with its listener.
  int destroy(EndpointId endpoint, std::uint32_t& events_taken);
  // Sets an option. Levels and options are librdmacm's (RDMA_OPTION_ID, RDMA_OPTION_IB), with their
  // bytes as they are.
  int set_option(EndpointId endpoint, std::uint32_t level, std::uint32_t option,
                 std::span<const std::byte> bytes);
  int qp_attributes(EndpointId endpoint, QpAttributesOfStates& attributes);
  // Joins a multicast group. The answer is a MulticastJoined event.
  int join_multicast(EndpointId endpoint, const SocketAddress& group);
  int leave_multicast(EndpointId endpoint, const SocketAddress& group);
  // Adds an event of the program's own: one of the last three types, with its status and argument.
  // Returns ENOBUFS if too many events wait already.
  int report(EndpointId endpoint, ConnectionEventType type, std::int32_t status,
             std::uint64_t argument);
  // Moves the endpoint and its events that no thread has taken to the channel `to`. Two threads
  // must never migrate in opposite directions at once.
  int migrate(EndpointId endpoint, ConnectionChannel& to);

 private:
  explicit ConnectionChannel(const Settings& settings) : settings_(settings) {}

  struct Opened {
    std::uint32_t number = 0;
    UniqueFd commands;
    UniqueFd events;
  };
  static Result<Opened> open_at(const Settings& settings);
  Result<void> connect_to_agent();
  // Sends a command and waits for the agent's answer. Returns the answer's errno, or ENODEV if the
  // agent is gone.
  template <typename Command>
  int ask(Command command, typename Command::Reply& reply);
  template <typename Command>
  int ask(Command command);
  template <typename Command>
  int ask_locked(Command command, typename Command::Reply& reply);
  bool exchange(ConnectionCommand command, ConnectionReply& reply);
  void give_back_all_but_last(std::vector<ConnectionEvent>& events);
  std::vector<ConnectionEvent> take_back();
  bool deliver(const ConnectionEvent& event);
  bool lose_agent(std::uint32_t generation, ConnectionEvent& event);
  void replace_events(int socket);

  Settings settings_;
  std::mutex command_mutex_;
  UniqueFd commands_;
  std::uint32_t number_ = 0;
  UniqueFd events_;
  std::atomic<std::uint32_t> events_taken_ = 0;
  UniqueFd quiet_end_;  // other end of the silent socket after the agent died
  std::atomic<std::uint32_t> generation_ = 0;  // counts the replacements of events_
  std::atomic<bool> has_ended_ = false;

  std::mutex endpoints_mutex_;
  struct Known {
    std::uint32_t events_taken = 0;
    bool is_lost = false;  // the agent is gone, and DeviceRemoval was delivered
  };
  std::mutex taking_mutex_;  // held while an event is taken from the socket
  std::map<EndpointId, Known> endpoints_;
};

}  // namespace tulle::live

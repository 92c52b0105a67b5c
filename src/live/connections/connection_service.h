#pragma once

// The connection manager of a host. It serves ConnectionChannels with management::cm over QP1.
// It knows what librdmacm calls ids, addresses and port spaces; management::cm knows the messages
// and repeats them.
//
// A channel is two sockets (live/message/connection.h). Commands are answered at once. Events go
// to the other socket, and wait here while that socket is full.

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/random_source.h"
#include "base/result.h"
#include "live/clock.h"
#include "live/connections/network.h"
#include "live/connections/port_table.h"
#include "live/message/connection.h"
#include "management/cm/manager.h"
#include "os/unique_fd.h"

namespace tulle::live {

class ConnectionService {
 public:
  using ChannelNumber = std::uint32_t;

  // `node_guid` names this host to other hosts. `network` must outlive this object.
  ConnectionService(ConnectionNetwork& network, std::uint64_t node_guid);

  // A program that has a channel. One user is limited to half of what the host has of ports and
  // connections, unless all trust that user.
  struct Owner {
    pid_t pid = 0;
    uid_t user = 0;
    bool is_limited = false;
    bool operator==(const Owner&) const = default;
  };

  // Opens a new channel for that process, over the device that it asks for. Returns
  // the program's end of the event socket.
  Result<UniqueFd> open_channel(const Owner& owner, const DeviceChoice& device,
                                ChannelNumber& number);
  // Executes a command and returns its answer, which is Failed if the command cannot be executed.
  ConnectionReply execute(ChannelNumber channel, CommandMessage message);
  // Closes a channel and destroys its endpoints. Peers are told.
  void close_channel(ChannelNumber channel);

  // Handles the datagrams that came to QP1 and the timers that are due, sends pending datagrams and
  // delivers events. The driver calls it when datagrams have come, after commands, and at the
  // deadline.
  void progress();
  // Takes the answers of the network to questions for a route or a group. Those to endpoints that
  // have gone are dropped. The error_number is what the program gets.
  void take_route(EndpointId asker, Result<ConnectionRoute> route);
  void take_group(EndpointId asker, const SocketAddress& address, Result<ConnectionGroup> group);
  // Returns Time::never() if there is no deadline.
  Time next_deadline() const { return manager_.next_deadline(); }
  // Returns the time on the clock by which the deadline is told.
  Time now() const { return clock_.peek(); }
  // Returns true if the last progress() left datagrams waiting.
  bool has_more() const { return has_more_; }
  // Returns the channels whose program does not read. The agent calls flush() when a channel's
  // socket is writable.
  std::vector<std::pair<int, ChannelNumber>> take_blocked();
  void flush(ChannelNumber channel);

  std::uint32_t listener_count() const;
  // Returns whose endpoints have the address that is or was at that index of the table of the
  // device, as programs asked for it.
  HeldBy holder_of(const DeviceChoice& device, std::size_t gid_index) const;
  // Returns true if no connection has unfinished work.
  bool is_quiet() const { return manager_.unfinished_count() == 0; }

 private:
  using Manager = management::cm::Manager;

  // Value of RDMA_UDP_QKEY in librdmacm's header.
  static constexpr std::uint32_t default_qkey = 0x0123'4567;
  // Limits the events that wait because of a program's own commands. Otherwise a program that takes
  // none would fill this process's memory.
  static constexpr std::size_t events_waiting_max = 4096;

  struct SentRequest {
    std::uint32_t position;  // in the channel's `events_sent`
    EndpointId listener;
  };
  // Names a sent request, which may be there no longer: an endpoint may be in another channel than
  // the one to which its request was sent.
  struct SentRequestName {
    ChannelNumber channel = 0;
    std::uint64_t number = 0;
  };

  struct Channel {
    ChannelNumber number = 0;
    Owner owner;
    DeviceChoice device;
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
    std::vector<EndpointId> endpoints;
  };
  enum class State : std::uint8_t {
    idle,
    bound,
    listening,
    address_resolved,
    resolving_route,
    route_resolved,
    connecting,  // sent a request, no answer yet
    requested,   // received a request, not answered yet
    answered,    // accepted, or was accepted, but not yet established
    connected,
    disconnected,
    closed,  // rejected, unreachable, or ended
  };
  struct Endpoint {
    EndpointId id;
    ChannelNumber channel = 0;
    PortSpace space{};
    ConnectionQpType qp_type{};
    State state = State::idle;
    SocketAddress source;
    SocketAddress destination;
    bool has_device = false;
    std::string device;  // the device's name
    std::uint64_t listened_service = 0;
    LocalAddress local;
    std::uint16_t local_lid = 0;  // 0: there are no LIDs
    Gid remote;
    bool may_share = false;
    bool is_ipv6_only = false;
    std::uint8_t traffic_class = 0;
    // RDMA_OPTION_ID_ACK_TIMEOUT; 0 means not set.
    std::uint8_t ack_timeout = 0;
    // Starting PSN of this side's REQ or REP. It tells the peer where to begin to send (IBTA
    // 12.6.5), so this side begins to receive there.
    Psn psn;
    // The connection, as this side's queue pair needs it.
    management::cm::ConnectionId connection;
    bool is_passive = false;
    QpNumber remote_qp;
    Psn remote_psn;
    ConnectionRoute route;  // path_mtu 0: it is not known
    std::uint8_t target_ack_delay = 0;
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::uint8_t retry_count = 0;
    std::uint8_t rnr_retry = 0;
    std::uint32_t qkey = 0;
    EndpointId listener;
    // The request that made it, while that waits on the channel's socket.
    std::optional<SentRequestName> request;
    std::uint32_t requests_max = 0;   // backlog of a listener
    std::uint32_t requests = 0;       // requests that the program has not taken; may be too high
    std::uint32_t requests_sent = 0;  // its entries in the channel's `requests_sent`
    std::uint32_t events_sent = 0;    // events sent to the channel's socket
    std::vector<SocketAddress> groups;
  };

  // service.cc
  struct Held {
    std::size_t endpoints = 0;
    std::size_t ports = 0;
    std::size_t groups = 0;
  };

  bool may_have_more(const Channel& channel) const;
  Endpoint* find(EndpointId id);
  Endpoint* find(const Channel& channel, EndpointId id);
  Endpoint& create(Channel& channel, PortSpace space, ConnectionQpType qp_type);
  void destroy(Endpoint& endpoint, bool may_return);
  void expect_return(const Channel& channel, const Endpoint& endpoint);
  void expect_listener(const Channel& channel, const Endpoint& endpoint, PortSpace space);
  static Gid address_of(const Endpoint& endpoint);
  void tell(Endpoint& endpoint, ConnectionEvent event);
  void send_waiting(Channel& channel);
  void note_taken(Channel& channel, std::uint32_t events_taken);
  // The request that made an endpoint waits on the socket no longer.
  void forget_request(Endpoint& endpoint);
  void drop_request(Channel& channel, std::uint64_t number);
  void send_outgoing();
  void give_back(Channel& channel, Channel& to, EndpointId moved,
                 std::vector<ConnectionEvent> events);
  Result<DeviceInfo> describe(const Channel& channel);

  // commands.cc: run() executes a command and returns an errno
  template <typename Command>
  ConnectionReply dispatch(Channel& channel, Command& command);
  int run(Channel& channel, command::Create& command, reply::Created& reply);
  int run(Channel& channel, command::GiveBack& command);
  int run(Channel& channel, Endpoint& endpoint, command::Bind& command, reply::Bound& reply);
  int run(Channel& channel, Endpoint& endpoint, command::Listen& command);
  int run(Channel& channel, Endpoint& endpoint, command::ResolveAddress& command);
  int run(Channel& channel, Endpoint& endpoint, command::ResolveRoute& command);
  int run(Channel& channel, Endpoint& endpoint, command::Query& command, EndpointStatus& reply);
  int run(Channel& channel, Endpoint& endpoint, command::Connect& command);
  int run(Channel& channel, Endpoint& endpoint, command::Accept& command);
  int run(Channel& channel, Endpoint& endpoint, command::Establish& command);
  int run(Channel& channel, Endpoint& endpoint, command::Reject& command);
  int run(Channel& channel, Endpoint& endpoint, command::NotifyEstablished& command);
  int run(Channel& channel, Endpoint& endpoint, command::Disconnect& command);
  int run(Channel& channel, Endpoint& endpoint, command::Destroy& command, reply::Destroyed& reply);
  int run(Channel& channel, Endpoint& endpoint, command::SetOption& command);
  int run(Channel& channel, Endpoint& endpoint, command::GetQpAttributes& command,
          QpAttributesOfStates& reply);
  int run(Channel& channel, Endpoint& endpoint, command::JoinMulticast& command);
  int run(Channel& channel, Endpoint& endpoint, command::LeaveMulticast& command);
  int run(Channel& channel, Endpoint& endpoint, command::Hold& command);
  int run(Channel& channel, Endpoint& endpoint, command::Migrate& command);
  int run(Channel& channel, Endpoint& endpoint, command::Report& command);
  bool take_back(Channel& channel, const std::vector<ConnectionEvent>& events);
  bool may_wait(const Channel& channel, std::size_t more) const;
  int bind(Channel& channel, Endpoint& endpoint, SocketAddress address);
  int bind_to_device(const Channel& channel, Endpoint& endpoint, const SocketAddress& address);
  int resolve_route(Channel& channel, Endpoint& endpoint);
  int take_given_route(Channel& channel, Endpoint& endpoint, std::span<const std::byte> path);
  std::optional<LocalAddress> local_address_of(const DeviceInfo& device,
                                               const SocketAddress& address) const;
  bool is_as_it_came(const SocketAddress& source, const SocketAddress& destination,
                     const management::cm::Route& route, const DeviceInfo& device) const;
  int begin_connecting(Endpoint& endpoint, management::cm::ConnectionId connection);
  int ask_service(Endpoint& endpoint, const ConnectionParameters& parameters);
  int answer_service(Endpoint& endpoint, const ConnectionParameters& parameters);
  EndpointStatus status_of(const Endpoint& endpoint) const;
  QpAttributesOfStates attributes_of(const Endpoint& endpoint) const;
  void use_device(Endpoint& endpoint, const DeviceInfo& device, const LocalAddress& local);

  // events.cc: the events of management::cm
  void handle_events();
  void handle(const management::cm::Event& event);
  Endpoint* listener_at(PortSpace space, const SocketAddress& address);
  void handle_request(const management::cm::Event& event);
  // Gives a passive endpoint what the peer's request says.
  static void take_request(Endpoint& endpoint, const management::cm::Event& event, bool infiniband);
  void handle_reply(Endpoint& endpoint, const management::cm::Event& event);
  void handle_service_answer(Endpoint& endpoint, const management::cm::Event& event);
  ConnectionPath path_of(const Endpoint& endpoint) const;
  static management::cm::Route route_of(const Endpoint& endpoint);
  bool has_room(Endpoint& listener);
  void forget_connection(Endpoint& endpoint);

  ConnectionNetwork& network_;
  RandomSource random_;
  Manager manager_;
  PortTable ports_;
  std::map<ChannelNumber, Channel> channels_;
  ChannelNumber next_channel_ = 1;
  std::unordered_map<std::uint32_t, Endpoint> endpoints_;
  std::unordered_map<uid_t, Held> held_;  // by users who hold any
  Held held_by_limited_;                  // endpoints and ports of all users who are limited
  std::uint32_t next_endpoint_ = 0;
  std::unordered_map<std::uint32_t, EndpointId> by_connection_;
  bool has_more_ = false;
  DriverClock clock_;
};

}  // namespace tulle::live

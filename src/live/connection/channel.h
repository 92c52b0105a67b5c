#pragma once

// A program's side of the connection manager: commands to the agent, each answered at once, and
// events on a descriptor. One for each of librdmacm's event channels.
//
// Every call returns 0 or an errno, as librdmacm documents them. Beside those:
// - ENODEV       the agent that knew the endpoint is gone; it was killed, most likely
// - EINVAL       no such endpoint, or it is in no state for the command
//
// Where the agent dies, each endpoint gets one device_removal event; after that the descriptor is
// silent, and commands to those endpoints answer ENODEV. `create` starts a new agent then.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "live/connection/messages.h"
#include "live/settings.h"
#include "live/unique_fd.h"

namespace tulle::live {

class ConnectionChannel {
 public:
  // Starts an agent if there is none.
  static Result<std::unique_ptr<ConnectionChannel>> open();
  static Result<std::unique_ptr<ConnectionChannel>> open(const Settings& settings);
  // Endpoints that are left are destroyed by the agent, as those of a process that died.
  ~ConnectionChannel();
  ConnectionChannel(const ConnectionChannel&) = delete;
  ConnectionChannel& operator=(const ConnectionChannel&) = delete;

  // Readable exactly while an event waits. It blocks until the program sets O_NONBLOCK. Ours to
  // close.
  int event_fd() const { return events_.get(); }
  // The next event: waits for one, unless the descriptor is O_NONBLOCK. EAGAIN, or EINTR where a
  // signal came first, which loses nothing. Without a lock while it waits; any number of threads.
  int next_event(ConnectionEvent& event);

  // `qp_type` may be given again with connect and accept. EPROTONOSUPPORT: no such port space.
  int create(PortSpace space, ConnectionQpType qp_type, EndpointId& endpoint);
  // Port 0: an ephemeral one. The wildcard address stays one. EADDRINUSE, EADDRNOTAVAIL, ENODEV (an
  // address of the host, but not of the device).
  int bind(EndpointId endpoint, const SocketAddress& address, SocketAddress& bound);
  // Binds to a wildcard address and an ephemeral port where that was not done. Backlog 0 or less:
  // as many requests as the agent allows.
  int listen(EndpointId endpoint, int backlog);
  // Answered by address_resolved or address_error. `source` may be none (family 0).
  int resolve_address(EndpointId endpoint, const SocketAddress& source,
                      const SocketAddress& destination, int timeout_milliseconds);
  // Answered by route_resolved or route_error.
  int resolve_route(EndpointId endpoint, int timeout_milliseconds);
  int query(EndpointId endpoint, EndpointStatus& status);
  // Answered by connect_response, unreachable or rejected; UD: by established or unreachable.
  int connect(EndpointId endpoint, ConnectionQpType qp_type,
              const ConnectionParameters& parameters);
  // Of a connect_request's endpoint. Answered by established, or connect_error or rejected.
  int accept(EndpointId endpoint, ConnectionQpType qp_type, const ConnectionParameters& parameters);
  // After connect_response, with the queue pair ready to send: tells the other side. No event
  // follows.
  int establish(EndpointId endpoint);
  // Of a connect_request or after connect_response. `reason` 0: 28, the consumer's; a program's
  // hand-over to other resources (24) is allowed.
  int reject(EndpointId endpoint, std::uint32_t reason, std::span<const std::byte> private_data);
  // The accepted side's queue pair has had a packet: as good as the other side's word.
  int notify_established(EndpointId endpoint);
  // Both sides get disconnected, and timewait_exit later. EINVAL where there is no connection.
  int disconnect(EndpointId endpoint);
  // No event of it is delivered after. `events_taken`: how many next_event() has given out,
  // connect requests among them counted with their listener.
  int destroy(EndpointId endpoint, std::uint32_t& events_taken);
  // librdmacm's levels and options (RDMA_OPTION_ID, RDMA_OPTION_IB) with their bytes as they are.
  int set_option(EndpointId endpoint, std::uint32_t level, std::uint32_t option,
                 std::span<const std::byte> bytes);
  int qp_attributes(EndpointId endpoint, QpTarget state, QpAttributes& attributes);
  // Answered by multicast_join, whose path has the group's GID as destination, with queue pair
  // 0xFFFFFF and the Q_Key, or by multicast_error.
  int join_multicast(EndpointId endpoint, const SocketAddress& group, std::uint32_t flags);
  int leave_multicast(EndpointId endpoint, const SocketAddress& group);
  // Adds an event of the program's own: one of the last three types, with its status and argument.
  // ENOBUFS: too many wait already.
  int report(EndpointId endpoint, ConnectionEventType type, std::int32_t status,
             std::uint64_t argument);
  // The endpoint is `to`'s after this, with the events of it that nobody took. Never call it from
  // two threads in opposite directions at once.
  int migrate(EndpointId endpoint, ConnectionChannel& to);

 private:
  explicit ConnectionChannel(const Settings& settings) : settings_(settings) {}

  Result<void> connect_to_agent();
  // The agent's answer; its errno, or ENODEV where there is no agent any more.
  int ask(ConnectionCommand& command, ConnectionReply& reply);
  int ask_locked(ConnectionCommand& command, ConnectionReply& reply);
  int simple(ConnectionOperation operation, EndpointId endpoint);
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
  UniqueFd quiet_end_;                         // of what took the place of a dead agent's
  std::atomic<std::uint32_t> generation_ = 0;  // of events_

  std::mutex endpoints_mutex_;
  struct Known {
    std::uint32_t events_taken = 0;
    bool is_lost = false;  // its agent is gone, and device_removal was given out
  };
  std::map<EndpointId, Known> endpoints_;
};

}  // namespace tulle::live

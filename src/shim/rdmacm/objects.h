#pragma once

// The connection manager's objects that programs hold. Each extends a struct of the C API with the
// object's own state. A program sees only the C struct, whose address is the object's.
//
// Locks. The registry's mutex (ids.cc) guards which ids exist and how many events of each were
// taken, so that no id is freed between finding it and counting an event of it. The mutex of an id
// guards its acknowledgements and its groups. As the API says, the program must order its calls on
// one id. Calls on different ids and on one event channel may run at the same time.

#include <fcntl.h>
#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/on_throw.h"
#include "live/process/connection_channel.h"
#include "shim/enomem.h"

namespace tulle::shim::rdmacm {

struct Id;

struct Channel : rdma_event_channel {
  std::unique_ptr<live::ConnectionChannel> agent;
  // An event that was taken from the agent, and for which there was no memory then. It comes next.
  std::mutex mutex;
  std::optional<live::ConnectionEvent> postponed;
  // Threads that wait for an event. The last of them deletes a channel that has been destroyed.
  std::uint32_t waiting = 0;
  bool is_destroyed = false;

  static Channel& of(rdma_event_channel* channel) { return static_cast<Channel&>(*channel); }
};

// An open device. One context and one protection domain serve all ids and stay open.
struct Device {
  ibv_context* verbs = nullptr;
  ibv_pd* pd = nullptr;  // the default domain, made for the first id
  ibv_xrcd* xrcd = nullptr;
  ibv_cq* empty = nullptr;  // nothing completes there; polling it takes in what has come
  ibv_device_attr attributes = {};

  // Takes in the packets that have come for this process.
  void take_in_packets() const;
  std::uint8_t initiator_depth_max() const;
  std::uint8_t responder_resources_max() const;
};

struct Multicast {
  Id* id = nullptr;
  sockaddr_storage address = {};
  void* context = nullptr;
  std::uint32_t flags = 0;
  ibv_gid mgid = {};
  bool attached = false;
  std::uint32_t events_taken = 0;  // guarded by the registry's mutex
  std::uint32_t events_acknowledged = 0;
};

struct Id : rdma_cm_id {
  live::EndpointId endpoint;  // the host agent's number for the id
  bool synchronous = false;   // the channel is this id's alone, and each call waits for its event
  Device* device = nullptr;
  std::mutex mutex;
  std::condition_variable acknowledged;
  std::uint32_t events_taken = 0;  // guarded by the registry's mutex
  std::uint32_t events_acknowledged = 0;
  std::list<Multicast> groups;
  // Set by rdma_create_ep: attributes for the queue pairs of a listener's requests, and private
  // data that comes first in a connect request.
  std::optional<ibv_qp_init_attr> request_attributes;
  std::vector<std::byte> connect_data;
  std::uint8_t initiator_depth = 0;
  std::uint8_t responder_resources = 0;
  // The host agent tells these with an event. They are of no use once the program has set an
  // option, which the event may not have known of.
  std::optional<live::QpAttributesOfStates> attributes;
  std::atomic<bool> has_set_option = false;
  // True if the id is bound, and the call had no memory to learn to what. It may be made again.
  bool is_bound_unseen = false;
  bool connect_failed = false;  // on this side, after the peer had accepted
  // A request for a connection that the program has not accepted yet. It sees no events of it: a
  // request that fails meanwhile fails when it is accepted (Linux,
  // drivers/infiniband/core/ucma.c: ucma_event_handler).
  std::atomic<bool> awaits_acceptance = false;
  ibv_ece local_ece = {};
  ibv_ece remote_ece = {};
  // State of rdma_resolve_addrinfo, guarded by the id's mutex. `resolving` is true while a call is
  // under way, and until its result is taken.
  bool resolving = false;
  rdma_addrinfo* resolved = nullptr;

  static Id& of(rdma_cm_id* id) { return static_cast<Id&>(*id); }
  bool knows_attributes() const { return attributes && !has_set_option; }
  live::ConnectionChannel& agent() const { return *Channel::of(channel).agent; }
  bool is_datagram() const { return qp_type == IBV_QPT_UD; }
};

inline constexpr std::size_t private_data_max = 256;

struct Event : rdma_cm_event {
  std::array<std::byte, private_data_max> private_data = {};
  Id* counted_on = nullptr;  // destroying this id waits for the event's acknowledgement
  Multicast* group = nullptr;

  static Event& of(rdma_cm_event* event) { return static_cast<Event&>(*event); }
};

// --- functions that the files of this room offer each other; an int is 0 or an errno ---

// devices.cc
int find_device(const std::string& name, Device*& out);
int open_xrc_domain(Device& device);

// ids.cc
int create_channel(Channel*& out);
int create_id(rdma_event_channel* channel, void* context, rdma_port_space port_space,
              ibv_qp_type type, Id*& out);
// Makes an id for a connection that was requested at a listener. If the listener is synchronous,
// the id gets a channel for itself. After ENOMEM the caller may try again with the same request.
int adopt_id(Id& listener, const live::event::ConnectRequest& request, Id*& out);
int destroy_id(Id& id);
int migrate_id(Id& id, rdma_event_channel* channel);  // null: to a channel for this id alone
// Finds the id of an event and counts the event as taken. Returns null if the id is gone. For an
// event of a multicast group it also finds the group, and counts the event there too.
Id* take_event(Channel& channel, const live::ConnectionEvent& event, Multicast*& group);
void acknowledge(Id& id, Multicast* group);

// addresses.cc
// Returns the length in bytes of an address that rdma_cm knows, or 0 for any other address and for
// null.
socklen_t length_of(const sockaddr* address);
live::SocketAddress from_c(const sockaddr* address);  // no address: family 0
// Returns an address of AF_IB for a GID of 16 bytes, with the service ID of a port (IBTA A11.3) and
// without a mask.
sockaddr_ib ib_address(const void* gid, int port_space, std::uint16_t port);
// These two fill in the C struct's addresses, device and path: fill() from a status that the host
// agent has sent, query() from one that it asks for.
int fill(Id& id, const live::EndpointStatus& status);
int query(Id& id);

// events.cc
// Waits for the event that ends the call of a synchronous id. Returns 0 at once for any other id.
int complete(Id& id);

// own_events.cc
void forget_resolved(Id& id);

// queue_pair.cc
int initialize_attributes(Id& id, ibv_qp_state state, ibv_qp_attr& out, int& mask);
int to_ready(Id& id, std::uint8_t responder_resources, std::uint8_t initiator_depth);
int to_error(Id& id);

// addresses.cc. Fills in how packets travel along a path of the connection manager.
void fill_address(ibv_ah_attr& to, const live::ConnectionPath& path, std::uint8_t port);

// Returns as the C API does: 0, or -1 with errno.
inline int answer(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

}  // namespace tulle::shim::rdmacm

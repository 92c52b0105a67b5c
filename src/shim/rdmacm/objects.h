#pragma once

// What programs hold of the connection manager: each is the C API's struct, extended with what
// stands behind it. A program sees only the C struct; its address is the object's.
//
// Locks. The registry's mutex (ids.cc) guards which ids exist and how many events of each were
// taken, so that none is freed between finding it and counting an event of it. An id's own mutex
// guards its acknowledgements and its groups. Calls on one id are the program's to order, as the
// API says; calls on different ids and on one channel may run at the same time.

#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <array>
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

#include "live/connection/channel.h"

namespace tulle::shim::rdmacm {

struct Id;

struct Channel : rdma_event_channel {
  std::unique_ptr<live::ConnectionChannel> agent;

  static Channel& of(rdma_event_channel* channel) { return static_cast<Channel&>(*channel); }
};

// An open device: one context and one protection domain serve all ids, and stay open.
struct Device {
  ibv_context* verbs = nullptr;
  ibv_pd* pd = nullptr;  // the default one, made for the first id
  ibv_xrcd* xrcd = nullptr;
  ibv_device_attr attributes = {};

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
  std::uint32_t events_taken = 0;  // under the registry's mutex
  std::uint32_t events_acknowledged = 0;
};

struct Id : rdma_cm_id {
  live::EndpointId endpoint;  // the agent's number for it
  bool synchronous = false;   // the channel is its own, and each call waits for its event
  Device* device = nullptr;
  std::mutex mutex;
  std::condition_variable acknowledged;
  std::uint32_t events_taken = 0;  // under the registry's mutex
  std::uint32_t events_acknowledged = 0;
  std::list<Multicast> groups;
  // An endpoint's: what its queue pairs get, and what its connect says first.
  std::optional<ibv_qp_init_attr> request_attributes;
  std::vector<std::byte> connect_data;
  std::uint8_t initiator_depth = 0;
  std::uint8_t responder_resources = 0;
  bool connect_failed = false;  // here, after the peer had accepted
  ibv_ece local_ece = {};
  ibv_ece remote_ece = {};
  // Of rdma_resolve_addrinfo, under the id's mutex: one is under way, or its result was not taken.
  bool resolving = false;
  rdma_addrinfo* resolved = nullptr;

  static Id& of(rdma_cm_id* id) { return static_cast<Id&>(*id); }
  live::ConnectionChannel& agent() const { return *Channel::of(channel).agent; }
  bool is_datagram() const { return qp_type == IBV_QPT_UD; }
};

inline constexpr std::size_t private_data_max = 256;

struct Event : rdma_cm_event {
  std::array<std::byte, private_data_max> private_data = {};
  Id* counted_on = nullptr;  // whose destruction waits for this event's acknowledgement
  Multicast* group = nullptr;

  static Event& of(rdma_cm_event* event) { return static_cast<Event&>(*event); }
};

// --- what the files of this room offer each other; an int is 0 or an errno ---

// devices.cc
int find_device(const std::string& name, Device*& out);
int open_xrc_domain(Device& device);

// ids.cc
int create_channel(Channel*& out);
int create_id(rdma_event_channel* channel, void* context, rdma_port_space port_space,
              ibv_qp_type type, Id*& out);
// An id for a connection that was asked for at a listener; a synchronous listener's gets a channel
// of its own.
int adopt_id(Id& listener, const live::ConnectionEvent& request, Id*& out);
int destroy_id(Id& id);
int migrate_id(Id& id, rdma_event_channel* channel);  // null: to one of its own
// Finds an id, and counts an event that was taken of it; null: it is gone. An event of a group also
// finds that, and counts for it.
Id* take_event(Channel& channel, const live::ConnectionEvent& event, Multicast*& group);
void acknowledge(Id& id, Multicast* group);

// addresses.cc
// Bytes of an address that rdma_cm knows; 0 for any other, or none.
socklen_t length_of(const sockaddr* address);
live::SocketAddress from_c(const sockaddr* address);  // of none: family 0
// Fills what the C struct says of addresses, device and path: as the agent has told, or is asked.
int fill(Id& id, const live::EndpointStatus& status);
int query(Id& id);

// events.cc
// For a synchronous id: waits for the event that ends its call.
int complete(Id& id);

// own_events.cc
void forget_resolved(Id& id);

// queue_pair.cc
int initialize_attributes(Id& id, ibv_qp_state state, ibv_qp_attr& out, int& mask);
int to_ready(Id& id, std::uint8_t responder_resources, std::uint8_t initiator_depth);
int to_error(Id& id);

// addresses.cc. How packets go along a path of the connection manager's.
void fill_address(ibv_ah_attr& to, const live::ConnectionPath& path, std::uint8_t port);

// How the C API answers: 0, or -1 with errno.
inline int answer(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

}  // namespace tulle::shim::rdmacm

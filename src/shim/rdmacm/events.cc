// Carries events from the host agent to the program and does what goes with each: fills in
// addresses, makes ids for new connections, and moves queue pairs on.

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "shim/rdmacm/objects.h"

namespace tulle::shim::rdmacm {
namespace {

using live::ConnectionEventType;

void copy_private_data(const live::ConnectionEvent& from, Event& to, const void*& data,
                       std::uint8_t& bytes) {
  const std::vector<std::byte>& given = from.parameters.private_data;
  const std::size_t count = std::min<std::size_t>(given.size(), 0xFF);
  std::copy_n(given.begin(), count, to.private_data.begin());
  data = count > 0 ? to.private_data.data() : nullptr;
  bytes = static_cast<std::uint8_t>(count);
}

void fill_connected(const live::ConnectionEvent& from, Event& to) {
  rdma_conn_param& out = to.param.conn;
  copy_private_data(from, to, out.private_data, out.private_data_len);
  out.responder_resources = from.parameters.responder_resources;
  out.initiator_depth = from.parameters.initiator_depth;
  out.flow_control = from.parameters.flow_control;
  out.retry_count = from.parameters.retry_count;
  out.rnr_retry_count = from.parameters.rnr_retry_count;
  out.srq = from.parameters.srq;
  out.qp_num = from.parameters.qp_number;
}

void fill_datagram(const live::ConnectionEvent& from, std::uint8_t port, Event& to) {
  rdma_ud_param& out = to.param.ud;
  copy_private_data(from, to, out.private_data, out.private_data_len);
  out.qp_num = from.parameters.qp_number;
  out.qkey = from.parameters.qkey;
  fill_address(out.ah_attr, from.path, port);
}

// Turns the event into the error event that reports a failure on this side.
void fail(Event& event, rdma_cm_event_type type, int error) {
  event.event = type;
  event.status = -error;
}

// The peer accepted. Makes this side's queue pair ready and tells the peer. A program that has no
// queue pair here does both itself, and tells the peer with rdma_establish().
void finish_connecting(Id& id, Event& event) {
  if (id.qp == nullptr) return;
  int error = to_ready(id, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH);
  if (error == 0) error = id.agent().establish(id.endpoint);
  if (error == 0) {
    event.event = RDMA_CM_EVENT_ESTABLISHED;
    return;
  }
  to_error(id);
  id.connect_failed = true;
  fail(event, RDMA_CM_EVENT_CONNECT_ERROR, error);
}

void finish_joining(Id& id, Event& event) {
  Multicast& group = *event.group;
  group.mgid = event.param.ud.ah_attr.grh.dgid;
  if (id.qp == nullptr || group.flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) return;
  const int error = ibv_attach_mcast(id.qp, &group.mgid, 0);
  if (error != 0) return fail(event, RDMA_CM_EVENT_MULTICAST_ERROR, error);
  group.attached = true;
}

// Returns false if the program does not get to see the event.
bool process_request(Id& listener, const live::ConnectionEvent& from, Event& event) {
  Id* id = nullptr;
  if (adopt_id(listener, from, id) != 0) return false;
  id->initiator_depth = from.parameters.initiator_depth;
  id->responder_resources = from.parameters.responder_resources;
  event.listen_id = &listener;
  event.id = id;
  if (id->is_datagram()) event.param.ud.ah_attr.port_num = id->port_num;
  return true;
}

// Returns false if the program does not get to see the event.
bool process(Id& id, const live::ConnectionEvent& from, Event& event) {
  switch (from.type) {
    case ConnectionEventType::address_resolved:
      if (const int error = fill(id, from.known); error != 0) {
        fail(event, RDMA_CM_EVENT_ADDR_ERROR, error);
      }
      return true;
    case ConnectionEventType::route_resolved:
      if (const int error = fill(id, from.known); error != 0) {
        fail(event, RDMA_CM_EVENT_ROUTE_ERROR, error);
      }
      return true;
    case ConnectionEventType::connect_request:
      return process_request(id, from, event);
    case ConnectionEventType::connect_response:
      finish_connecting(id, event);
      return true;
    case ConnectionEventType::rejected:
      if (id.connect_failed) return false;
      to_error(id);
      return true;
    case ConnectionEventType::disconnected:
      return !id.connect_failed;
    case ConnectionEventType::multicast_join:
      event.param.ud.private_data = event.group->context;
      finish_joining(id, event);
      return true;
    case ConnectionEventType::multicast_error:
      event.param.ud.private_data = event.group->context;
      return true;
    case ConnectionEventType::address_information_error:
      forget_resolved(id);
      return true;
    case ConnectionEventType::user:
      // This is rdma_cm_event's param.arg, which older headers do not declare.
      static_assert(sizeof event.param >= sizeof from.argument);
      std::memcpy(&event.param, &from.argument, sizeof from.argument);
      return true;
    default:
      return true;
  }
}

int next_event(Channel& channel, rdma_cm_event*& out) {
  auto event = std::make_unique<Event>();
  live::ConnectionEvent from;
  for (;;) {
    if (const int error = channel.agent->next_event(from); error != 0) return error;
    static_cast<rdma_cm_event&>(*event) = {};
    event->group = nullptr;
    Id* id = take_event(channel, from, event->group);
    if (id == nullptr) {
      // The id went away in another thread. A connection that was requested at it goes with it.
      std::uint32_t ignored = 0;
      if (from.is_request()) {
        channel.agent->destroy(from.endpoint, ignored);
      }
      continue;
    }
    event->counted_on = id;
    event->id = id;
    event->event = static_cast<rdma_cm_event_type>(from.type);
    event->status = from.status;
    if (id->is_datagram()) {
      fill_datagram(from, id->port_num, *event);
    } else {
      fill_connected(from, *event);
    }
    if (process(*id, from, *event)) break;
    acknowledge(*id, event->group);
  }
  out = event.release();
  return 0;
}

}  // namespace

int complete(Id& id) {
  if (!id.synchronous) return 0;
  if (id.event != nullptr) rdma_ack_cm_event(id.event);
  id.event = nullptr;
  if (const int error = next_event(Channel::of(id.channel), id.event); error != 0) return error;
  if (id.event->status == 0) return 0;
  return id.event->event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED : std::abs(id.event->status);
}

extern "C" {

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** out) {
  if (channel == nullptr || out == nullptr) return answer(EINVAL);
  return answer(next_event(Channel::of(channel), *out));
}

int rdma_ack_cm_event(rdma_cm_event* event) {
  if (event == nullptr) return answer(EINVAL);
  const std::unique_ptr<Event> owned(&Event::of(event));
  acknowledge(*owned->counted_on, owned->group);
  return 0;
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm

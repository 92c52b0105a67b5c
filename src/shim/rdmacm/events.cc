// Carries events from the host agent to the program and does what goes with each: fills in
// addresses, makes ids for new connections, and moves queue pairs on.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <variant>

#include "os/cancellation.h"
#include "shim/rdmacm/objects.h"

namespace tulle::shim::rdmacm {
namespace {

namespace event = live::event;

void copy_private_data(const std::vector<std::byte>& given, Event& to, const void*& data,
                       std::uint8_t& bytes) {
  const std::size_t count = std::min<std::size_t>(given.size(), 0xFF);
  std::copy_n(given.begin(), count, to.private_data.begin());
  data = count > 0 ? to.private_data.data() : nullptr;
  bytes = static_cast<std::uint8_t>(count);
}

void fill_connected(const live::ConnectionParameters& from, Event& to) {
  rdma_conn_param& out = to.param.conn;
  copy_private_data(from.private_data, to, out.private_data, out.private_data_len);
  out.responder_resources = from.responder_resources;
  out.initiator_depth = from.initiator_depth;
  out.flow_control = from.flow_control;
  out.retry_count = from.retry_count;
  out.rnr_retry_count = from.rnr_retry_count;
  out.srq = from.srq;
  out.qp_num = from.qp_number;
}

void fill_datagram(std::uint32_t qp_number, std::uint32_t qkey, const live::ConnectionPath& path,
                   const Id& id, Event& to) {
  rdma_ud_param& out = to.param.ud;
  out.qp_num = qp_number;
  out.qkey = qkey;
  fill_address(out.ah_attr, path, id.port_num);
}

void fill_refused(const std::vector<std::byte>& private_data, const Id& id, Event& to) {
  rdma_conn_param& conn = to.param.conn;
  rdma_ud_param& ud = to.param.ud;
  if (id.is_datagram()) {
    copy_private_data(private_data, to, ud.private_data, ud.private_data_len);
  } else {
    copy_private_data(private_data, to, conn.private_data, conn.private_data_len);
  }
}

// Turns the event into the error event that reports a failure on this side.
void fail(Event& event, rdma_cm_event_type type, int error) {
  event.event = type;
  event.status = -error;
}

// The event is postponed if there is no memory for it.
int try_again_on_enomem(int error) {
  if (error == ENOMEM) throw std::bad_alloc();
  return error;
}

// The peer accepted. Makes this side's queue pair ready and tells the peer. A program that has no
// queue pair here does both itself, and tells the peer with rdma_establish().
void finish_connecting(Id& id, Event& event) {
  if (id.qp == nullptr) return;
  int error = try_again_on_enomem(to_ready(id, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH));
  if (error == 0) error = try_again_on_enomem(id.agent().establish(id.endpoint));
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
  const int error = try_again_on_enomem(ibv_attach_mcast(id.qp, &group.mgid, 0));
  if (error != 0) return fail(event, RDMA_CM_EVENT_MULTICAST_ERROR, error);
  group.attached = true;
}

// Fills in the event and does what goes with it. Each call returns false if the program does not
// get to see the event.
class Processing {
 public:
  Processing(Id& id, Event& event) : id_(id), event_(event) {}

  bool operator()(const event::AddressResolved& from) {
    id_.attributes = from.attributes;
    if (const int error = try_again_on_enomem(fill(id_, from.known)); error != 0) {
      fail(event_, RDMA_CM_EVENT_ADDR_ERROR, error);
    }
    return true;
  }
  bool operator()(const event::RouteResolved& from) {
    if (const int error = try_again_on_enomem(fill(id_, from.known)); error != 0) {
      fail(event_, RDMA_CM_EVENT_ROUTE_ERROR, error);
    }
    return true;
  }
  bool operator()(const event::ConnectRequest& from) {
    Id* id = nullptr;
    if (try_again_on_enomem(adopt_id(id_, from, id)) != 0) return false;
    id->initiator_depth = from.parameters.initiator_depth;
    id->responder_resources = from.parameters.responder_resources;
    event_.listen_id = &id_;
    event_.id = id;
    if (id->is_datagram()) {
      fill_datagram(0, 0, from.known.path, *id, event_);
      rdma_ud_param& ud = event_.param.ud;
      copy_private_data(from.parameters.private_data, event_, ud.private_data, ud.private_data_len);
    } else {
      fill_connected(from.parameters, event_);
    }
    return true;
  }
  bool operator()(const event::ConnectResponse& from) {
    id_.attributes = from.attributes;
    fill_connected(from.parameters, event_);
    finish_connecting(id_, event_);
    return true;
  }
  bool operator()(const event::Unreachable& from) {
    fill_refused(from.private_data, id_, event_);
    return true;
  }
  bool operator()(const event::Rejected& from) {
    fill_refused(from.private_data, id_, event_);
    if (id_.connect_failed) return false;
    to_error(id_);
    return true;
  }
  bool operator()(const event::DatagramEstablished& from) {
    fill_datagram(from.qp_number, from.qkey, from.path, id_, event_);
    rdma_ud_param& ud = event_.param.ud;
    copy_private_data(from.private_data, event_, ud.private_data, ud.private_data_len);
    return true;
  }
  // The peer's last acknowledgements came before it disconnected. Programs expect the completions
  // that are due to them to be there already, as on an adapter, where a disconnection takes longer.
  bool operator()(const event::Disconnected&) {
    if (id_.device != nullptr) id_.device->take_in_packets();
    return !id_.connect_failed;
  }
  bool operator()(const event::MulticastJoined& from) {
    fill_datagram(from.qp_number, from.qkey, from.path, id_, event_);
    event_.param.ud.private_data = event_.group->context;
    if (from.status != 0) {
      fail(event_, RDMA_CM_EVENT_MULTICAST_ERROR, -from.status);
    } else {
      finish_joining(id_, event_);
    }
    return true;
  }
  bool operator()(const event::Reported& from) {
    if (from.type == live::ConnectionEventType::address_information_error) forget_resolved(id_);
    if (from.type == live::ConnectionEventType::user) {
      // This is rdma_cm_event's param.arg, which older headers do not declare.
      static_assert(sizeof event_.param >= sizeof from.argument);
      std::memcpy(&event_.param, &from.argument, sizeof from.argument);
    }
    return true;
  }
  bool operator()(const event::AddressError&) { return true; }
  bool operator()(const event::RouteError&) { return true; }
  bool operator()(const event::Established&) { return true; }
  bool operator()(const event::DeviceRemoval&) { return true; }
  bool operator()(const event::TimewaitExit&) { return true; }

 private:
  Id& id_;
  Event& event_;
};

int status_of(const live::ConnectionEvent& event) {
  return std::visit(
      [](const auto& each) {
        if constexpr (requires { each.status; }) {
          return static_cast<int>(each.status);
        } else {
          return 0;
        }
      },
      event);
}

int take(Channel& channel, live::ConnectionEvent& event) {
  {
    const std::lock_guard guard(channel.mutex);
    if (channel.postponed) {
      event = std::move(*channel.postponed);
      channel.postponed.reset();
      return 0;
    }
  }
  return channel.agent->next_event(event);
}

int next_event(Channel& channel, rdma_cm_event*& out) {
  auto event = std::make_unique<Event>();
  live::ConnectionEvent from;
  for (;;) {
    if (const int error = take(channel, from); error != 0) return error;
    static_cast<rdma_cm_event&>(*event) = {};
    event->group = nullptr;
    Id* id = take_event(channel, from, event->group);
    if (id == nullptr) {
      // The id went away in another thread. A connection that was requested at it goes with it.
      std::uint32_t ignored = 0;
      if (std::holds_alternative<event::ConnectRequest>(from)) {
        channel.agent->destroy(live::endpoint_of(from), ignored);
      }
      continue;
    }
    event->counted_on = id;
    event->id = id;
    event->event = static_cast<rdma_cm_event_type>(live::type_of(from));
    event->status = status_of(from);
    const OnThrow undo([&] {
      acknowledge(*id, event->group);
      const std::lock_guard guard(channel.mutex);
      channel.postponed = std::move(from);
    });
    if (!id->awaits_acceptance && std::visit(Processing(*id, *event), from)) break;
    acknowledge(*id, event->group);
  }
  out = event.release();
  return 0;
}

// Keeps a channel while a thread waits for its next event. Programs such as rping and mckey destroy
// the channel that one of their threads waits at, and end.
class Waiting {
 public:
  explicit Waiting(Channel& channel) : channel_(channel) {
    const std::lock_guard guard(channel_.mutex);
    ++channel_.waiting;
  }
  ~Waiting() {
    {
      const std::lock_guard guard(channel_.mutex);
      if (--channel_.waiting > 0 || !channel_.is_destroyed) return;
    }
    delete &channel_;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Channel& channel_;
};

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

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** out) try {
  const NoCancellation no_cancellation;
  if (channel == nullptr || out == nullptr) return answer(EINVAL);
  const Waiting waiting(Channel::of(channel));
  return answer(next_event(Channel::of(channel), *out));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_ack_cm_event(rdma_cm_event* event) {
  const NoCancellation no_cancellation;
  if (event == nullptr) return answer(EINVAL);
  const std::unique_ptr<Event> owned(&Event::of(event));
  acknowledge(*owned->counted_on, owned->group);
  return 0;
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm

// Connecting, accepting, rejecting and disconnecting. For UD, the same calls look up the queue pair
// that serves an address, and answer a peer's lookup.

#include <algorithm>
#include <cstring>

#include "os/cancellation.h"
#include "shim/rdmacm/objects.h"

namespace tulle::shim::rdmacm {
namespace {

constexpr std::uint8_t default_retry_count = 7;
// IBTA 12.6.7.2: the reason that a vendor's option is not supported.
constexpr std::uint32_t vendor_option_not_supported = 35;

// The API checks the parameters of the connected port space alone.
bool is_valid(const Id& id, const rdma_conn_param* parameters) {
  if (id.ps != RDMA_PS_TCP) return true;
  if (parameters == nullptr) return id.qp != nullptr;
  const bool too_many = parameters->responder_resources != RDMA_MAX_RESP_RES &&
                        parameters->responder_resources > id.device->responder_resources_max();
  const bool too_deep = parameters->initiator_depth != RDMA_MAX_INIT_DEPTH &&
                        parameters->initiator_depth > id.device->initiator_depth_max();
  return !too_many && !too_deep;
}

int fill(Id& id, const rdma_conn_param* from, live::ConnectionParameters& to) {
  to.responder_resources = id.responder_resources;
  to.initiator_depth = id.initiator_depth;
  to.private_data = id.connect_data;
  to.retry_count = to.rnr_retry_count = default_retry_count;
  if (from != nullptr) {
    to.flow_control = from->flow_control;
    to.retry_count = from->retry_count;
    to.rnr_retry_count = from->rnr_retry_count;
    to.srq = from->srq;
    to.qp_number = from->qp_num;
    const auto* data = static_cast<const std::byte*>(from->private_data);
    if (data != nullptr) {
      to.private_data.insert(to.private_data.end(), data, data + from->private_data_len);
    }
  }
  if (id.qp != nullptr) {
    to.qp_number = id.qp->qp_num;
    to.srq = id.qp->srq != nullptr ? 1 : 0;
  }
  return to.private_data.size() <= private_data_max ? 0 : EINVAL;
}

live::ConnectionQpType type_of(const Id& id) {
  return static_cast<live::ConnectionQpType>(id.qp_type);
}

int connect(Id& id, const rdma_conn_param* given) {
  if (id.device == nullptr || !is_valid(id, given)) return EINVAL;
  const bool any_depth = given == nullptr || given->initiator_depth == RDMA_MAX_INIT_DEPTH;
  id.initiator_depth = any_depth ? id.device->initiator_depth_max() : given->initiator_depth;
  const bool any_resources = given == nullptr || given->responder_resources == RDMA_MAX_RESP_RES;
  id.responder_resources =
      any_resources ? id.device->responder_resources_max() : given->responder_resources;
  live::ConnectionParameters parameters;
  if (const int error = fill(id, given, parameters); error != 0) return error;
  const int error = id.agent().connect(id.endpoint, type_of(id), parameters);
  if (error != 0) return error;
  id.connect_data.clear();
  return complete(id);
}

int accept(Id& id, const rdma_conn_param* given) {
  if (id.device == nullptr || (id.qp == nullptr && given == nullptr)) return EINVAL;
  if (!is_valid(id, given)) return EINVAL;
  // Values that the program does not choose are those that the peer asked for, as far as the device
  // supports them.
  id.initiator_depth = given == nullptr || given->initiator_depth == RDMA_MAX_INIT_DEPTH
                           ? std::min(id.initiator_depth, id.device->initiator_depth_max())
                           : given->initiator_depth;
  id.responder_resources =
      given == nullptr || given->responder_resources == RDMA_MAX_RESP_RES
          ? std::min(id.responder_resources, id.device->responder_resources_max())
          : given->responder_resources;
  live::ConnectionParameters parameters;
  if (const int error = fill(id, given, parameters); error != 0) return error;
  if (!id.is_datagram()) {
    const int error = to_ready(id, id.responder_resources, id.initiator_depth);
    if (error != 0) return error;
  }
  id.awaits_acceptance = false;  // what comes of it may be there before the call returns
  if (const int error = id.agent().accept(id.endpoint, type_of(id), parameters); error != 0) {
    id.awaits_acceptance = true;
    if (error != ENOMEM) to_error(id);  // otherwise the program may try again
    return error;
  }
  return id.is_datagram() ? 0 : complete(id);
}

int reject(rdma_cm_id* id, const void* data, std::uint8_t bytes, std::uint32_t reason) try {
  if (id == nullptr) return answer(EINVAL);
  Id& known = Id::of(id);
  const auto* first = static_cast<const std::byte*>(data);
  return answer(known.agent().reject(
      known.endpoint, reason, {first, first != nullptr ? std::size_t{bytes} : std::size_t{0}}));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int disconnect(Id& id) {
  if (id.verbs == nullptr) return EINVAL;
  if (const int error = to_error(id); error != 0) return error;
  const int error = id.agent().disconnect(id.endpoint);
  return error != 0 ? error : complete(id);
}

// Waits for the next request at a synchronous listener. The request gets a queue pair if the
// listener's endpoint was made with the attributes of one.
int next_request(Id& listener, rdma_cm_id*& out) {
  if (!listener.synchronous) return EINVAL;
  if (const int error = complete(listener); error != 0) return error;
  rdma_cm_event* event = listener.event;
  if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) return EINVAL;
  if (listener.request_attributes) {
    ibv_qp_init_attr attributes = *listener.request_attributes;
    if (rdma_create_qp(event->id, listener.pd, &attributes) != 0) return errno;
  }
  listener.event = nullptr;
  out = event->id;
  out->event = event;
  return 0;
}

}  // namespace

extern "C" {

int rdma_connect(rdma_cm_id* id, rdma_conn_param* parameters) try {
  const NoCancellation no_cancellation;
  if (id == nullptr) return answer(EINVAL);
  return answer(connect(Id::of(id), parameters));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_listen(rdma_cm_id* id, int backlog) try {
  const NoCancellation no_cancellation;
  if (id == nullptr) return answer(EINVAL);
  Id& known = Id::of(id);
  const int error = known.agent().listen(known.endpoint, backlog);
  return answer(error != 0 ? error : query(known));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_get_request(rdma_cm_id* listener, rdma_cm_id** out) try {
  const NoCancellation no_cancellation;
  if (listener == nullptr || out == nullptr) return answer(EINVAL);
  return answer(next_request(Id::of(listener), *out));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_accept(rdma_cm_id* id, rdma_conn_param* parameters) try {
  const NoCancellation no_cancellation;
  if (id == nullptr) return answer(EINVAL);
  return answer(accept(Id::of(id), parameters));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_reject(rdma_cm_id* id, const void* data, std::uint8_t bytes) {
  const NoCancellation no_cancellation;
  return reject(id, data, bytes, 0);
}

int rdma_reject_ece(rdma_cm_id* id, const void* data, std::uint8_t bytes) {
  const NoCancellation no_cancellation;
  return reject(id, data, bytes, vendor_option_not_supported);
}

int rdma_establish(rdma_cm_id* id) try {
  const NoCancellation no_cancellation;
  if (id == nullptr || id->qp != nullptr) return answer(EINVAL);
  Id& known = Id::of(id);
  return answer(known.agent().establish(known.endpoint));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_notify(rdma_cm_id* id, ibv_event_type event) try {
  const NoCancellation no_cancellation;
  if (id == nullptr || event != IBV_EVENT_COMM_EST) return answer(EINVAL);
  Id& known = Id::of(id);
  return answer(known.agent().notify_established(known.endpoint));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_disconnect(rdma_cm_id* id) try {
  const NoCancellation no_cancellation;
  if (id == nullptr) return answer(EINVAL);
  return answer(disconnect(Id::of(id)));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm

// Queue pairs and shared receive queues that belong to an id, the completion queues that go with
// them where the program brings none, and the state changes that connecting takes.

#include <cstring>

#include "os/cancellation.h"
#include "rdma/verbs/types.h"
#include "shim/rdmacm/objects.h"

namespace tulle::shim::rdmacm {
namespace {

int modify(ibv_qp* qp, ibv_qp_attr& attributes, int mask) {
  return ibv_modify_qp(qp, &attributes, mask);
}

void fill(const live::QpAttributes& from, ibv_qp_attr& to) {
  to.qp_state = to.cur_qp_state = static_cast<ibv_qp_state>(from.state);
  to.qp_access_flags = from.access_flags;
  to.pkey_index = from.pkey_index;
  to.port_num = from.port_number;
  to.qkey = from.qkey;
  to.path_mtu = static_cast<ibv_mtu>(verbs::mtu_code(from.path_mtu_bytes));
  to.dest_qp_num = from.destination_qp;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_count;
  to.rnr_retry = from.rnr_retry;
  fill_address(to.ah_attr, from.path, from.port_number);
}

// `state` is INIT, RTR or RTS. Returns EINVAL if the endpoint cannot reach it yet.
int fill(const live::QpAttributesOfStates& from, ibv_qp_state state, ibv_qp_attr& out, int& mask) {
  const live::QpAttributes& of_state = state == IBV_QPS_INIT  ? from.init
                                       : state == IBV_QPS_RTR ? from.ready_to_receive
                                                              : from.ready_to_send;
  if (of_state.mask == 0) return EINVAL;
  out = {};
  fill(of_state, out);
  mask = static_cast<int>(of_state.mask);
  return 0;
}

// Takes a queue pair that is not connected straight to the state in which it sends and receives.
int make_ready_for_datagrams(Id& id, ibv_qp* qp) {
  ibv_qp_attr attributes = {};
  int mask = 0;
  if (const int error = initialize_attributes(id, IBV_QPS_INIT, attributes, mask); error != 0) {
    return error;
  }
  if (const int error = modify(qp, attributes, mask); error != 0) return error;
  attributes.qp_state = IBV_QPS_RTR;
  if (const int error = modify(qp, attributes, IBV_QP_STATE); error != 0) return error;
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = 0;
  return modify(qp, attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

// Prepares a new queue pair. One that is to be connected goes as far as receives may be posted.
int initialize(Id& id, ibv_qp* qp) {
  if (id.is_datagram()) return make_ready_for_datagrams(id, qp);
  ibv_qp_attr attributes = {};
  int mask = 0;
  const int error = id.knows_attributes()
                        ? fill(*id.attributes, IBV_QPS_INIT, attributes, mask)
                        : initialize_attributes(id, IBV_QPS_INIT, attributes, mask);
  return error != 0 ? error : modify(qp, attributes, mask);
}

void destroy_queues(Id& id) {
  // The completion queue of an XRC target goes with its SRQ, which may outlive the queue pair.
  if (id.qp_type == IBV_QPT_XRC_RECV && id.srq != nullptr) return;
  if (id.send_cq != nullptr && id.send_cq != id.recv_cq) ibv_destroy_cq(id.send_cq);
  if (id.recv_cq != nullptr) ibv_destroy_cq(id.recv_cq);
  if (id.send_cq_channel != nullptr && id.send_cq_channel != id.recv_cq_channel) {
    ibv_destroy_comp_channel(id.send_cq_channel);
  }
  if (id.recv_cq_channel != nullptr) ibv_destroy_comp_channel(id.recv_cq_channel);
  id.send_cq = id.recv_cq = nullptr;
  id.send_cq_channel = id.recv_cq_channel = nullptr;
}

int create_queue(Id& id, std::uint32_t entries, ibv_comp_channel*& channel, ibv_cq*& queue) {
  if (entries == 0) return 0;
  channel = ibv_create_comp_channel(id.verbs);
  if (channel == nullptr) return errno;
  // rdma_get_send_comp and rdma_get_recv_comp expect the id as the queue's context.
  queue =
      ibv_create_cq(id.verbs, static_cast<int>(entries), static_cast<rdma_cm_id*>(&id), channel, 0);
  return queue != nullptr ? 0 : errno;
}

// Makes an id's completion queues. A size of 0 means that the program brings that queue.
int create_queues(Id& id, std::uint32_t send_entries, std::uint32_t receive_entries) {
  int error = create_queue(id, receive_entries, id.recv_cq_channel, id.recv_cq);
  if (error == 0) error = create_queue(id, send_entries, id.send_cq_channel, id.send_cq);
  if (error != 0) destroy_queues(id);
  return error;
}

int complete_attributes(Id& id, ibv_qp_init_attr_ex& attributes) {
  if ((attributes.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attributes.pd == nullptr) {
    attributes.comp_mask |= IBV_QP_INIT_ATTR_PD;
    attributes.pd = id.pd;
  } else if (attributes.pd->context != id.verbs) {
    return EINVAL;
  }
  const auto conflict = [](const ibv_cq* own, const ibv_cq* given) {
    return own != nullptr && given != nullptr && own != given;
  };
  if (conflict(id.send_cq, attributes.send_cq) || conflict(id.recv_cq, attributes.recv_cq)) {
    return EINVAL;
  }
  if (id.qp_type == IBV_QPT_XRC_RECV &&
      ((attributes.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attributes.xrcd == nullptr)) {
    if (const int error = open_xrc_domain(*id.device); error != 0) return error;
    attributes.xrcd = id.device->xrcd;
    attributes.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
  }
  const bool brings_send = attributes.send_cq != nullptr || id.send_cq != nullptr;
  const bool brings_receive = attributes.recv_cq != nullptr || id.recv_cq != nullptr;
  const int error = create_queues(id, brings_send ? 0 : attributes.cap.max_send_wr,
                                  brings_receive ? 0 : attributes.cap.max_recv_wr);
  if (error != 0) return error;
  if (attributes.send_cq == nullptr) attributes.send_cq = id.send_cq;
  if (attributes.recv_cq == nullptr) attributes.recv_cq = id.recv_cq;
  if (attributes.srq == nullptr) attributes.srq = id.srq;
  return 0;
}

// Enhanced connection establishment: options that adapters of one vendor agree upon. A device
// without it returns EOPNOTSUPP, which is no failure.
int prepare_ece(Id& id, ibv_qp* qp) {
  ibv_ece ece = {};
  const int error = ibv_query_ece(qp, &ece);
  if (error != 0) return error == EOPNOTSUPP ? 0 : error;
  id.local_ece = ece;
  if (id.remote_ece.vendor_id == 0) return 0;
  ece.options = id.remote_ece.vendor_id == ece.vendor_id ? id.remote_ece.options : 0;
  const int refused = ibv_set_ece(qp, &ece);
  return refused == EOPNOTSUPP ? 0 : refused;
}

int create_qp(Id& id, ibv_qp_init_attr_ex& attributes) {
  if (id.qp != nullptr || id.verbs == nullptr || id.device == nullptr) return EINVAL;
  if (const int error = complete_attributes(id, attributes); error != 0) return error;
  ibv_qp* qp = ibv_create_qp_ex(id.verbs, &attributes);
  if (qp == nullptr) {
    const int error = errno;
    destroy_queues(id);
    return error;
  }
  int error = prepare_ece(id, qp);
  if (error == 0) error = initialize(id, qp);
  if (error != 0) {
    ibv_destroy_qp(qp);
    destroy_queues(id);
    return error;
  }
  if (qp->pd != nullptr) id.pd = qp->pd;  // an XRC target has no domain
  id.qp = qp;
  return 0;
}

int create_srq(Id& id, ibv_srq_init_attr_ex& attributes) {
  if (id.srq != nullptr || id.verbs == nullptr || id.device == nullptr) return EINVAL;
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0) return EINVAL;
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attributes.pd == nullptr) {
    attributes.pd = id.pd;
    attributes.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
  }
  if (attributes.srq_type == IBV_SRQT_XRC) {
    if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || attributes.xrcd == nullptr) {
      if (const int error = open_xrc_domain(*id.device); error != 0) return error;
      attributes.xrcd = id.device->xrcd;
    }
    if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attributes.cq == nullptr) {
      // The target's queue pair may have made a completion queue already.
      const std::uint32_t entries = id.recv_cq == nullptr ? attributes.attr.max_wr : 0;
      if (const int error = create_queues(id, 0, entries); error != 0) return error;
      attributes.cq = id.recv_cq;
    }
    attributes.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  }
  id.srq = ibv_create_srq_ex(id.verbs, &attributes);
  if (id.srq == nullptr) {
    const int error = errno;
    destroy_queues(id);
    return error;
  }
  if (id.pd == nullptr) id.pd = attributes.pd;
  return 0;
}

}  // namespace

int initialize_attributes(Id& id, ibv_qp_state state, ibv_qp_attr& out, int& mask) {
  if (state != IBV_QPS_INIT && state != IBV_QPS_RTR && state != IBV_QPS_RTS) return EINVAL;
  live::QpAttributesOfStates attributes;
  const int error = id.agent().qp_attributes(id.endpoint, attributes);
  return error != 0 ? error : fill(attributes, state, out, mask);
}

int to_ready(Id& id, std::uint8_t responder_resources, std::uint8_t initiator_depth) {
  if (id.qp == nullptr) return 0;
  live::QpAttributesOfStates known;
  if (id.knows_attributes()) known = *id.attributes;
  if (known.ready_to_receive.mask == 0) {
    if (const int error = id.agent().qp_attributes(id.endpoint, known); error != 0) return error;
  }
  ibv_qp_attr attributes = {};
  int mask = 0;
  // INIT is set again, because only now is known what the peer wants to do to this side's memory.
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    // A call that got no memory for a later step is made again.
    if (id.qp->state > IBV_QPS_INIT && id.qp->state >= state && id.qp->state <= IBV_QPS_RTS) {
      continue;
    }
    if (const int error = fill(known, state, attributes, mask); error != 0) return error;
    if (state == IBV_QPS_RTR && responder_resources != RDMA_MAX_RESP_RES) {
      attributes.max_dest_rd_atomic = responder_resources;
    }
    if (state == IBV_QPS_RTS && initiator_depth != RDMA_MAX_INIT_DEPTH) {
      attributes.max_rd_atomic = initiator_depth;
    }
    if (const int error = modify(id.qp, attributes, mask); error != 0) return error;
  }
  return 0;
}

int to_error(Id& id) {
  if (id.qp == nullptr) return 0;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  return modify(id.qp, attributes, IBV_QP_STATE);
}

extern "C" {

int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attributes) {
  const NoCancellation no_cancellation;
  if (id == nullptr || attributes == nullptr) return answer(EINVAL);
  return answer(create_qp(Id::of(id), *attributes));
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attributes) {
  const NoCancellation no_cancellation;
  if (id == nullptr || attributes == nullptr) return answer(EINVAL);
  ibv_qp_init_attr_ex extended = {};
  // The extended struct starts with the fields of the plain one.
  std::memcpy(static_cast<void*>(&extended), attributes, sizeof *attributes);
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd != nullptr ? pd : id->pd;
  const int error = create_qp(Id::of(id), extended);
  std::memcpy(static_cast<void*>(attributes), &extended, sizeof *attributes);
  return answer(error);
}

void rdma_destroy_qp(rdma_cm_id* id) {
  const NoCancellation no_cancellation;
  if (id == nullptr || id->qp == nullptr) return;
  ibv_destroy_qp(id->qp);
  id->qp = nullptr;
  destroy_queues(Id::of(id));
}

int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attributes) {
  const NoCancellation no_cancellation;
  if (id == nullptr || attributes == nullptr) return answer(EINVAL);
  return answer(create_srq(Id::of(id), *attributes));
}

int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attributes) {
  const NoCancellation no_cancellation;
  if (id == nullptr || attributes == nullptr) return answer(EINVAL);
  ibv_srq_init_attr_ex extended = {};
  std::memcpy(static_cast<void*>(&extended), attributes, sizeof *attributes);
  extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  extended.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
  extended.pd = pd;
  const int error = create_srq(Id::of(id), extended);
  std::memcpy(static_cast<void*>(attributes), &extended, sizeof *attributes);
  return answer(error);
}

void rdma_destroy_srq(rdma_cm_id* id) {
  const NoCancellation no_cancellation;
  if (id == nullptr || id->srq == nullptr) return;
  ibv_destroy_srq(id->srq);
  id->srq = nullptr;
  destroy_queues(Id::of(id));
}

int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask) try {
  const NoCancellation no_cancellation;
  if (id == nullptr || attributes == nullptr || mask == nullptr) return answer(EINVAL);
  return answer(initialize_attributes(Id::of(id), attributes->qp_state, *attributes, *mask));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

// These two calls are for programs that make their queue pairs themselves.
int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
  const NoCancellation no_cancellation;
  if (id == nullptr || id->qp != nullptr || ece == nullptr) return answer(EINVAL);
  if (ece->vendor_id == 0 || ece->comp_mask != 0) return answer(EINVAL);
  Id::of(id).local_ece = *ece;
  return 0;
}

int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
  const NoCancellation no_cancellation;
  if (id == nullptr || id->qp != nullptr || ece == nullptr) return answer(EINVAL);
  *ece = Id::of(id).remote_ece;
  ece->comp_mask = 0;
  return 0;
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm

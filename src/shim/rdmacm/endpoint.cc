// Endpoints: one call makes an id that works synchronously, resolves or binds it, and gives it or
// its requests a queue pair.

#include <cstring>

#include "os/cancellation.h"
#include "shim/rdmacm/objects.h"

namespace tulle::shim::rdmacm {
namespace {

constexpr int resolve_timeout_milliseconds = 2000;

int make_passive(Id& id, const rdma_addrinfo& from, ibv_pd* pd,
                 const ibv_qp_init_attr* attributes) {
  if (rdma_bind_addr(&id, from.ai_src_addr) != 0) return errno;
  if (pd != nullptr) id.pd = pd;
  if (attributes != nullptr) {
    id.request_attributes = *attributes;
    id.request_attributes->qp_type = static_cast<ibv_qp_type>(from.ai_qp_type);
  }
  return 0;
}

int resolve_route(Id& id, const rdma_addrinfo& from) {
  if (from.ai_route_len == 0) {
    return rdma_resolve_route(&id, resolve_timeout_milliseconds) == 0 ? 0 : errno;
  }
  if (rdma_set_option(&id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, from.ai_route, from.ai_route_len) !=
      0) {
    return errno;
  }
  return complete(id);
}

int make_active(Id& id, const rdma_addrinfo& from, ibv_pd* pd, ibv_qp_init_attr* attributes) {
  if (rdma_resolve_addr(&id, from.ai_src_len != 0 ? from.ai_src_addr : nullptr, from.ai_dst_addr,
                        resolve_timeout_milliseconds) != 0) {
    return errno;
  }
  if (const int error = resolve_route(id, from); error != 0) return error;
  if (attributes != nullptr) {
    attributes->qp_type = static_cast<ibv_qp_type>(from.ai_qp_type);
    if (rdma_create_qp(&id, pd, attributes) != 0) return errno;
  }
  if (from.ai_connect != nullptr) {
    const auto* data = static_cast<const std::byte*>(from.ai_connect);
    id.connect_data.assign(data, data + from.ai_connect_len);
  }
  return 0;
}

}  // namespace

extern "C" {

int rdma_create_ep(rdma_cm_id** out, rdma_addrinfo* from, ibv_pd* pd,
                   ibv_qp_init_attr* attributes) try {
  const NoCancellation no_cancellation;
  if (out == nullptr || from == nullptr) return answer(EINVAL);
  Id* id = nullptr;
  int error = create_id(nullptr, nullptr, static_cast<rdma_port_space>(from->ai_port_space),
                        static_cast<ibv_qp_type>(from->ai_qp_type), id);
  if (error != 0) return answer(error);
  error = (from->ai_flags & RAI_PASSIVE) != 0 ? make_passive(*id, *from, pd, attributes)
                                              : make_active(*id, *from, pd, attributes);
  if (error != 0) {
    rdma_destroy_ep(id);
    return answer(error);
  }
  *out = id;
  return 0;
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

void rdma_destroy_ep(rdma_cm_id* id) {
  const NoCancellation no_cancellation;
  if (id == nullptr) return;
  rdma_destroy_qp(id);
  rdma_destroy_srq(id);
  rdma_destroy_id(id);
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm

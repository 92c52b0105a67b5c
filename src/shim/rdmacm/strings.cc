#include "shim/rdmacm/objects.h"

namespace tulle::shim::rdmacm {
namespace {

// Names in the order of rdma_cm_event_type.
constexpr std::array<const char*, 20> event_names = {{
    "RDMA_CM_EVENT_ADDR_RESOLVED",
    "RDMA_CM_EVENT_ADDR_ERROR",
    "RDMA_CM_EVENT_ROUTE_RESOLVED",
    "RDMA_CM_EVENT_ROUTE_ERROR",
    "RDMA_CM_EVENT_CONNECT_REQUEST",
    "RDMA_CM_EVENT_CONNECT_RESPONSE",
    "RDMA_CM_EVENT_CONNECT_ERROR",
    "RDMA_CM_EVENT_UNREACHABLE",
    "RDMA_CM_EVENT_REJECTED",
    "RDMA_CM_EVENT_ESTABLISHED",
    "RDMA_CM_EVENT_DISCONNECTED",
    "RDMA_CM_EVENT_DEVICE_REMOVAL",
    "RDMA_CM_EVENT_MULTICAST_JOIN",
    "RDMA_CM_EVENT_MULTICAST_ERROR",
    "RDMA_CM_EVENT_ADDR_CHANGE",
    "RDMA_CM_EVENT_TIMEWAIT_EXIT",
    "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    "RDMA_CM_EVENT_ADDRINFO_ERROR",
    "RDMA_CM_EVENT_USER",
    "RDMA_CM_EVENT_INTERNAL",
}};
static_assert(event_names.size() == RDMA_CM_EVENT_TIMEWAIT_EXIT + 5);

}  // namespace

extern "C" const char* rdma_event_str(rdma_cm_event_type event) {
  const auto at = static_cast<std::size_t>(event);
  return at < event_names.size() ? event_names[at] : "UNKNOWN EVENT";
}

}  // namespace tulle::shim::rdmacm

#pragma once

// Declares what newer releases of rdma-core declare, so that Tulle builds with the headers of any
// release.

#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>

#include <cstdint>

extern "C" {
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** out);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, std::uint64_t arg);
int repoll_create(int flags);
int repoll_ctl(int set, int operation, int fd, epoll_event* event);
int repoll_wait(int set, epoll_event* events, int count, int timeout_milliseconds);
}

namespace tulle::shim::rdmacm {

// RAI_SA: the service to ask.
inline constexpr int by_subnet_administrator = 0x10;

}  // namespace tulle::shim::rdmacm

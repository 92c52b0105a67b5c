// Events that a program causes itself: those that it writes, and the end of resolving a name in the
// background. They pass through the host agent, so that they wait in line with all other events of
// the channel. The name service is asked within the call that starts resolving, as rdma-core does.

#include <mutex>

#include "os/cancellation.h"
#include "shim/rdmacm/newer.h"
#include "shim/rdmacm/objects.h"

namespace tulle::shim::rdmacm {
namespace {

using live::ConnectionEventType;

// Returns 0 if the answer comes as an event, which reports a result or that the name is unknown.
int resolve(Id& id, const char* node, const char* service, const rdma_addrinfo* hints) {
  rdma_addrinfo* found = nullptr;
  const int result = rdma_getaddrinfo(node, service, hints, &found);
  if (result == -1) return errno;
  {
    const std::lock_guard guard(id.mutex);
    id.resolved = found;
  }
  return result == 0 ? id.agent().report(id.endpoint,
                                         ConnectionEventType::address_information_resolved, 0, 0)
                     : id.agent().report(
                           id.endpoint, ConnectionEventType::address_information_error, -ENOENT, 0);
}

}  // namespace

void forget_resolved(Id& id) {
  const std::lock_guard guard(id.mutex);
  rdma_freeaddrinfo(id.resolved);
  id.resolved = nullptr;
  id.resolving = false;
}

extern "C" {

// Fails with EBUSY if the result of an earlier call was not taken, and with ENOTSUP if the hints
// ask for the subnet administrator, which no RoCE network has.
int rdma_resolve_addrinfo(rdma_cm_id* ibv, const char* node, const char* service,
                          const rdma_addrinfo* hints) try {
  const NoCancellation no_cancellation;
  if (ibv == nullptr) return answer(EINVAL);
  if (hints != nullptr && (hints->ai_flags & by_subnet_administrator) != 0) return answer(ENOTSUP);
  Id& id = Id::of(ibv);
  {
    const std::lock_guard guard(id.mutex);
    if (id.resolving) return answer(EBUSY);
    id.resolving = true;
  }
  if (const int error = resolve(id, node, service, hints); error != 0) {
    forget_resolved(id);
    return answer(error);
  }
  return answer(complete(id));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

// The caller frees the result. Fails with ENOENT if nothing was found, or if the result was taken
// before.
int rdma_query_addrinfo(rdma_cm_id* ibv, rdma_addrinfo** out) try {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || out == nullptr) return answer(EINVAL);
  Id& id = Id::of(ibv);
  const std::lock_guard guard(id.mutex);
  if (id.resolved == nullptr) return answer(ENOENT);
  *out = id.resolved;
  id.resolved = nullptr;
  id.resolving = false;
  return 0;
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_write_cm_event(rdma_cm_id* ibv, rdma_cm_event_type event, int status,
                        std::uint64_t arg) try {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || static_cast<int>(event) != static_cast<int>(ConnectionEventType::user)) {
    return answer(EINVAL);
  }
  Id& id = Id::of(ibv);
  return answer(id.agent().report(id.endpoint, ConnectionEventType::user, status, arg));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm

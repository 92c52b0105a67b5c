// Multicast groups: the groups that an id has joined, and the queue pair that is attached to them.

#include <algorithm>
#include <cstring>

#include "os/cancellation.h"
#include "shim/rdmacm/objects.h"

namespace tulle::shim::rdmacm {
namespace {

std::list<Multicast>::iterator find(Id& id, const live::SocketAddress& address) {
  return std::find_if(id.groups.begin(), id.groups.end(), [&](const Multicast& group) {
    return from_c(reinterpret_cast<const sockaddr*>(&group.address)).gid() == address.gid();
  });
}

int join(Id& id, const sockaddr* address, std::uint32_t flags, void* context) {
  const socklen_t bytes = length_of(address);
  if (bytes == 0) return EINVAL;
  const live::SocketAddress group = from_c(address);
  {
    const std::lock_guard guard(id.mutex);
    if (find(id, group) != id.groups.end()) return EADDRINUSE;
    Multicast& added = id.groups.emplace_back();
    added.id = &id;
    added.context = context;
    added.flags = flags;
    std::memcpy(&added.address, address, bytes);
  }
  if (const int error = id.agent().join_multicast(id.endpoint, group); error != 0) {
    const std::lock_guard guard(id.mutex);
    id.groups.erase(find(id, group));
    return error;
  }
  return complete(id);
}

int leave(Id& id, const sockaddr* address) {
  if (length_of(address) == 0) return EINVAL;
  const live::SocketAddress group = from_c(address);
  std::list<Multicast> left;  // out of the id's list, so that no more events count for the group
  {
    const std::lock_guard guard(id.mutex);
    const auto found = find(id, group);
    if (found == id.groups.end()) return EADDRNOTAVAIL;
    left.splice(left.begin(), id.groups, found);
  }
  Multicast& group_left = left.front();
  if (id.qp != nullptr && group_left.attached) {
    ibv_detach_mcast(id.qp, &group_left.mgid, 0);
  }
  const int error = id.agent().leave_multicast(id.endpoint, group);
  std::unique_lock lock(id.mutex);
  id.acknowledged.wait(lock,
                       [&] { return group_left.events_acknowledged == group_left.events_taken; });
  return error;
}

}  // namespace

extern "C" {

int rdma_join_multicast(rdma_cm_id* id, sockaddr* address, void* context) try {
  const NoCancellation no_cancellation;
  if (id == nullptr) return answer(EINVAL);
  return answer(join(Id::of(id), address, RDMA_MC_JOIN_FLAG_FULLMEMBER, context));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attributes, void* context) try {
  const NoCancellation no_cancellation;
  if (id == nullptr || attributes == nullptr) return answer(EINVAL);
  if (attributes->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return answer(ENOTSUP);
  constexpr std::uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  if ((attributes->comp_mask & needed) != needed) return answer(EINVAL);
  if (attributes->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return answer(EINVAL);
  return answer(join(Id::of(id), attributes->addr, attributes->join_flags, context));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_leave_multicast(rdma_cm_id* id, sockaddr* address) try {
  const NoCancellation no_cancellation;
  if (id == nullptr) return answer(EINVAL);
  return answer(leave(Id::of(id), address));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm

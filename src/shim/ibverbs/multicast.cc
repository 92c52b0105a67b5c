// Multicast groups: attaches queue pairs to them, and detaches them.

#include <algorithm>

#include "os/cancellation.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {

using verbs::VerbsStatus;

void detach_all(Context& context, Qp& qp) {
  for (const Gid& group : qp.groups) {
    (void)to_errno(context.adapter().multicast().detach(*qp.pair, group));
    if (!context.adapter().multicast().has(group)) context.live->leave(group);
  }
  qp.groups.clear();
}

extern "C" {

// A RoCE port has no LIDs, so that the group's LID is ignored.
int ibv_attach_mcast(ibv_qp* ibv, const ibv_gid* gid, std::uint16_t) try {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || gid == nullptr) return report(EINVAL);
  Qp& qp = Qp::of(ibv);
  Context& context = Context::of(ibv->context);
  const Gid group = to_gid(gid->raw);
  const auto guard = context.lock();
  device::Adapter& adapter = context.adapter();
  if (!qp.pair->transport.takes_multicast || !group.is_multicast()) return report(EINVAL);
  qp.groups.reserve(qp.groups.size() + 1);
  const OnThrow undo([&] {
    if (!adapter.multicast().has(group)) context.live->leave(group);
  });
  if (!adapter.multicast().has(group)) {
    if (const int error = context.live->join(group); error != 0) return report(error);
  }
  const VerbsStatus status = adapter.multicast().attach(*qp.pair, group);
  if (status != VerbsStatus::ok) return report(to_errno(status));
  if (std::find(qp.groups.begin(), qp.groups.end(), group) == qp.groups.end()) {
    qp.groups.push_back(group);
  }
  return 0;
} catch (const std::bad_alloc&) {
  return report(ENOMEM);
}

int ibv_detach_mcast(ibv_qp* ibv, const ibv_gid* gid, std::uint16_t) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || gid == nullptr) return report(EINVAL);
  Qp& qp = Qp::of(ibv);
  Context& context = Context::of(ibv->context);
  const Gid group = to_gid(gid->raw);
  const auto guard = context.lock();
  const VerbsStatus status = context.adapter().multicast().detach(*qp.pair, group);
  if (status != VerbsStatus::ok) return report(to_errno(status));
  std::erase(qp.groups, group);
  if (!context.adapter().multicast().has(group)) context.live->leave(group);
  return 0;
}

}  // extern "C"

}  // namespace tulle::shim

#include "rdma/device/multicast.h"

#include <algorithm>

#include "base/on_throw.h"
#include "rdma/wire/pkey.h"

namespace tulle::device {

using transport::QueuePair;
using verbs::VerbsStatus;

// Only UD queue pairs may attach, as in Linux (drivers/infiniband/core/verbs.c: ib_attach_mcast).
VerbsStatus MulticastGroups::attach(QueuePair& qp, const Gid& group) {
  if (!qp.transport.takes_multicast || !group.is_multicast()) {
    return VerbsStatus::invalid_argument;
  }
  std::vector<QueuePair*>& attached = by_address_[group];
  const OnThrow undo([&] {
    if (attached.empty()) by_address_.erase(group);
  });
  if (std::find(attached.begin(), attached.end(), &qp) == attached.end()) attached.push_back(&qp);
  return VerbsStatus::ok;
}

VerbsStatus MulticastGroups::detach(QueuePair& qp, const Gid& group) {
  const auto found = by_address_.find(group);
  if (found == by_address_.end()) return VerbsStatus::invalid_argument;
  const bool was_attached = std::erase(found->second, &qp) > 0;
  if (found->second.empty()) by_address_.erase(found);
  return was_attached ? VerbsStatus::ok : VerbsStatus::invalid_argument;
}

void MulticastGroups::detach_all(const QueuePair& qp) {
  for (auto& [address, attached] : by_address_) std::erase(attached, &qp);
  std::erase_if(by_address_, [](const auto& group) { return group.second.empty(); });
}

bool MulticastGroups::is_attached(const QueuePair& qp) const {
  return std::ranges::any_of(by_address_, [&qp](const auto& group) {
    return std::ranges::find(group.second, &qp) != group.second.end();
  });
}

std::span<QueuePair* const> MulticastGroups::attached(const Gid& group) const {
  const auto found = by_address_.find(group);
  if (found == by_address_.end()) return {};
  return found->second;
}

// IBTA 9.6.1.3 and 10.5.2: every attached queue pair gets a copy and checks its Q_Key as usual. The
// sender gets one too if the port receives from itself. Adapters do the same, and programs that
// mind check the source (Linux, drivers/infiniband/ulp/ipoib/ipoib_ib.c: ipoib_ib_handle_rx_wc).
MulticastGroups::Delivery MulticastGroups::deliver(Time now, const wire::Packet& packet,
                                                   transport::Payload payload,
                                                   const wire::Path& path,
                                                   std::uint8_t port) const {
  const auto queue_pairs = attached(wire::destination_of(path).gid);
  Delivery delivery;
  delivery.has_group = !queue_pairs.empty();
  for (QueuePair* qp : queue_pairs) {
    if (qp->attributes().port != port) continue;
    if (wire::pkeys_match(packet.pkey, qp->pkey())) {
      qp->handle_packet(now, packet, payload, path);
    } else {
      ++delivery.pkey_violations;
    }
  }
  return delivery;
}

}  // namespace tulle::device

// Multicast groups: the attached queue pairs, and the delivery of packets for a group.

#include "device/multicast.h"

#include <algorithm>

#include "wire/pkey.h"

namespace tulle::device {

using transport::QueuePair;
using verbs::VerbsStatus;

// Only UD queue pairs may attach, as in Linux (drivers/infiniband/core/verbs.c: ib_attach_mcast).
VerbsStatus Adapter::attach(QueuePair& qp, const Gid& group) {
  if (!qp.transport.takes_multicast || !group.is_multicast()) {
    return VerbsStatus::invalid_argument;
  }
  if (multicast_ == nullptr) multicast_ = std::make_unique<MulticastGroups>();
  std::vector<QueuePair*>& attached = multicast_->by_address[group];
  if (std::find(attached.begin(), attached.end(), &qp) != attached.end()) return VerbsStatus::ok;
  attached.push_back(&qp);
  return VerbsStatus::ok;
}

VerbsStatus Adapter::detach(QueuePair& qp, const Gid& group) {
  if (!has_group(group)) return VerbsStatus::invalid_argument;
  const auto found = multicast_->by_address.find(group);
  const bool was_attached = std::erase(found->second, &qp) > 0;
  if (found->second.empty()) multicast_->by_address.erase(found);
  return was_attached ? VerbsStatus::ok : VerbsStatus::invalid_argument;
}

void Adapter::detach_all(const QueuePair& qp) {
  if (multicast_ == nullptr) return;
  for (auto& [address, attached] : multicast_->by_address) std::erase(attached, &qp);
  std::erase_if(multicast_->by_address, [](const auto& group) { return group.second.empty(); });
}

bool Adapter::has_group(const Gid& group) const {
  return multicast_ != nullptr && multicast_->by_address.contains(group);
}

bool Adapter::is_attached(const QueuePair& qp) const {
  if (multicast_ == nullptr) return false;
  return std::any_of(multicast_->by_address.begin(), multicast_->by_address.end(),
                     [&qp](const auto& group) {
                       const auto& attached = group.second;
                       return std::find(attached.begin(), attached.end(), &qp) != attached.end();
                     });
}

// IBTA 9.6.1.3 and 10.5.2: every attached queue pair gets a copy and checks its Q_Key as usual. The
// sender gets a copy too if the port hears itself. Adapters do the same, and programs that mind
// check the source (Linux, drivers/infiniband/ulp/ipoib/ipoib_ib.c: ipoib_ib_handle_rx_wc).
void Adapter::handle_multicast(Time now, const wire::Packet& packet, transport::Payload payload,
                               const wire::Path& path) {
  const Gid group = wire::destination_of(path).gid;
  if (!has_group(group)) {
    ++counters_.unknown_queue_pair;
    return;
  }
  for (QueuePair* qp : multicast_->by_address.at(group)) {
    if (!wire::pkeys_match(packet.pkey, qp->pkey())) {
      ++counters_.pkey_violations;
      ++environment_.counters.dropped_packets;
      continue;
    }
    qp->handle_packet(now, packet, payload, path);
  }
}

}  // namespace tulle::device

// The adapter's control path for queue pairs and address handles.

#include <algorithm>
#include <bit>

#include "base/on_throw.h"
#include "rdma/device/adapter.h"
#include "rdma/device/multicast.h"
#include "rdma/device/raw_packets.h"

namespace tulle::device {

using transport::QueuePair;
using transport::Receives;
using transport::Transport;
using verbs::QpAttribute;
using verbs::VerbsStatus;

verbs::AddressHandle* Adapter::create_ah(verbs::ProtectionDomain& pd,
                                         const verbs::AddressVector& to, VerbsStatus& status) {
  if (!has_port(to.port) || !is_path(to)) {
    status = VerbsStatus::invalid_argument;
    return nullptr;
  }
  if (handles_.size() >= configuration_.limits.address_handles) {
    status = VerbsStatus::out_of_memory;
    return nullptr;
  }
  status = VerbsStatus::ok;
  verbs::AddressHandle* handle = handles_.add(std::make_unique<verbs::AddressHandle>(pd, to));
  ++pd.users;
  return handle;
}

// Says whether packets can take this way: its port has the source GID, and its framing can carry
// that GID and the destination's together. An application may have read a GID whose index has since
// passed to an address of another family. It learns here that it has no way, as from a kernel, and
// not by its retries.
bool Adapter::is_path(const verbs::AddressVector& to) const {
  if (!has_gid(to.source_gid_index, to.port)) return false;
  const PortState& port = at(to.port);
  return port.framing_of(to.source_gid_index, *hot_.framing)
      .is_pair(port.gids[to.source_gid_index], to.destination.gid);
}

VerbsStatus Adapter::destroy(verbs::AddressHandle* handle) {
  --handle->pd->users;
  handles_.destroy(handle);
  return VerbsStatus::ok;
}

VerbsStatus Adapter::check(const Transport& transport, const transport::QueuePairInit& init) const {
  const Limits& limits = configuration_.limits;
  if (transport.receives == Receives::from_named_queue) {
    const bool owns = init.pd != nullptr || init.send_cq != nullptr || init.receive_cq != nullptr;
    if (init.xrc_domain == nullptr || owns) return VerbsStatus::invalid_argument;
  } else {
    const bool receives = transport.receives != Receives::nothing;
    const bool lacks_receive_cq = receives && init.receive_cq == nullptr;
    if (init.pd == nullptr || init.send_cq == nullptr || lacks_receive_cq) {
      return VerbsStatus::invalid_argument;
    }
  }
  const bool shares = transport.receives == Receives::from_any_queue &&
                      (init.srq == nullptr || init.srq->xrc_domain == nullptr);
  if (init.srq != nullptr && !shares) {
    return VerbsStatus::invalid_argument;
  }
  const bool has_tags = init.srq != nullptr && init.srq->tags != nullptr;
  if (has_tags && !transport.matches_tags) return VerbsStatus::invalid_argument;
  const bool fits = init.send_work_requests <= limits.work_requests &&
                    init.receive_work_requests <= limits.work_requests &&
                    init.send_sges <= limits.sges && init.receive_sges <= limits.sges &&
                    init.inline_bytes <= limits.inline_bytes;
  if (!fits) return VerbsStatus::invalid_argument;
  const bool room = qps_.size() < std::min(limits.queue_pairs, configuration_.qp_count);
  return room ? VerbsStatus::ok : VerbsStatus::out_of_memory;
}

// Returns the next unused number in ascending order, so that a number given back is not soon used
// again (IBTA 10.2.4.3).
QpNumber Adapter::unused_qp_number(std::uint32_t hint) {
  if (hint != 0) next_qp_offset_ = hint % configuration_.qp_count;
  for (;;) {
    const QpNumber number{configuration_.first_qp.value + next_qp_offset_};
    next_qp_offset_ = (next_qp_offset_ + 1) % configuration_.qp_count;
    if (find_qp(number) == nullptr) return number;
  }
}

QueuePair* Adapter::create_qp(const transport::QueuePairInit& asked, VerbsStatus& status) {
  const Transport* transport = configuration_.transports->find(asked.type);
  status = transport == nullptr ? VerbsStatus::invalid_argument : check(*transport, asked);
  if (status != VerbsStatus::ok) return nullptr;
  transport::QueuePairInit init = asked;
  init.port_mtu = static_cast<verbs::Mtu>(configuration_.mtu_bytes);
  if (!transport->has_receive_queue()) {
    init.receive_work_requests = init.receive_sges = 0;
    init.receive_cq = init.send_cq;  // nothing completes to it
  }
  if (init.srq != nullptr && init.srq->tags != nullptr) init.receive_cq = init.srq->cq;
  if (!transport->sends.any()) init.send_work_requests = init.send_sges = init.inline_bytes = 0;
  // The slot of a request has room for its SGEs or its inline bytes. Inline data may use the room
  // of the SGEs: programs like rdma_xclient count on 16 bytes without asking.
  init.inline_bytes =
      std::max(init.inline_bytes, static_cast<std::uint32_t>(init.send_sges * sizeof(verbs::Sge)));
  const QpNumber number = unused_qp_number(asked.number_hint);
  if (transport->scheduled_by == transport::ScheduledBy::frames) {
    raw_packets().make_room(qps_.size() + 1);
  }
  hot_.qps_by_number.make_room();
  QueuePair* qp = qps_.add(transport->make(*transport, number, init, environment_));
  hot_.qps_by_number.insert(number.value, qp);
  if (transport->receives == Receives::from_named_queue) {
    ++init.xrc_domain->users;
    return qp;
  }
  ++init.pd->users;
  ++init.send_cq->users;
  ++init.receive_cq->users;
  if (init.srq != nullptr) ++init.srq->users;
  return qp;
}

VerbsStatus Adapter::check(const QueuePair& qp, const transport::QueuePairAttributes& attributes,
                           verbs::QpAttributeMask mask) const {
  if (mask.has(QpAttribute::port) && !has_port(attributes.port)) {
    return VerbsStatus::invalid_argument;
  }
  // A path begins at the queue pair's port.
  const std::uint8_t port = mask.has(QpAttribute::port) ? attributes.port : qp.attributes().port;
  const verbs::AddressVector& to = attributes.address;
  if (mask.has(QpAttribute::address_vector) && (to.port != port || !is_path(to))) {
    return VerbsStatus::invalid_argument;
  }
  if (mask.has(QpAttribute::alternate_path)) {
    const verbs::AddressVector& other = attributes.alternate->address;
    // Without LIDs there is one path: only InfiniBand lets a port have several.
    if (other.destination.lid == Lid(0)) return VerbsStatus::not_supported;
    if (!is_path(other)) return VerbsStatus::invalid_argument;
  }
  if (mask.has(QpAttribute::path_mtu) &&
      verbs::bytes(attributes.path_mtu) > configuration_.mtu_bytes) {
    return VerbsStatus::invalid_argument;
  }
  const std::uint32_t depth = configuration_.limits.read_atomic_depth;
  if (mask.has(QpAttribute::max_rd_atomic) && attributes.max_rd_atomic > depth) {
    return VerbsStatus::invalid_argument;
  }
  if (mask.has(QpAttribute::max_dest_rd_atomic) && attributes.max_dest_rd_atomic > depth) {
    return VerbsStatus::invalid_argument;
  }
  return VerbsStatus::ok;
}

VerbsStatus Adapter::modify(QueuePair& qp, const transport::QueuePairAttributes& attributes,
                            verbs::QpAttributeMask mask) {
  if (const VerbsStatus status = check(qp, attributes, mask); status != VerbsStatus::ok) {
    return status;
  }
  // Nothing of the queue pair may stay behind in the turns of a port that it leaves.
  if (mask.has(QpAttribute::port) && attributes.port != qp.attributes().port) [[unlikely]]
    take_out_of_turns(qp);
  const bool is_stream = qp.transport.found_by == transport::FoundBy::tcp_ports;
  const bool connects = is_stream && mask.has(QpAttribute::destination_qp);
  if (connects) [[unlikely]] {
    const VerbsStatus taken =
        connect_stream(qp, attributes.destination_qp, attributes.address.destination.gid);
    if (taken != VerbsStatus::ok) return taken;
  }
  const bool resets = mask.has(QpAttribute::state) && attributes.state == verbs::QpState::reset;
  if (is_stream && resets) [[unlikely]]
    disconnect_stream(qp);
  const OnThrow undo([&] {
    if (connects) {
      streams_.erase(stream_key(qp, attributes.destination_qp, attributes.address.destination.gid));
    }
  });
  const VerbsStatus status = qp.modify(attributes, mask);
  if (connects && status != VerbsStatus::ok) [[unlikely]] {
    streams_.erase(stream_key(qp, attributes.destination_qp, attributes.address.destination.gid));
  }
  if (status == VerbsStatus::ok) schedule(qp, qp.agenda());
  return status;
}

// Schedules the carriers of the service levels at which the peers have something to send.
void Adapter::attend_peers() {
  transport::SharedPeers& peers = *environment_.peers;
  for (std::uint32_t left = peers.take_attention(); left != 0; left &= left - 1) {
    const auto level = static_cast<std::uint8_t>(std::countr_zero(left));
    QueuePair*& carrier = carriers_[level];
    if (carrier == nullptr) {
      const QpNumber number = unused_qp_number(0);
      hot_.qps_by_number.make_room();
      carrier = qps_.add(peers.make_carrier(number, level));
      hot_.qps_by_number.insert(number.value, carrier);
    }
    visit(*carrier, carrier->agenda());
  }
}

RawPackets& Adapter::raw_packets() {
  if (raw_packets_ == nullptr) raw_packets_ = std::make_unique<RawPackets>();
  return *raw_packets_;
}

VerbsStatus Adapter::destroy(QueuePair* qp) {
  if (multicast_.is_attached(*qp)) return VerbsStatus::busy;
  if (qp->transport.scheduled_by == transport::ScheduledBy::frames) {
    if (raw_packets_->is_used(*qp)) return VerbsStatus::busy;
    raw_packets_->forget(*qp);
  }
  qp->engine().stop_sending(*qp);
  if (qp->transport.scheduled_by == transport::ScheduledBy::peers) attend_peers();
  take_out_of_turns(*qp);
  if (qp->transport.found_by == transport::FoundBy::tcp_ports) [[unlikely]]
    disconnect_stream(*qp);
  std::replace(hot_.recent.begin(), hot_.recent.end(), qp, static_cast<QueuePair*>(nullptr));
  environment_.events.erase_if([qp](const auto& event) { return event.qp == qp; });
  if (qp->transport.receives == Receives::from_named_queue) {
    --qp->init.xrc_domain->users;
  } else {
    qp->init.send_cq->forget(qp->number);
    qp->init.receive_cq->forget(qp->number);
    --qp->init.pd->users;
    --qp->init.send_cq->users;
    --qp->init.receive_cq->users;
    if (qp->init.srq != nullptr) --qp->init.srq->users;
  }
  hot_.qps_by_number.erase(qp->number.value);
  qps_.destroy(qp);
  return VerbsStatus::ok;
}

}  // namespace tulle::device

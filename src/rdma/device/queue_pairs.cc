// The adapter's control path for queue pairs and address handles.

#include <algorithm>
#include <bit>

#include "base/on_throw.h"
#include "rdma/device/adapter.h"
#include "rdma/device/multicast.h"
#include "rdma/device/queue_pair_checks.h"
#include "rdma/device/raw_packets.h"

namespace tulle::device {

using transport::QueuePair;
using transport::Receives;
using transport::Transport;
using verbs::QpAttribute;
using verbs::VerbsStatus;

namespace {

// Returns what the application has asked for, with what follows from the transport.
transport::QueuePairInit completed(const transport::QueuePairInit& asked,
                                   const Transport& transport, std::uint32_t mtu_bytes) {
  transport::QueuePairInit init = asked;
  init.port_mtu = static_cast<verbs::Mtu>(mtu_bytes);
  if (!transport.has_receive_queue()) {
    init.receive_work_requests = init.receive_sges = 0;
    init.receive_cq = init.send_cq;  // nothing completes to it
  }
  if (init.srq != nullptr && init.srq->tags != nullptr) init.receive_cq = init.srq->cq;
  if (!transport.sends.any()) init.send_work_requests = init.send_sges = init.inline_bytes = 0;
  // The slot of a request has room for its SGEs or its inline bytes. Inline data may use the room
  // of the SGEs: programs like rdma_xclient count on 16 bytes without asking.
  init.inline_bytes =
      std::max(init.inline_bytes, static_cast<std::uint32_t>(init.send_sges * sizeof(verbs::Sge)));
  return init;
}

// A queue pair begins to use the objects that it names, or no longer does.
void count_user(const transport::QueuePairInit& init, const Transport& transport, bool begins) {
  const auto count = [begins](auto& object) { begins ? ++object.users : --object.users; };
  if (transport.receives == Receives::from_named_queue) return count(*init.xrc_domain);
  count(*init.pd);
  count(*init.send_cq);
  count(*init.receive_cq);
  if (init.srq != nullptr) count(*init.srq);
}

}  // namespace

verbs::AddressHandle* Adapter::create_ah(verbs::ProtectionDomain& pd,
                                         const verbs::AddressVector& to, VerbsStatus& status) {
  if (!ports_.has(to.port) || !ports_.is_path(to)) {
    status = VerbsStatus::invalid_argument;
    return nullptr;
  }
  verbs::AddressHandle* handle = handles_.create(pd, to);
  status = handle != nullptr ? VerbsStatus::ok : VerbsStatus::out_of_memory;
  return handle;
}

VerbsStatus Adapter::destroy(verbs::AddressHandle* handle) {
  handles_.destroy(handle);
  return VerbsStatus::ok;
}

QueuePair* Adapter::create_qp(const transport::QueuePairInit& asked, VerbsStatus& status) {
  const Transport* transport = configuration_.transports->find(asked.type);
  const bool is_valid =
      transport != nullptr && may_create(*transport, asked, configuration_.limits);
  const bool has_room =
      qps_.size() < std::min(configuration_.limits.queue_pairs, configuration_.qp_count);
  status = !is_valid  ? VerbsStatus::invalid_argument
           : has_room ? VerbsStatus::ok
                      : VerbsStatus::out_of_memory;
  if (status != VerbsStatus::ok) return nullptr;
  const transport::QueuePairInit init = completed(asked, *transport, configuration_.mtu_bytes);
  const QpNumber number = hot_.numbers.unused(asked.number_hint);
  if (transport->scheduled_by == transport::ScheduledBy::frames) {
    raw_packets().make_room(qps_.size() + 1);
  }
  hot_.numbers.make_room();
  QueuePair* qp = qps_.add(transport->make(*transport, number, init, environment_));
  hot_.numbers.insert(*qp);
  count_user(init, *transport, true);
  return qp;
}

VerbsStatus Adapter::modify(QueuePair& qp, const transport::QueuePairAttributes& attributes,
                            verbs::QpAttributeMask mask) {
  if (const VerbsStatus status = ports_.check(qp, attributes, mask); status != VerbsStatus::ok) {
    return status;
  }
  if (!may_modify(attributes, mask, configuration_)) return VerbsStatus::invalid_argument;
  // Nothing of the queue pair may stay behind in the turns of a port that it leaves.
  if (mask.has(QpAttribute::port) && attributes.port != qp.attributes().port) [[unlikely]]
    take_out_of_turns(qp);
  const bool is_stream = qp.transport.found_by == transport::FoundBy::tcp_ports;
  const bool connects = is_stream && mask.has(QpAttribute::destination_qp);
  if (connects) [[unlikely]] {
    if (!streams_.connect(qp, attributes.destination_qp, attributes.address.destination.gid)) {
      return VerbsStatus::busy;
    }
  }
  const bool resets = mask.has(QpAttribute::state) && attributes.state == verbs::QpState::reset;
  if (is_stream && resets) [[unlikely]]
    streams_.disconnect(qp);
  const OnThrow undo([&] {
    if (connects) {
      streams_.undo(qp, attributes.destination_qp, attributes.address.destination.gid);
    }
  });
  const VerbsStatus status = qp.modify(attributes, mask);
  if (connects && status != VerbsStatus::ok) [[unlikely]] {
    streams_.undo(qp, attributes.destination_qp, attributes.address.destination.gid);
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
      const QpNumber number = hot_.numbers.unused(0);
      hot_.numbers.make_room();
      carrier = qps_.add(peers.make_carrier(number, level));
      hot_.numbers.insert(*carrier);
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
    streams_.disconnect(*qp);
  environment_.events.erase_if([qp](const auto& event) { return event.qp == qp; });
  if (qp->transport.receives != Receives::from_named_queue) {
    qp->init.send_cq->forget(qp->number);
    qp->init.receive_cq->forget(qp->number);
  }
  count_user(qp->init, qp->transport, false);
  hot_.numbers.erase(*qp);
  qps_.destroy(qp);
  return VerbsStatus::ok;
}

}  // namespace tulle::device

// The adapter's control path: creating, changing and destroying objects.

#include <algorithm>
#include <bit>

#include "device/adapter.h"
#include "device/raw_packets.h"
#include "transport/srd/engine.h"
#include "transport/srd/peers.h"
#include "transport/xrc/xrc.h"

namespace tulle::device {

using transport::QueuePair;
using transport::Receives;
using transport::Transport;
using verbs::Access;
using verbs::AccessFlags;
using verbs::QpAttribute;
using verbs::VerbsStatus;

namespace {

// IBTA 11.2.8.2: remote write access requires local write access.
bool access_makes_sense(AccessFlags access) {
  const AccessFlags writes = AccessFlags(Access::remote_write) | Access::remote_atomic;
  return !(access & writes).any() || access.has(Access::local_write);
}

}  // namespace

verbs::ProtectionDomain* Adapter::create_pd(VerbsStatus& status) {
  status = VerbsStatus::ok;
  return pds_.add(std::make_unique<verbs::ProtectionDomain>());
}

VerbsStatus Adapter::destroy(verbs::ProtectionDomain* pd) {
  if (pd->users > 0) return VerbsStatus::busy;
  pds_.destroy(pd);
  return VerbsStatus::ok;
}

verbs::MemoryRegion* Adapter::register_memory(verbs::ProtectionDomain& pd, void* address,
                                              std::uint64_t length, std::uint64_t iova,
                                              AccessFlags access, VerbsStatus& status) {
  status = VerbsStatus::ok;
  if (regions_.size() >= configuration_.limits.memory_regions) status = VerbsStatus::out_of_memory;
  const std::uint64_t start = access.has(Access::zero_based) ? 0 : iova;
  const bool wraps = start + length < start || reinterpret_cast<std::uintptr_t>(address) + length <
                                                   reinterpret_cast<std::uintptr_t>(address);
  // Regions that are paged on demand may cover all of the address space.
  const bool too_long =
      length > configuration_.limits.region_bytes && !access.has(Access::on_demand);
  if (wraps || too_long || !access_makes_sense(access)) {
    status = VerbsStatus::invalid_argument;
  }
  if (status != VerbsStatus::ok) return nullptr;
  auto region = std::make_unique<verbs::MemoryRegion>();
  region->pd = &pd;
  region->memory = static_cast<std::byte*>(address);
  region->length = length;
  region->iova = start;
  region->access = access;
  environment_.keys.add(*region);
  if (environment_.direct != nullptr) environment_.direct->expose(*region);
  ++pd.users;
  return regions_.add(std::move(region));
}

verbs::MemoryRegion* Adapter::create_null_region(verbs::ProtectionDomain& pd, VerbsStatus& status) {
  status = VerbsStatus::out_of_memory;
  if (regions_.size() >= configuration_.limits.memory_regions) return nullptr;
  if (null_memory_ == nullptr) {
    null_memory_ = std::make_unique<std::byte[]>(2 * verbs::null_bytes_max);
  }
  auto region = std::make_unique<verbs::MemoryRegion>();
  region->pd = &pd;
  region->memory = null_memory_.get();
  region->length = ~std::uint64_t{0};
  region->access = AccessFlags(Access::local_write) | Access::null;
  environment_.keys.add(*region);
  ++pd.users;
  status = VerbsStatus::ok;
  return regions_.add(std::move(region));
}

VerbsStatus Adapter::reregister(verbs::MemoryRegion& region, const Reregistration& change) {
  if (region.bound_windows > 0) return VerbsStatus::busy;
  const AccessFlags access = change.change_access ? change.access : region.access;
  const bool wraps = change.change_range && change.iova + change.length < change.iova;
  if (wraps || !access_makes_sense(access)) return VerbsStatus::invalid_argument;
  if (environment_.direct != nullptr) environment_.direct->withdraw(region);
  if (change.pd != nullptr) {
    --region.pd->users;
    region.pd = change.pd;
    ++region.pd->users;
  }
  if (change.change_range) {
    region.memory = static_cast<std::byte*>(change.address);
    region.length = change.length;
    region.iova = access.has(Access::zero_based) ? 0 : change.iova;
  }
  region.access = access;
  if (change.pd != nullptr || change.change_range) environment_.keys.renew(region);
  if (environment_.direct != nullptr) environment_.direct->expose(region);
  return VerbsStatus::ok;
}

VerbsStatus Adapter::destroy(verbs::MemoryRegion* region) {
  if (region->bound_windows > 0) return VerbsStatus::busy;
  if (environment_.direct != nullptr) environment_.direct->withdraw(*region);
  environment_.keys.remove(*region);
  --region->pd->users;
  regions_.destroy(region);
  return VerbsStatus::ok;
}

verbs::MemoryWindow* Adapter::create_window(verbs::ProtectionDomain& pd, verbs::WindowType type,
                                            VerbsStatus& status) {
  if (windows_.size() >= configuration_.limits.memory_windows) {
    status = VerbsStatus::out_of_memory;
    return nullptr;
  }
  status = VerbsStatus::ok;
  auto window = std::make_unique<verbs::MemoryWindow>();
  window->type = type;
  window->pd = &pd;
  environment_.keys.add(*window);
  ++pd.users;
  return windows_.add(std::move(window));
}

VerbsStatus Adapter::destroy(verbs::MemoryWindow* window) {
  environment_.keys.unbind(*window);
  environment_.keys.remove(*window);
  --window->pd->users;
  windows_.destroy(window);
  return VerbsStatus::ok;
}

verbs::CompletionQueue* Adapter::create_cq(std::uint32_t entries, void* cookie,
                                           VerbsStatus& status) {
  const Limits& limits = configuration_.limits;
  status = VerbsStatus::ok;
  if (entries == 0 || entries > limits.completion_entries) status = VerbsStatus::invalid_argument;
  if (cqs_.size() >= limits.completion_queues) status = VerbsStatus::out_of_memory;
  if (status != VerbsStatus::ok) return nullptr;
  return cqs_.add(std::make_unique<verbs::CompletionQueue>(entries, completion_events_, cookie));
}

VerbsStatus Adapter::resize(verbs::CompletionQueue& cq, std::uint32_t entries) {
  if (entries == 0 || entries > configuration_.limits.completion_entries) {
    return VerbsStatus::invalid_argument;
  }
  return cq.resize(entries) ? VerbsStatus::ok : VerbsStatus::invalid_argument;
}

VerbsStatus Adapter::destroy(verbs::CompletionQueue* cq) {
  if (cq->users > 0) return VerbsStatus::busy;
  environment_.events.erase_if([cq](const auto& event) { return event.cq == cq; });
  cqs_.destroy(cq);
  return VerbsStatus::ok;
}

verbs::SharedReceiveQueue* Adapter::create_srq(verbs::ProtectionDomain& pd,
                                               std::uint32_t work_requests, std::uint32_t sges,
                                               void* cookie, VerbsStatus& status) {
  const Limits& limits = configuration_.limits;
  status = VerbsStatus::ok;
  if (work_requests == 0 || work_requests > limits.work_requests || sges > limits.sges) {
    status = VerbsStatus::invalid_argument;
  }
  if (srqs_.size() >= limits.shared_receive_queues) status = VerbsStatus::out_of_memory;
  if (status != VerbsStatus::ok) return nullptr;
  ++pd.users;
  return srqs_.add(
      std::make_unique<verbs::SharedReceiveQueue>(pd, work_requests, std::max(sges, 1u), cookie));
}

VerbsStatus Adapter::modify(verbs::SharedReceiveQueue& srq, const std::uint32_t* work_requests,
                            const std::uint32_t* limit) {
  const std::uint32_t capacity = work_requests != nullptr ? *work_requests : srq.queue.capacity();
  if (capacity == 0 || capacity > configuration_.limits.work_requests) {
    return VerbsStatus::invalid_argument;
  }
  if (limit != nullptr && *limit > capacity) return VerbsStatus::invalid_argument;
  if (work_requests != nullptr && !srq.queue.resize(capacity)) {
    return VerbsStatus::invalid_argument;
  }
  if (limit != nullptr) srq.limit = *limit;
  return VerbsStatus::ok;
}

VerbsStatus Adapter::destroy(verbs::SharedReceiveQueue* srq) {
  if (srq->users > 0) return VerbsStatus::busy;
  environment_.events.erase_if([srq](const auto& event) { return event.srq == srq; });
  if (srq->xrc_domain != nullptr) remove_xrc(*srq);
  if (srq->cq != nullptr) --srq->cq->users;
  --srq->pd->users;
  srqs_.destroy(srq);
  return VerbsStatus::ok;
}

verbs::XrcDomain* Adapter::create_xrc_domain() {
  return xrc_domains_.add(std::make_unique<verbs::XrcDomain>());
}

VerbsStatus Adapter::destroy(verbs::XrcDomain* domain) {
  if (domain->users > 0) return VerbsStatus::busy;
  xrc_domains_.destroy(domain);
  return VerbsStatus::ok;
}

// Numbers begin where this adapter's queue pair numbers begin, so that no two adapters of a host
// share a number. A request that reaches the wrong adapter thus fails.
verbs::SharedReceiveQueue* Adapter::create_xrc_srq(verbs::ProtectionDomain& pd,
                                                   verbs::XrcDomain& domain,
                                                   verbs::CompletionQueue& cq,
                                                   std::uint32_t work_requests, std::uint32_t sges,
                                                   void* cookie, VerbsStatus& status) {
  if (environment_.xrc_srqs.size() >= configuration_.qp_count) {
    status = VerbsStatus::out_of_memory;
    return nullptr;
  }
  verbs::SharedReceiveQueue* srq = create_srq(pd, work_requests, sges, cookie, status);
  if (srq == nullptr) return nullptr;
  do {
    srq->number = configuration_.first_qp.value + next_xrc_srq_;
    next_xrc_srq_ = (next_xrc_srq_ + 1) % configuration_.qp_count;
  } while (srq->number == 0 || environment_.xrc_srqs.find(srq->number) != nullptr);
  srq->xrc_domain = &domain;
  srq->cq = &cq;
  environment_.xrc_srqs.insert(srq->number, srq);
  ++domain.users;
  ++cq.users;
  return srq;
}

void Adapter::remove_xrc(verbs::SharedReceiveQueue& srq) {
  environment_.xrc_srqs.erase(srq.number);
  hot_.qps_by_number.for_each([&](QueuePair* qp) {
    const bool names = qp->transport.receives == Receives::from_named_queue;
    if (names) transport::xrc::forget(*qp, srq);
  });
  --srq.xrc_domain->users;
}

verbs::AddressHandle* Adapter::create_ah(verbs::ProtectionDomain& pd,
                                         const verbs::AddressVector& to, VerbsStatus& status) {
  if (!has_gid(to.source_gid_index) || to.port != 1) {
    status = VerbsStatus::invalid_argument;
    return nullptr;
  }
  status = VerbsStatus::ok;
  ++pd.users;
  return handles_.add(std::make_unique<verbs::AddressHandle>(pd, to));
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

// Returns the next unused number in turn, so that a number given back is not soon used again (IBTA
// 10.2.4.3).
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
  if (transport->scheduled_by == transport::ScheduledBy::frames) raw_packets();
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

VerbsStatus Adapter::check(const transport::QueuePairAttributes& attributes,
                           verbs::QpAttributeMask mask) const {
  if (mask.has(QpAttribute::address_vector) &&
      (!has_gid(attributes.address.source_gid_index) || attributes.address.port != 1)) {
    return VerbsStatus::invalid_argument;
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
  if (const VerbsStatus status = check(attributes, mask); status != VerbsStatus::ok) return status;
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
  const VerbsStatus status = qp.modify(attributes, mask);
  if (connects && status != VerbsStatus::ok) [[unlikely]] {
    streams_.erase(
        stream_key(qp.number, attributes.destination_qp, attributes.address.destination.gid));
  }
  if (status == VerbsStatus::ok) schedule(qp, qp.agenda());
  return status;
}

// Schedules the carriers of the service levels at which SRD's peers have something to send.
void Adapter::attend_srd() {
  transport::srd::Peers& srd = *environment_.srd;
  for (std::uint32_t left = srd.take_attention(); left != 0; left &= left - 1) {
    const auto level = static_cast<std::uint8_t>(std::countr_zero(left));
    QueuePair*& carrier = srd_carriers_[level];
    if (carrier == nullptr) {
      const QpNumber number = unused_qp_number(0);
      carrier = qps_.add(transport::srd::make_carrier(number, environment_, level));
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
  if (is_attached(*qp)) return VerbsStatus::busy;
  if (qp->transport.scheduled_by == transport::ScheduledBy::frames) {
    if (raw_packets_->is_used(*qp)) return VerbsStatus::busy;
    raw_packets_->forget(*qp);
  }
  qp->engine().stop_sending(*qp);
  if (qp->transport.scheduled_by == transport::ScheduledBy::peers) attend_srd();
  unschedule(*qp);
  forget_notification(*qp);
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

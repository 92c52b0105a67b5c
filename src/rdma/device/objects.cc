#include "rdma/device/objects.h"

#include <algorithm>

#include "rdma/transport/rc/extended.h"

namespace tulle::device {

using transport::QueuePair;
using transport::Receives;
using verbs::Access;
using verbs::AccessFlags;
using verbs::VerbsStatus;

namespace {

// IBTA 11.2.8.2: remote write access requires local write access.
bool access_makes_sense(AccessFlags access) {
  const AccessFlags writes = AccessFlags(Access::remote_write) | Access::remote_atomic;
  return !(access & writes).any() || access.has(Access::local_write);
}

}  // namespace

verbs::ProtectionDomain* Objects::create_pd(VerbsStatus& status) {
  if (pds_.size() >= limits_.protection_domains) {
    status = VerbsStatus::out_of_memory;
    return nullptr;
  }
  status = VerbsStatus::ok;
  return pds_.add(std::make_unique<verbs::ProtectionDomain>());
}

VerbsStatus Objects::destroy(verbs::ProtectionDomain* pd) {
  if (pd->users > 0) return VerbsStatus::busy;
  pds_.destroy(pd);
  return VerbsStatus::ok;
}

verbs::MemoryRegion* Objects::register_memory(verbs::ProtectionDomain& pd, void* address,
                                              std::uint64_t length, std::uint64_t iova,
                                              AccessFlags access, VerbsStatus& status) {
  status = VerbsStatus::ok;
  if (regions_.size() >= limits_.memory_regions) status = VerbsStatus::out_of_memory;
  const std::uint64_t start = access.has(Access::zero_based) ? 0 : iova;
  const bool wraps = start + length < start || reinterpret_cast<std::uintptr_t>(address) + length <
                                                   reinterpret_cast<std::uintptr_t>(address);
  // Regions that are paged on demand may cover all of the address space.
  const bool too_long = length > limits_.region_bytes && !access.has(Access::on_demand);
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
  environment_->keys.make_room();
  verbs::MemoryRegion* added = regions_.add(std::move(region));
  environment_->keys.add(*added);
  if (environment_->direct != nullptr) environment_->direct->expose(*added);
  ++pd.users;
  return added;
}

verbs::MemoryRegion* Objects::create_null_region(verbs::ProtectionDomain& pd, VerbsStatus& status) {
  status = VerbsStatus::out_of_memory;
  if (regions_.size() >= limits_.memory_regions) return nullptr;
  if (null_memory_ == nullptr) {
    null_memory_ = std::make_unique<std::byte[]>(2 * verbs::null_bytes_max);
  }
  auto region = std::make_unique<verbs::MemoryRegion>();
  region->pd = &pd;
  region->memory = null_memory_.get();
  region->length = ~std::uint64_t{0};
  region->access = AccessFlags(Access::local_write) | Access::null;
  environment_->keys.make_room();
  verbs::MemoryRegion* added = regions_.add(std::move(region));
  environment_->keys.add(*added);
  ++pd.users;
  status = VerbsStatus::ok;
  return added;
}

VerbsStatus Objects::reregister(verbs::MemoryRegion& region, const Reregistration& change) {
  if (region.bound_windows > 0) return VerbsStatus::busy;
  const AccessFlags access = change.change_access ? change.access : region.access;
  const bool wraps = change.change_range && change.iova + change.length < change.iova;
  if (wraps || !access_makes_sense(access)) return VerbsStatus::invalid_argument;
  if (!withdraw(region)) return VerbsStatus::busy;
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
  if (change.pd != nullptr || change.change_range) environment_->keys.renew(region);
  if (environment_->direct != nullptr) environment_->direct->expose(region);
  return VerbsStatus::ok;
}

// Returns false if a process of this host may still write to the region.
bool Objects::withdraw(const verbs::MemoryRegion& region) {
  if (environment_->withheld != nullptr)
    environment_->withheld->release_all({region.memory, region.length});
  return environment_->direct == nullptr || environment_->direct->withdraw(region);
}

VerbsStatus Objects::destroy(verbs::MemoryRegion* region) {
  if (region->bound_windows > 0) return VerbsStatus::busy;
  if (!withdraw(*region)) return VerbsStatus::busy;
  environment_->keys.remove(*region);
  --region->pd->users;
  regions_.destroy(region);
  return VerbsStatus::ok;
}

verbs::MemoryWindow* Objects::create_window(verbs::ProtectionDomain& pd, verbs::WindowType type,
                                            VerbsStatus& status) {
  if (windows_.size() >= limits_.memory_windows) {
    status = VerbsStatus::out_of_memory;
    return nullptr;
  }
  status = VerbsStatus::ok;
  auto window = std::make_unique<verbs::MemoryWindow>();
  window->type = type;
  window->pd = &pd;
  environment_->keys.make_room();
  verbs::MemoryWindow* added = windows_.add(std::move(window));
  environment_->keys.add(*added);
  ++pd.users;
  return added;
}

VerbsStatus Objects::destroy(verbs::MemoryWindow* window) {
  environment_->keys.unbind(*window);
  environment_->keys.remove(*window);
  --window->pd->users;
  windows_.destroy(window);
  return VerbsStatus::ok;
}

verbs::CompletionQueue* Objects::create_cq(std::uint32_t entries, void* cookie,
                                           VerbsStatus& status) {
  const Limits& limits = limits_;
  status = VerbsStatus::ok;
  if (entries == 0 || entries > limits.completion_entries) status = VerbsStatus::invalid_argument;
  if (cqs_.size() >= limits.completion_queues) status = VerbsStatus::out_of_memory;
  if (status != VerbsStatus::ok) return nullptr;
  return cqs_.add(std::make_unique<verbs::CompletionQueue>(entries, *completion_events_, cookie));
}

VerbsStatus Objects::resize(verbs::CompletionQueue& cq, std::uint32_t entries) {
  if (entries == 0 || entries > limits_.completion_entries) {
    return VerbsStatus::invalid_argument;
  }
  return cq.resize(entries) ? VerbsStatus::ok : VerbsStatus::invalid_argument;
}

VerbsStatus Objects::destroy(verbs::CompletionQueue* cq) {
  if (cq->users > 0) return VerbsStatus::busy;
  environment_->events.erase_if([cq](const auto& event) { return event.cq == cq; });
  cqs_.destroy(cq);
  return VerbsStatus::ok;
}

verbs::SharedReceiveQueue* Objects::create_srq(verbs::ProtectionDomain& pd,
                                               std::uint32_t work_requests, std::uint32_t sges,
                                               void* cookie, VerbsStatus& status) {
  const Limits& limits = limits_;
  status = VerbsStatus::ok;
  if (work_requests == 0 || work_requests > limits.work_requests || sges > limits.sges) {
    status = VerbsStatus::invalid_argument;
  }
  if (srqs_.size() >= limits.shared_receive_queues) status = VerbsStatus::out_of_memory;
  if (status != VerbsStatus::ok) return nullptr;
  verbs::SharedReceiveQueue* srq = srqs_.add(
      std::make_unique<verbs::SharedReceiveQueue>(pd, work_requests, std::max(sges, 1u), cookie));
  ++pd.users;
  return srq;
}

VerbsStatus Objects::modify(verbs::SharedReceiveQueue& srq, const std::uint32_t* work_requests,
                            const std::uint32_t* limit) {
  const std::uint32_t capacity = work_requests != nullptr ? *work_requests : srq.queue.capacity();
  if (capacity == 0 || capacity > limits_.work_requests) {
    return VerbsStatus::invalid_argument;
  }
  if (limit != nullptr && *limit > capacity) return VerbsStatus::invalid_argument;
  if (work_requests != nullptr && !srq.queue.resize(capacity)) {
    return VerbsStatus::invalid_argument;
  }
  if (limit != nullptr) srq.limit = *limit;
  return VerbsStatus::ok;
}

VerbsStatus Objects::destroy(verbs::SharedReceiveQueue* srq) {
  if (srq->users > 0) return VerbsStatus::busy;
  environment_->events.erase_if([srq](const auto& event) { return event.srq == srq; });
  if (srq->xrc_domain != nullptr) remove_xrc(*srq);
  if (srq->cq != nullptr) --srq->cq->users;
  --srq->pd->users;
  srqs_.destroy(srq);
  return VerbsStatus::ok;
}

verbs::XrcDomain* Objects::create_xrc_domain() {
  return xrc_domains_.add(std::make_unique<verbs::XrcDomain>());
}

VerbsStatus Objects::destroy(verbs::XrcDomain* domain) {
  if (domain->users > 0) return VerbsStatus::busy;
  xrc_domains_.destroy(domain);
  return VerbsStatus::ok;
}

// Numbers begin where this adapter's queue pair numbers begin, so that no two adapters of a host
// share a number. A request that reaches the wrong adapter thus fails.
verbs::SharedReceiveQueue* Objects::create_xrc_srq(verbs::ProtectionDomain& pd,
                                                   verbs::XrcDomain& domain,
                                                   verbs::CompletionQueue& cq,
                                                   std::uint32_t work_requests, std::uint32_t sges,
                                                   void* cookie, VerbsStatus& status) {
  if (environment_->xrc_srqs.size() >= numbers_) {
    status = VerbsStatus::out_of_memory;
    return nullptr;
  }
  environment_->xrc_srqs.make_room();
  verbs::SharedReceiveQueue* srq = create_srq(pd, work_requests, sges, cookie, status);
  if (srq == nullptr) return nullptr;
  do {
    srq->number = first_number_.value + next_xrc_srq_;
    next_xrc_srq_ = (next_xrc_srq_ + 1) % numbers_;
  } while (srq->number == 0 || environment_->xrc_srqs.find(srq->number) != nullptr);
  srq->xrc_domain = &domain;
  srq->cq = &cq;
  environment_->xrc_srqs.insert(srq->number, srq);
  ++domain.users;
  ++cq.users;
  return srq;
}

void Objects::remove_xrc(verbs::SharedReceiveQueue& srq) {
  environment_->xrc_srqs.erase(srq.number);
  queue_pairs_->for_each([&](QueuePair* qp) {
    const bool names = qp->transport.receives == Receives::from_named_queue;
    if (names) transport::rc::extended::forget(*qp, srq);
  });
  --srq.xrc_domain->users;
}

VerbsStatus Objects::post_receive(verbs::SharedReceiveQueue& srq,
                                  const verbs::ReceiveRequest& request) {
  return srq.queue.post(request);
}

void Objects::request_notification(verbs::CompletionQueue& cq, bool solicited_only) {
  cq.arm(solicited_only);
}

}  // namespace tulle::device

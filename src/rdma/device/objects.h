#pragma once

// The verbs objects of an adapter that belong to no queue pair: protection domains, memory regions
// and windows, completion queues, shared receive queues and XRC domains. They are created, changed
// and destroyed here. Queue pairs find memory by its keys, in transport::Environment.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/id_map.h"
#include "base/ids.h"
#include "rdma/device/limits.h"
#include "rdma/device/owned.h"
#include "rdma/transport/environment.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/verbs/completion_queue.h"
#include "rdma/verbs/memory.h"
#include "rdma/verbs/protection_domain.h"
#include "rdma/verbs/receive_queue.h"
#include "rdma/verbs/tag_list.h"
#include "rdma/verbs/types.h"
#include "rdma/verbs/xrc_domain.h"

namespace tulle::device {

class Objects {
 public:
  // The numbers of receive queues in XRC domains come from the range of the adapter's queue pair
  // numbers. All that is referred to must outlive the objects.
  Objects(const Limits& limits, QpNumber first_number, std::uint32_t numbers,
          transport::Environment& environment, verbs::CompletionEvents& completion_events,
          const IdMap<transport::QueuePair>& queue_pairs)
      : limits_(limits),
        first_number_(first_number),
        numbers_(numbers),
        environment_(&environment),
        completion_events_(&completion_events),
        queue_pairs_(&queue_pairs) {}

  // The functions return null if a limit is reached or an argument is out of range;
  // `status` says which.
  verbs::ProtectionDomain* create_pd(verbs::VerbsStatus& status);
  verbs::VerbsStatus destroy(verbs::ProtectionDomain* pd);

  verbs::MemoryRegion* register_memory(verbs::ProtectionDomain& pd, void* address,
                                       std::uint64_t length, std::uint64_t iova,
                                       verbs::AccessFlags access, verbs::VerbsStatus& status);
  // Creates a region that covers all addresses, reads as zeros and loses what is written. It allows
  // only local access.
  verbs::MemoryRegion* create_null_region(verbs::ProtectionDomain& pd, verbs::VerbsStatus& status);
  // IBTA 11.2.8.4: the PD, the range and the access may change. The keys change if the range or the
  // PD does.
  struct Reregistration {
    verbs::ProtectionDomain* pd = nullptr;  // null: unchanged
    bool change_range = false;
    void* address = nullptr;
    std::uint64_t length = 0;
    std::uint64_t iova = 0;
    bool change_access = false;
    verbs::AccessFlags access;
  };
  verbs::VerbsStatus reregister(verbs::MemoryRegion& region, const Reregistration& change);
  const verbs::MemoryRegion* find_region(LocalKey key) const {  // null: there is no such region
    return environment_->keys.find_region(key);
  }
  // busy: a window is bound to the region, or a process of this host may still write to it
  verbs::VerbsStatus destroy(verbs::MemoryRegion* region);

  verbs::MemoryWindow* create_window(verbs::ProtectionDomain& pd, verbs::WindowType type,
                                     verbs::VerbsStatus& status);
  verbs::VerbsStatus destroy(verbs::MemoryWindow* window);

  verbs::CompletionQueue* create_cq(std::uint32_t entries, void* cookie,
                                    verbs::VerbsStatus& status);
  verbs::VerbsStatus resize(verbs::CompletionQueue& cq, std::uint32_t entries);
  verbs::VerbsStatus destroy(verbs::CompletionQueue* cq);

  verbs::SharedReceiveQueue* create_srq(verbs::ProtectionDomain& pd, std::uint32_t work_requests,
                                        std::uint32_t sges, void* cookie,
                                        verbs::VerbsStatus& status);
  verbs::VerbsStatus modify(verbs::SharedReceiveQueue& srq, const std::uint32_t* work_requests,
                            const std::uint32_t* limit);
  verbs::VerbsStatus destroy(verbs::SharedReceiveQueue* srq);

  // Extended reliable connections (IBTA A14). A queue in a domain is found by its number.
  verbs::XrcDomain* create_xrc_domain();
  verbs::VerbsStatus destroy(verbs::XrcDomain* domain);
  verbs::SharedReceiveQueue* create_xrc_srq(verbs::ProtectionDomain& pd, verbs::XrcDomain& domain,
                                            verbs::CompletionQueue& cq, std::uint32_t work_requests,
                                            std::uint32_t sges, void* cookie,
                                            verbs::VerbsStatus& status);

  // Creates a queue with tag matching (rdma/transport/tag_matching.h) for reliable connections. All
  // their messages complete to `cq`, and so do operations.
  verbs::SharedReceiveQueue* create_tag_srq(verbs::ProtectionDomain& pd, verbs::CompletionQueue& cq,
                                            std::uint32_t work_requests, std::uint32_t sges,
                                            std::uint32_t tags, void* cookie,
                                            verbs::VerbsStatus& status);
  // Performs a tag operation at once. An operation that adds a tag sets its handle. If a tag to
  // remove is no longer there, the completion says so.
  verbs::VerbsStatus operate(verbs::SharedReceiveQueue& srq, verbs::TagOperation& operation);

  verbs::VerbsStatus post_receive(verbs::SharedReceiveQueue& srq,
                                  const verbs::ReceiveRequest& request);
  // Arms the CQ. The next completion (or the next solicited or failed one) raises one event.
  void request_notification(verbs::CompletionQueue& cq, bool solicited_only);
  std::size_t armed_queues() const { return completion_events_->armed; }

  // Sets the manager of the pages of regions with Access::on_demand. Null means that they need
  // none.
  void set_pages(const verbs::MemoryPages* pages) { environment_->keys.set_pages(pages); }

  // Sets a shorter path to peers on the same host, which is told of memory regions. Must be called
  // before any queue pair is connected. Null means none.
  void set_direct_path(transport::DirectPath* direct) { environment_->direct = direct; }

  // From now on the payload that arrives appears late (rdma/transport/withheld.h). Must be called
  // before any queue pair is created. There must be no direct path.
  void withhold_payload() { environment_->withheld = std::make_unique<transport::Withheld>(); }
  // Moves the oldest completions of the queue into `out`, returns their number, and shows the
  // application what was withheld until then.
  std::uint32_t poll(verbs::CompletionQueue& cq, std::span<verbs::Completion> out) {
    const std::uint32_t count = cq.poll(out);
    if (environment_->withheld != nullptr) [[unlikely]] {
      for (std::uint32_t i = 0; i < count; ++i) environment_->withheld->release(out[i]);
    }
    return count;
  }

 private:
  void remove_xrc(verbs::SharedReceiveQueue& srq);
  [[nodiscard]] bool withdraw(const verbs::MemoryRegion& region);

  Limits limits_;
  QpNumber first_number_;
  std::uint32_t numbers_;
  std::uint32_t next_xrc_srq_ = 0;
  transport::Environment* environment_;
  verbs::CompletionEvents* completion_events_;
  const IdMap<transport::QueuePair>* queue_pairs_;
  Owned<verbs::ProtectionDomain> pds_;
  Owned<verbs::MemoryRegion> regions_;
  std::unique_ptr<std::byte[]> null_memory_;  // shared by all null regions
  Owned<verbs::MemoryWindow> windows_;
  Owned<verbs::CompletionQueue> cqs_;
  Owned<verbs::SharedReceiveQueue> srqs_;
  Owned<verbs::XrcDomain> xrc_domains_;
};

}  // namespace tulle::device

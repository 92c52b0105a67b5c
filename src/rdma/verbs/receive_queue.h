#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/ring.h"
#include "rdma/verbs/protection_domain.h"
#include "rdma/verbs/types.h"
#include "rdma/verbs/xrc_domain.h"

namespace tulle::verbs {

class CompletionQueue;

inline constexpr std::uint32_t sges_max = 16;  // most SGEs of one work request

// A receive work request that a message took. It is copied out of its queue, since a shared queue
// continues without it.
struct Receive {
  std::uint64_t wr_id = 0;
  std::uint32_t sge_count = 0;
  std::array<Sge, sges_max> sges;

  std::uint64_t length() const {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < sge_count; ++i) sum += sges[i].length;
    return sum;
  }
};

// Receive work requests in the order in which they were posted. Memory is allocated with the first
// post, so that an idle queue costs only its header.
class ReceiveQueue {
 public:
  ReceiveQueue() = default;
  ReceiveQueue(std::uint32_t work_requests, std::uint32_t sges)
      : capacity_(work_requests), sges_per_request_(sges) {}

  std::uint32_t capacity() const { return capacity_; }
  std::uint32_t sges_per_request() const { return sges_per_request_; }
  std::uint32_t size() const { return wqes_.size(); }
  bool empty() const { return wqes_.empty(); }

  VerbsStatus post(const ReceiveRequest& request);
  // Returns false if the queue is empty.
  [[nodiscard]] bool take(Receive& out);
  // Returns the bytes that the next work request has room for; 0 if the queue is empty.
  std::uint64_t front_length() const;
  // Returns the SGEs of the next work request; none if the queue is empty.
  std::span<const Sge> front_sges() const {
    if (wqes_.empty()) return {};
    const Wqe& wqe = wqes_[0];
    return {sges_.get() + std::size_t{wqe.slot} * sges_per_request_, wqe.sge_count};
  }
  // Returns the bytes that all work requests together have room for.
  std::uint64_t length() const;
  [[nodiscard]] bool resize(std::uint32_t work_requests);
  void clear() { wqes_.clear(); }

 private:
  struct Wqe {
    std::uint64_t wr_id = 0;
    std::uint32_t sge_count = 0;
    std::uint32_t slot = 0;  // slot of its SGEs
  };

  void allocate();
  std::uint64_t length_of(const Wqe& wqe) const;

  std::uint32_t capacity_ = 0;
  std::uint32_t sges_per_request_ = 0;
  std::uint32_t next_slot_ = 0;
  Ring<Wqe> wqes_;
  std::unique_ptr<Sge[]> sges_;
};

class TagList;

// A shared receive queue (IBTA 10.2.9).
class SharedReceiveQueue {
 public:
  SharedReceiveQueue(ProtectionDomain& pd, std::uint32_t work_requests, std::uint32_t sges,
                     void* cookie);
  ~SharedReceiveQueue();

  ProtectionDomain* pd;
  void* cookie;
  ReceiveQueue queue;
  // Raises one event when fewer than `limit` requests are left, and is then disarmed. 0 means not
  // armed.
  std::uint32_t limit = 0;
  std::uint32_t users = 0;

  // Set if the queue belongs to an XRC domain; requests then name the queue by `number`. Otherwise
  // null, and `number` is 0.
  XrcDomain* xrc_domain = nullptr;
  // The completion queue of a queue that has an XRC domain or does tag matching. Null for other
  // queues.
  CompletionQueue* cq = nullptr;
  std::uint32_t number = 0;       // 24 bits
  std::unique_ptr<TagList> tags;  // null: the queue does no tag matching
};

}  // namespace tulle::verbs

#include "rdma/verbs/receive_queue.h"

#include <algorithm>

#include "rdma/verbs/tag_list.h"

namespace tulle::verbs {

VerbsStatus ReceiveQueue::post(const ReceiveRequest& request) {
  if (request.sges.size() > sges_per_request_) return VerbsStatus::invalid_argument;
  if (wqes_.capacity() == 0 && capacity_ > 0) allocate();
  if (wqes_.full()) return VerbsStatus::out_of_memory;
  Wqe& wqe = wqes_.push();
  wqe = {request.wr_id, static_cast<std::uint32_t>(request.sges.size()), next_slot_};
  next_slot_ = next_slot_ + 1 == capacity_ ? 0 : next_slot_ + 1;
  std::copy(request.sges.begin(), request.sges.end(),
            sges_.get() + std::size_t{wqe.slot} * sges_per_request_);
  return VerbsStatus::ok;
}

void ReceiveQueue::allocate() {
  Ring<Wqe> wqes(capacity_);
  sges_ = std::make_unique<Sge[]>(std::size_t{capacity_} * sges_per_request_);
  wqes_ = std::move(wqes);
}

bool ReceiveQueue::take(Receive& out) {
  if (wqes_.empty()) return false;
  const Wqe& wqe = wqes_.front();
  out.wr_id = wqe.wr_id;
  out.sge_count = wqe.sge_count;
  const Sge* sges = sges_.get() + std::size_t{wqe.slot} * sges_per_request_;
  std::copy(sges, sges + wqe.sge_count, out.sges.begin());
  wqes_.pop();
  return true;
}

std::uint64_t ReceiveQueue::front_length() const { return wqes_.empty() ? 0 : length_of(wqes_[0]); }

std::uint64_t ReceiveQueue::length() const {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < wqes_.size(); ++i) sum += length_of(wqes_[i]);
  return sum;
}

std::uint64_t ReceiveQueue::length_of(const Wqe& wqe) const {
  std::uint64_t sum = 0;
  const Sge* sges = sges_.get() + std::size_t{wqe.slot} * sges_per_request_;
  for (std::uint32_t i = 0; i < wqe.sge_count; ++i) sum += sges[i].length;
  return sum;
}

bool ReceiveQueue::resize(std::uint32_t work_requests) {
  if (work_requests < wqes_.size()) return false;
  ReceiveQueue larger(work_requests, sges_per_request_);
  if (!wqes_.empty()) larger.allocate();
  for (Receive receive; take(receive);) {
    const auto status = larger.post({receive.wr_id, {receive.sges.data(), receive.sge_count}});
    TULLE_CHECK(status == VerbsStatus::ok);
  }
  *this = std::move(larger);
  return true;
}

SharedReceiveQueue::SharedReceiveQueue(ProtectionDomain& pd, std::uint32_t work_requests,
                                       std::uint32_t sges, void* cookie)
    : pd(&pd), cookie(cookie), queue(work_requests, sges) {}
SharedReceiveQueue::~SharedReceiveQueue() = default;

}  // namespace tulle::verbs

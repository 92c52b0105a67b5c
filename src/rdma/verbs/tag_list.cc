#include "rdma/verbs/tag_list.h"

#include <algorithm>

namespace tulle::verbs {

VerbsStatus TagList::add(const TaggedRequest& request, std::uint32_t& handle) {
  if (request.sges.size() > sges_per_entry) return VerbsStatus::invalid_argument;
  if (size_ == capacity_) return VerbsStatus::out_of_memory;
  if (entries_.empty()) {
    entries_.resize(capacity_);
    for (std::uint32_t i = 0; i + 1 < capacity_; ++i) entries_[i].next = i + 1;
    free_ = 0;
  }
  const std::uint32_t index = free_;
  Entry& entry = entries_[index];
  free_ = entry.next;
  entry.wr_id = request.wr_id;
  entry.tag = request.tag;
  entry.mask = request.mask;
  entry.sge_count = static_cast<std::uint32_t>(request.sges.size());
  std::copy(request.sges.begin(), request.sges.end(), entry.sges.begin());
  entry.in_use = true;
  entry.previous = last_;
  entry.next = none;
  (last_ != none ? entries_[last_].next : first_) = index;
  last_ = index;
  if (!is_synchronized() && first_waiting_ == none) first_waiting_ = index;
  ++size_;
  handle = entry.generation << index_bits | index;
  return VerbsStatus::ok;
}

bool TagList::remove(std::uint32_t handle) {
  const std::uint32_t index = handle & (entries_max - 1);
  if (index >= entries_.size() || !entries_[index].in_use) return false;
  if (handle != (entries_[index].generation << index_bits | index)) return false;
  take_out(index);
  return true;
}

bool TagList::match(std::uint64_t tag, Receive& out) {
  for (std::uint32_t i = first_; i != first_waiting_; i = entries_[i].next) {
    const Entry& entry = entries_[i];
    if ((tag & entry.mask) != entry.tag) continue;
    out.wr_id = entry.wr_id;
    out.sge_count = entry.sge_count;
    std::copy_n(entry.sges.begin(), entry.sge_count, out.sges.begin());
    take_out(i);
    return true;
  }
  return false;
}

void TagList::take_out(std::uint32_t index) {
  Entry& entry = entries_[index];
  (entry.previous != none ? entries_[entry.previous].next : first_) = entry.next;
  (entry.next != none ? entries_[entry.next].previous : last_) = entry.previous;
  if (first_waiting_ == index) first_waiting_ = entry.next;
  entry.in_use = false;
  ++entry.generation;
  entry.next = free_;
  free_ = index;
  --size_;
}

void TagList::synchronize(std::uint32_t unexpected) {
  dealt_with_ = unexpected;
  if (is_synchronized()) first_waiting_ = none;
}

}  // namespace tulle::verbs

#pragma once

// Finds an adapter's queue pairs by their numbers. Most packets in a row are for one or two of
// them.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/id_map.h"
#include "base/ids.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::device {

class QueuePairNumbers {
 public:
  // New queue pairs get `count` numbers from `first` on. Those without a hint begin at some offset.
  QueuePairNumbers(QpNumber first, std::uint32_t count, std::uint32_t offset)
      : first_(first), count_(count), next_offset_(offset) {}

  // Returns null if there is none.
  transport::QueuePair* find(QpNumber number) {
    transport::QueuePair* last = recent_[0];
    return last != nullptr && last->number == number ? last : find_other(number);
  }
  // Returns the next unused number in ascending order, so that a number given back is not soon used
  // again (IBTA 10.2.4.3). A hint that is not 0 says where to begin.
  QpNumber unused(std::uint32_t hint) {
    if (hint != 0) next_offset_ = hint % count_;
    for (;;) {
      const QpNumber number{first_.value + next_offset_};
      next_offset_ = (next_offset_ + 1) % count_;
      if (find(number) == nullptr) return number;
    }
  }
  // Makes room for one more, so that inserting it cannot fail.
  void make_room() { by_number_.make_room(); }
  void insert(transport::QueuePair& qp) { by_number_.insert(qp.number.value, &qp); }
  void erase(const transport::QueuePair& qp) {
    for (transport::QueuePair*& recent : recent_) {
      if (recent == &qp) recent = nullptr;
    }
    by_number_.erase(qp.number.value);
  }
  std::size_t size() const { return by_number_.size(); }
  template <typename Visit>
  void for_each(Visit visit) const {
    by_number_.for_each(visit);
  }
  const IdMap<transport::QueuePair>& map() const { return by_number_; }

 private:
  // Finds a queue pair other than the one found last.
  transport::QueuePair* find_other(QpNumber number) {
    auto& [last, other] = recent_;
    if (other != nullptr && other->number == number) {
      std::swap(last, other);
      return last;
    }
    transport::QueuePair* found = by_number_.find(number.value);
    if (found != nullptr) other = std::exchange(last, found);
    return found;
  }

  std::array<transport::QueuePair*, 2> recent_{};  // the queue pairs found last
  IdMap<transport::QueuePair> by_number_;
  QpNumber first_;
  std::uint32_t count_;
  std::uint32_t next_offset_;
};

}  // namespace tulle::device

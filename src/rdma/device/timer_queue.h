#pragma once

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace tulle::device {

// The times at which queue pairs want to be woken. Entries are only added, and never moved. A
// deadline that was put off (every acknowledgement does that) is noticed when its old entry comes
// up. So the packet path seldom touches the heap.
//
// No deadline is lost for want of memory. The heap always has room for one more entry than it
// holds. If it cannot grow, that room gets an entry that represents all queue pairs.
class TimerQueue {
 public:
  // Takes the place of a queue pair number, which has 24 bits.
  static constexpr QpNumber all_queue_pairs{0xFFFF'FFFE};

  struct Entry {
    Time at;
    QpNumber qp;
  };

  TimerQueue() { heap_.reserve(first_capacity); }

  bool empty() const { return heap_.empty(); }
  Time next() const { return heap_.empty() ? Time::never() : heap_.front().at; }
  void add(Time at, QpNumber qp) {
    if (heap_.size() + 1 >= heap_.capacity() && !grow()) [[unlikely]]
      return add_for_all(at);
    heap_.push_back({at, qp});
    std::push_heap(heap_.begin(), heap_.end(), Later());
  }
  void rebase(Time by) {
    for (Entry& entry : heap_) tulle::rebase(by, entry.at);
    std::make_heap(heap_.begin(), heap_.end(), Later());
  }
  Entry pop() {
    std::pop_heap(heap_.begin(), heap_.end(), Later());
    const Entry entry = heap_.back();
    heap_.pop_back();
    return entry;
  }

 private:
  static constexpr std::size_t first_capacity = 16;

  // A type, which the heap's functions can inline.
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.at != b.at ? a.at > b.at : a.qp > b.qp;
    }
  };
  bool grow() {
    try {
      heap_.reserve(2 * heap_.capacity());
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  void add_for_all(Time at) {
    const auto found = std::find_if(heap_.begin(), heap_.end(),
                                    [](const Entry& e) { return e.qp == all_queue_pairs; });
    if (found == heap_.end()) {
      heap_.push_back({at, all_queue_pairs});
    } else {
      found->at = std::min(found->at, at);
    }
    std::make_heap(heap_.begin(), heap_.end(), Later());
  }
  std::vector<Entry> heap_;
};

}  // namespace tulle::device

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace tulle::device {

// The times at which queue pairs want to be woken. Entries are only added, and never moved. A
// deadline that was put off (every acknowledgement does that) is noticed when its old entry comes
// up. So the packet path seldom touches the heap.
class TimerQueue {
 public:
  struct Entry {
    Time at;
    QpNumber qp;
  };

  bool empty() const { return heap_.empty(); }
  Time next() const { return heap_.empty() ? Time::never() : heap_.front().at; }
  void add(Time at, QpNumber qp) {
    heap_.push_back({at, qp});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  Entry pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Entry entry = heap_.back();
    heap_.pop_back();
    return entry;
  }

 private:
  static bool later(const Entry& a, const Entry& b) {
    return a.at != b.at ? a.at > b.at : a.qp > b.qp;
  }
  std::vector<Entry> heap_;
};

}  // namespace tulle::device

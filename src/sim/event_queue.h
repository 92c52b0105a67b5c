#pragma once

// The future events in order of time, then node, then the order in which they were planned. No two
// events are equal in all three, so the order never depends on the heap.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/time.h"

namespace tulle::sim {

template <typename What>
class EventQueue {
 public:
  struct Event {
    Time at;
    std::uint32_t node = 0;
    std::uint64_t sequence = 0;
    What what;
  };

  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  Time next() const { return heap_.empty() ? Time::never() : heap_.front().at; }

  void add(Time at, std::uint32_t node, const What& what) {
    heap_.push_back({at, node, sequence_++, what});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  Event pop() {
    TULLE_CHECK(!heap_.empty());
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Event event = heap_.back();
    heap_.pop_back();
    return event;
  }

 private:
  static bool later(const Event& a, const Event& b) {
    if (a.at != b.at) return a.at > b.at;
    if (a.node != b.node) return a.node > b.node;
    return a.sequence > b.sequence;
  }

  std::vector<Event> heap_;
  std::uint64_t sequence_ = 0;
};

}  // namespace tulle::sim

#pragma once

// The events of one turn in order: those known before the turn, which are sorted once, and those
// planned during it.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "sim/event.h"

namespace tulle::sim {

class Turn {
 public:
  // All events of the turn must be in [start, end), and the turn must be empty.
  void begin(Time start, Time end) {
    start_ = start.ps;
    length_ = end.ps - start.ps;
    known_.clear();
    next_known_ = 0;
  }
  // Adds an event that is known before the turn. Must be called before the first event is taken.
  void give(const Event& event) { known_.push_back(event); }
  void sort() {
    if (known_.size() > few) {
      sort_by_buckets();
    } else {
      insertion_sort(known_.begin(), known_.end());
    }
  }
  // Inserts an event during the turn. It must not be before any event that was taken.
  void insert(const Event& event) {
    if (last_ - first_ == ring_.size()) grow();
    std::size_t i = last_++;
    for (; i != first_ && event.before(at(i - 1)); --i) at(i) = at(i - 1);
    at(i) = event;
  }

  bool empty() const { return next_known_ == known_.size() && first_ == last_; }
  // There must be an event.
  const Event& next() const { return takes_known() ? known_[next_known_] : at(first_); }
  Event pop() {
    if (takes_known()) return known_[next_known_++];
    return at(first_++);
  }
  // Returns the event that is `ahead` places after the next among those known before the turn, or
  // null.
  const Event* peek_known(std::size_t ahead) const {
    return next_known_ + ahead < known_.size() ? &known_[next_known_ + ahead] : nullptr;
  }

 private:
  static constexpr std::size_t few = 24;

  struct Before {  // a class, so that std::sort can inline it
    bool operator()(const Event& a, const Event& b) const { return a.before(b); }
  };

  bool takes_known() const {
    if (first_ == last_) return true;
    return next_known_ != known_.size() && known_[next_known_].before(at(first_));
  }
  Event& at(std::size_t i) { return ring_[i & (ring_.size() - 1)]; }
  const Event& at(std::size_t i) const { return ring_[i & (ring_.size() - 1)]; }
  void grow() {
    std::vector<Event> larger(ring_.size() * 2);
    const std::size_t count = last_ - first_;
    for (std::size_t i = 0; i < count; ++i) larger[i] = at(first_ + i);
    ring_.swap(larger);
    first_ = 0;
    last_ = count;
  }

  template <typename Iterator>
  static void insertion_sort(Iterator begin, Iterator end) {
    for (Iterator next = begin; next != end; ++next) {
      const Event event = *next;
      Iterator to = next;
      for (; to != begin && event.before(*(to - 1)); --to) *to = *(to - 1);
      *to = event;
    }
  }

  // Sorts the events by time into about as many buckets as there are events, then sorts each
  // bucket.
  void sort_by_buckets() {
    const std::size_t buckets = std::bit_ceil(known_.size());
    const auto span_bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(length_)));
    const int shift = std::max(0, span_bits - std::countr_zero(buckets));
    const auto bucket_of = [&](const Event& event) {
      return static_cast<std::size_t>((event.at - start_) >> shift);
    };
    ends_.assign(buckets, 0);
    for (const Event& event : known_) ++ends_[bucket_of(event)];
    std::uint32_t end = 0;
    for (std::uint32_t& count : ends_) count = end += count;
    sorted_.resize(known_.size());
    for (std::size_t i = known_.size(); i-- > 0;)
      sorted_[--ends_[bucket_of(known_[i])]] = known_[i];
    known_.swap(sorted_);
    // ends_ now holds where each bucket begins.
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
      const auto first = known_.begin() + ends_[bucket];
      const auto last = bucket + 1 < buckets ? known_.begin() + ends_[bucket + 1] : known_.end();
      if (last - first > static_cast<std::ptrdiff_t>(few)) {
        std::sort(first, last, Before());
      } else {
        insertion_sort(first, last);
      }
    }
  }

  std::int64_t start_ = 0;
  std::int64_t length_ = 1;
  std::vector<Event> known_;
  std::size_t next_known_ = 0;
  // The events planned during the turn, in a ring. Most are later than all before, and few wait at
  // a time.
  std::vector<Event> ring_ = std::vector<Event>(64);
  std::size_t first_ = 0, last_ = 0;
  std::vector<Event> sorted_;
  std::vector<std::uint32_t> ends_;
};

}  // namespace tulle::sim

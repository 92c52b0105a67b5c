#pragma once

// The events of one turn in order: those known before the turn, which are sorted once, and those
// planned during it.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
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
    known_count_ = 0;
    next_known_ = 0;
  }
  // Adds the first `count` of some events, which are known before the turn. All of them are copied,
  // since that is faster. Must be called before the first event is taken.
  template <std::size_t room>
  void give(const std::array<Event, room>& events, std::size_t count) {
    if (known_.size() < known_count_ + room + lasts) [[unlikely]]
      known_.resize(2 * (known_count_ + room + lasts));
    std::copy_n(events.begin(), room, known_.begin() + static_cast<std::ptrdiff_t>(known_count_));
    known_count_ += count;
  }
  // Must be called when all known events were given.
  void sort() {
    if (known_count_ > few) {
      sort_by_buckets();
    } else {
      insertion_sort(known_.data(), known_.data() + known_count_);
    }
    std::fill_n(known_.data() + known_count_, lasts, last);
  }
  // Inserts an event during the turn. It must not be before any event that was taken.
  void insert(Event event) {
    if (last_ - first_ == ring_.size()) [[unlikely]]
      grow();
    std::size_t i = last_++;
    for (; i != first_ && event.before(at(i - 1)); --i) at(i) = at(i - 1);
    at(i) = event;
  }

  bool empty() const { return next_known_ == known_count_ && first_ == last_; }
  // There must be an event.
  const Event& next() const { return takes_known() ? known_[next_known_] : at(first_); }
  Event pop() {
    const bool is_known = takes_known();
    const Event event = is_known ? known_[next_known_] : at(first_);
    next_known_ += is_known ? 1 : 0;
    first_ += is_known ? 0 : 1;
    return event;
  }
  // Returns the event that is `ahead` places after the next among those known before the turn. If
  // there are not so many, it is an event without a meaning, with a place of ones.
  static constexpr std::size_t ahead = 4;
  const Event& peek_known() const { return known_[next_known_ + ahead]; }

 private:
  static constexpr std::size_t few = 24;

  struct Before {  // a class, so that std::sort can inline it
    bool operator()(const Event& a, const Event& b) const { return a.before(b); }
  };

  // So many of these follow the known events. No event is after them.
  static constexpr std::size_t lasts = ahead + 1;
  static constexpr Event last{std::numeric_limits<std::int64_t>::max(), 0xFFFF'FFFF, 0xFFFF'FFFF};

  bool takes_known() const { return first_ == last_ || known_[next_known_].before(at(first_)); }
  Event& at(std::size_t i) { return ring_[i & ring_mask_]; }
  const Event& at(std::size_t i) const { return ring_[i & ring_mask_]; }
  void grow() {
    std::vector<Event> larger(ring_.size() * 2);
    const std::size_t count = last_ - first_;
    for (std::size_t i = 0; i < count; ++i) larger[i] = at(first_ + i);
    ring_.swap(larger);
    ring_mask_ = ring_.size() - 1;
    first_ = 0;
    last_ = count;
  }

  static void insertion_sort(Event* begin, Event* end) {
    for (Event* next = begin; next != end; ++next) {
      const Event event = *next;
      Event* to = next;
      for (; to != begin && event.before(*(to - 1)); --to) *to = *(to - 1);
      *to = event;
    }
  }

  // Sorts the events by time into about as many buckets as there are events, then sorts each
  // bucket.
  void sort_by_buckets() {
    const std::size_t buckets = std::bit_ceil(known_count_);
    const auto span_bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(length_)));
    const int shift = std::max(0, span_bits - std::countr_zero(buckets));
    const auto bucket_of = [&](const Event& event) {
      return static_cast<std::size_t>((event.at - start_) >> shift);
    };
    ends_.assign(buckets, 0);
    for (std::size_t i = 0; i < known_count_; ++i) ++ends_[bucket_of(known_[i])];
    std::uint32_t end = 0, fullest = 0;
    for (std::uint32_t& count : ends_) {
      fullest = std::max(fullest, count);
      count = end += count;
    }
    sorted_.resize(known_.size());
    for (std::size_t i = known_count_; i-- > 0;) sorted_[--ends_[bucket_of(known_[i])]] = known_[i];
    known_.swap(sorted_);
    // No event leaves its bucket any more.
    if (fullest <= few) return insertion_sort(known_.data(), known_.data() + known_count_);
    // ends_ now holds where each bucket begins.
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
      const std::size_t from = ends_[bucket];
      const std::size_t to = bucket + 1 < buckets ? ends_[bucket + 1] : known_count_;
      std::sort(known_.data() + from, known_.data() + to, Before());
    }
  }

  std::int64_t start_ = 0;
  std::int64_t length_ = 1;
  std::vector<Event> known_ = std::vector<Event>(lasts, last);  // the known events, then room
  std::size_t known_count_ = 0;
  std::size_t next_known_ = 0;
  // The events planned during the turn, in a ring. Most are later than all before, and few wait at
  // a time.
  std::vector<Event> ring_ = std::vector<Event>(64);
  std::size_t ring_mask_ = 63;
  std::size_t first_ = 0, last_ = 0;
  std::vector<Event> sorted_;
  std::vector<std::uint32_t> ends_;
};

}  // namespace tulle::sim

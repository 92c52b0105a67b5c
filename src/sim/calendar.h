#pragma once

// What is to happen, in the order in which it does: by time, then place, then datum. No two events
// are equal in all of these, so the order depends on nothing else: not on when an event was
// planned, nor on how the calendar is laid out.
//
// A calendar queue (Brown 1988). A day's events lie in blocks, unsorted, and are sorted when the
// day comes. A bitmap skips empty days. What lies beyond the calendar's year waits in a heap, which
// timeouts use and packets do not. Every operation takes constant time while a day holds some tens
// of events.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/time.h"

namespace tulle::sim {

struct CalendarEvent {
  std::int64_t at = 0;      // ps
  std::uint32_t place = 0;  // the user's: where it happens, and what
  std::uint32_t datum = 0;

  std::uint64_t order() const { return std::uint64_t{place} << 32 | datum; }
  // Without a branch, which would be mispredicted half of the time.
  bool before(const CalendarEvent& other) const {
    return (at < other.at) | ((at == other.at) & (order() < other.order()));
  }
};

class Calendar {
 public:
  static constexpr std::size_t long_year = 1 << 14;  // days

  // A day of about `day` is best when it holds some events; it is rounded down to a power of two of
  // picoseconds. `days`, of the year, is a power of two too, and at least 64.
  explicit Calendar(Time day, std::size_t days = long_year)
      : shift_(
            static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(
                                      std::clamp<std::int64_t>(day.ps, 1, std::int64_t{1} << 24))) -
                                  1)),
        days_(days, none),
        marks_(days / 64) {
    TULLE_CHECK(std::has_single_bit(days) && days >= 64);
  }

  // From now on nothing happens before `start`, which may lie before all that has been. The
  // calendar must be empty.
  void restart(Time start) {
    TULLE_CHECK(size_ == 0);
    today_ = (start.ps >> shift_) - 1;
  }

  bool empty() const { return size_ == 0; }
  std::uint64_t size() const { return size_; }

  void add(const CalendarEvent& event) {
    ++size_;
    const std::int64_t day = event.at >> shift_;
    if (day <= today_) {
      insert_today(event);
    } else if (day < today_ + year()) {
      insert(event, day);
    } else {
      far_.push_back(event);
      std::push_heap(far_.begin(), far_.end(), Later());
    }
  }

  // When the earliest event is. There must be one.
  std::int64_t next() {
    if (now_.empty()) turn_to_next_day();
    return now_.back().at;
  }
  // The earliest event, which is taken out. There must be one.
  CalendarEvent pop() {
    if (now_.empty()) turn_to_next_day();
    const CalendarEvent event = now_.back();
    now_.pop_back();
    --size_;
    return event;
  }
  // Whether a day has begun since this was last asked.
  bool take_new_day() { return std::exchange(new_day_, false); }
  // The next day's events as far as they are known, in no order.
  template <typename Visit>
  void visit_tomorrow(Visit visit) const {
    for (std::uint32_t index = days_[slot_of(today_ + 1)]; index != none;) {
      const Block& block = blocks_[index];
      for (std::uint32_t i = 0; i < block.count; ++i) visit(block.events[i]);
      index = block.next;
    }
  }
  // The event that comes `ahead` after the next one, if it is known already; else null. What it
  // will touch can be fetched meanwhile.
  const CalendarEvent* peek(std::size_t ahead) const {
    return ahead < now_.size() ? &now_[now_.size() - 1 - ahead] : nullptr;
  }

 private:
  static constexpr std::uint32_t none = 0xFFFF'FFFF;
  struct alignas(64) Block {
    std::uint32_t count = 0;
    std::uint32_t next = none;
    std::array<CalendarEvent, 7> events;
  };

  struct Later {  // a type of its own, so that sorting has it inline
    bool operator()(const CalendarEvent& a, const CalendarEvent& b) const { return b.before(a); }
  };
  std::int64_t year() const { return static_cast<std::int64_t>(days_.size()); }
  std::size_t slot_of(std::int64_t day) const {
    return static_cast<std::size_t>(day) & (days_.size() - 1);
  }

  // now_ is sorted with the earliest at its end.
  void insert_today(const CalendarEvent& event) {
    now_.push_back(event);
    for (std::size_t i = now_.size() - 1; i > 0 && now_[i - 1].before(now_[i]); --i) {
      std::swap(now_[i - 1], now_[i]);
    }
  }

  void insert(const CalendarEvent& event, std::int64_t day) {
    const std::size_t slot = slot_of(day);
    std::uint32_t index = days_[slot];
    if (index == none || blocks_[index].count == blocks_[index].events.size()) {
      index = take_block();
      blocks_[index].count = 0;
      blocks_[index].next = days_[slot];
      days_[slot] = index;
      marks_[slot / 64] |= 1ull << (slot % 64);
    }
    Block& block = blocks_[index];
    block.events[block.count++] = event;
    ++near_;
  }

  std::uint32_t take_block() {
    if (free_ == none) {
      blocks_.emplace_back();
      return static_cast<std::uint32_t>(blocks_.size() - 1);
    }
    const std::uint32_t index = free_;
    free_ = blocks_[index].next;
    return index;
  }

  void turn_to_next_day() {
    TULLE_CHECK(size_ > 0);
    today_ = near_ > 0 ? next_marked_day() : far_.front().at >> shift_;
    // What has come within the year, now that it begins later.
    while (!far_.empty() && far_.front().at >> shift_ < today_ + year()) {
      std::pop_heap(far_.begin(), far_.end(), Later());
      const CalendarEvent event = far_.back();
      far_.pop_back();
      TULLE_CHECK(event.at >> shift_ >= today_);
      insert(event, event.at >> shift_);
    }
    take_day();
  }

  std::int64_t next_marked_day() const {
    const std::size_t start = slot_of(today_ + 1);
    std::size_t word = start / 64;
    std::uint64_t bits = marks_[word] >> (start % 64) << (start % 64);
    while (bits == 0) {
      word = (word + 1) & (marks_.size() - 1);
      bits = marks_[word];
    }
    const std::size_t slot = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
    return today_ + 1 + static_cast<std::int64_t>((slot - start) & (days_.size() - 1));
  }

  void take_day() {
    const std::size_t slot = slot_of(today_);
    for (std::uint32_t index = days_[slot]; index != none;) {
      Block& block = blocks_[index];
      now_.insert(now_.end(), block.events.begin(), block.events.begin() + block.count);
      near_ -= block.count;
      const std::uint32_t next = block.next;
      block.next = free_;
      free_ = index;
      index = next;
    }
    days_[slot] = none;
    marks_[slot / 64] &= ~(1ull << (slot % 64));
    std::sort(now_.begin(), now_.end(), Later());
    new_day_ = true;
    // The next days' blocks are on their way meanwhile.
    for (std::size_t ahead = 2; ahead <= 3; ++ahead) {
      const std::uint32_t index = days_[(slot + ahead) & (days_.size() - 1)];
      if (index == none) continue;
      __builtin_prefetch(&blocks_[index]);
      __builtin_prefetch(&blocks_[index].events[4]);
    }
  }

  unsigned shift_;
  bool new_day_ = false;
  std::int64_t today_ = -1;
  std::uint64_t size_ = 0;
  std::uint64_t near_ = 0;           // events in days_
  std::vector<CalendarEvent> now_;   // today's
  std::vector<std::uint32_t> days_;  // the first block of each day
  std::vector<std::uint64_t> marks_;
  std::vector<Block> blocks_;
  std::uint32_t free_ = none;
  std::vector<CalendarEvent> far_;
};

}  // namespace tulle::sim

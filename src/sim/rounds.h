#pragma once

// The future events of each node, kept in rounds of virtual time.
//
// No action of a node reaches another before the delay of the link between them. In a round no
// longer than the shortest link delay, every node can therefore go through its events alone, one
// node after the other, and finds its data in the cache. Conservative parallel simulation calls
// this delay lookahead (Chandy and Misra 1979, Fujimoto 1990).
//
// Each node has a calendar queue (Brown 1988) whose days are rounds. Events lie unsorted in blocks,
// so that adding one takes constant time, whatever their number. Events beyond the kept rounds wait
// in a heap. These are timeouts, and packets only on links many times as long as the shortest.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/prefetch.h"
#include "base/time.h"
#include "sim/event.h"

namespace tulle::sim {

class Rounds {
 public:
  static constexpr std::uint32_t no_node = 0xFFFF'FFFF;

  // Keeps events by node for `kept` rounds, a power of two. length^2 * kept must be below 2^63
  // ps^2.
  Rounds(Time length, std::uint32_t nodes, std::size_t kept)
      : length_(length.ps),
        inverse_(((Wide{1} << 63) + static_cast<Wide>(length.ps) - 1) /
                 static_cast<Wide>(length.ps)),
        nodes_(nodes),
        kept_(kept),
        words_((nodes + 63) / 64),
        first_(kept * nodes, none),
        marks_(kept * words_),
        counts_(kept) {
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    TULLE_CHECK(std::has_single_bit(kept) && length_ > 0);
    TULLE_CHECK(length_ <= most / length_ / static_cast<std::int64_t>(kept));
  }

  bool empty() const { return near_ == 0 && far_.empty(); }

  // Adds an event, which must not be before the present round.
  void add(std::uint32_t node, const Event& event) {
    const std::int64_t offset = event.at - start_;
    TULLE_CHECK(offset >= 0);
    if (offset >= length_ * static_cast<std::int64_t>(kept_)) {
      far_.push_back({event, node});
      std::push_heap(far_.begin(), far_.end(), Later());
    } else {
      insert(slot_after(rounds_in(offset)), node, event);
    }
  }

  // Returns the time of the earliest event. Time::never() means that there is none.
  Time next() const {
    if (near_ > 0) return earliest(slot_after(first_round()));
    return far_.empty() ? Time::never() : Time{far_.front().event.at};
  }

  // Begins to go through the nodes with events in the earliest round that has any, but not later
  // than `until`. Returns false if there are none.
  bool begin(Time until) {
    if (empty()) return false;
    const Time start = next_round();
    const std::int64_t last = start.ps + length_ - 1;
    const bool whole = until.ps >= last;
    if (!whole && next() > until) return false;
    begin_at(start, Time{(whole ? last : until.ps) + 1});
    return true;
  }
  // Begins to go through the nodes with events in the round that begins at `start`, which has some
  // or is later than the present one, and before `end`.
  void begin_at(Time start, Time end) {
    skip((start.ps - start_) / length_);
    end_ = end.ps;
    cursor_ = 0;
  }
  // Returns when the earliest round with events begins. Time::never() means that there are none.
  Time next_round() const {
    if (near_ > 0) return Time{start_ + static_cast<std::int64_t>(first_round()) * length_};
    return far_.empty() ? Time::never() : round_of(Time{far_.front().event.at});
  }
  // Returns when the round of a moment begins.
  Time round_of(Time at) const { return Time{at.ps - at.ps % length_}; }
  Time length() const { return Time{length_}; }
  // All events from take() lie in [start(), end()).
  Time start() const { return Time{start_}; }
  Time end() const { return Time{end_}; }

  // Returns the node whose turn is next. no_node means that all have had theirs until the next
  // begin().
  std::uint32_t next_node() {
    const std::uint32_t node = node_from(cursor_);
    cursor_ = node == no_node ? no_node : node + 1;
    return node;
  }
  // Returns the node that next_node() will return.
  std::uint32_t peek_node() const { return node_from(cursor_); }
  // Takes a node's events before end(), in no particular order.
  template <typename Visit>
  void take(std::uint32_t node, Visit visit) {
    std::uint32_t index = first_[slot_ * nodes_ + node];
    first_[slot_ * nodes_ + node] = none;
    marks_[slot_ * words_ + node / 64] &= ~(1ull << (node % 64));
    late_.clear();
    while (index != none) {
      Block& block = blocks_[index];
      counts_[slot_] -= block.count;
      near_ -= block.count;
      for (std::uint32_t i = 0; i < block.count; ++i) {
        if (block.events[i].at < end_) {
          visit(block.events[i]);
        } else {
          late_.push_back(block.events[i]);
        }
      }
      const std::uint32_t next = block.next;
      block.next = free_;
      free_ = index;
      index = next;
    }
    for (const Event& event : late_) insert(slot_, node, event);
  }

  // Look at a node's events before they are taken, a block at a time, so that the events and the
  // data that they name can be prefetched. first_block() returns the first block, and look() visits
  // the events of a block and returns the next block. none means that there are no more.
  static constexpr std::uint32_t none = 0xFFFF'FFFF;
  std::uint32_t first_block(std::uint32_t node) const {
    const std::uint32_t first = first_[slot_ * nodes_ + node];
    if (first != none) prefetch(first);
    return first;
  }
  template <typename Visit>
  std::uint32_t look(std::uint32_t index, Visit visit) const {
    const Block& block = blocks_[index];
    if (block.next != none) prefetch(block.next);
    for (std::uint32_t i = 0; i < block.count; ++i) visit(block.events[i]);
    return block.next;
  }

 private:
  __extension__ using Wide = unsigned __int128;

  struct alignas(64) Block {
    std::uint32_t count = 0;
    std::uint32_t next = none;
    std::array<Event, 7> events;
  };
  struct Far {
    Event event;
    std::uint32_t node = 0;
  };
  struct Later {
    bool operator()(const Far& a, const Far& b) const { return b.event.before(a.event); }
  };

  void prefetch(std::uint32_t block) const {
    tulle::prefetch(&blocks_[block]);
    tulle::prefetch(&blocks_[block].events[4]);
  }

  std::size_t slot_after(std::size_t rounds) const { return (slot_ + rounds) & (kept_ - 1); }
  // Computes offset / length_ by a multiplication. As offset * length_ < 2^63, rounding the inverse
  // up never makes the result too large.
  std::size_t rounds_in(std::int64_t offset) const {
    return static_cast<std::size_t>(static_cast<Wide>(offset) * inverse_ >> 63);
  }

  void insert(std::size_t slot, std::uint32_t node, const Event& event) {
    std::uint32_t& first = first_[slot * nodes_ + node];
    if (first == none || blocks_[first].count == blocks_[first].events.size()) {
      const std::uint32_t added = take_block();
      blocks_[added].count = 0;
      blocks_[added].next = first;
      first = added;
      marks_[slot * words_ + node / 64] |= 1ull << (node % 64);
    }
    Block& block = blocks_[first];
    block.events[block.count++] = event;
    ++counts_[slot];
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

  std::uint32_t node_from(std::uint32_t from) const {
    const std::uint64_t* marks = &marks_[slot_ * words_];
    std::size_t word = from / 64;
    if (word >= words_) return no_node;
    std::uint64_t bits = marks[word] >> (from % 64) << (from % 64);
    while (bits == 0) {
      if (++word == words_) return no_node;
      bits = marks[word];
    }
    return static_cast<std::uint32_t>(word * 64) +
           static_cast<std::uint32_t>(std::countr_zero(bits));
  }

  Time earliest(std::size_t slot) const {
    std::int64_t at = std::numeric_limits<std::int64_t>::max();
    for (std::uint32_t node = 0; node < nodes_; ++node) {
      for (std::uint32_t i = first_[slot * nodes_ + node]; i != none; i = blocks_[i].next) {
        const Block& block = blocks_[i];
        for (std::uint32_t e = 0; e < block.count; ++e) at = std::min(at, block.events[e].at);
      }
    }
    return Time{at};
  }

  // Returns how many rounds away the earliest kept round with events is. There must be one.
  std::size_t first_round() const {
    std::size_t ahead = 0;
    while (counts_[slot_after(ahead)] == 0) ++ahead;
    return ahead;
  }

  void skip(std::int64_t rounds) {
    if (rounds == 0) return;
    start_ += rounds * length_;
    slot_ = slot_after(static_cast<std::size_t>(rounds));
    const std::int64_t kept = length_ * static_cast<std::int64_t>(kept_);
    while (!far_.empty() && far_.front().event.at - start_ < kept) {
      std::pop_heap(far_.begin(), far_.end(), Later());
      const Far next = far_.back();
      far_.pop_back();
      add(next.node, next.event);
    }
  }

  std::int64_t length_;
  Wide inverse_;  // 2^63 / length_, rounded up
  std::uint32_t nodes_;
  std::size_t kept_;
  std::size_t words_;
  std::vector<std::uint32_t> first_;   // by round and node: its first block
  std::vector<std::uint64_t> marks_;   // by round: a bit for each node with events
  std::vector<std::uint32_t> counts_;  // by round: number of its events
  std::int64_t start_ = 0;             // start of the present round
  std::size_t slot_ = 0;               // index of the present round
  std::int64_t end_ = 0;
  std::uint32_t cursor_ = no_node;  // node to look at next
  std::uint64_t near_ = 0;          // events in blocks
  std::vector<Block> blocks_;
  std::uint32_t free_ = none;
  std::vector<Event> late_;
  std::vector<Far> far_;
};

}  // namespace tulle::sim

#pragma once

// What is to happen, kept by node, in rounds of virtual time.
//
// Nothing that a node does reaches another before the delay of the link between them. In a round no
// longer than the shortest such delay every node can therefore go through its events alone, one
// node after the other, and finds what it touches in the cache; conservative parallel simulation
// calls the delay lookahead (Chandy and Misra 1979, Fujimoto 1990).
//
// Events lie in blocks by round and node, unsorted. Those that are many rounds away, which are
// timeouts and not packets, wait in a heap.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/time.h"
#include "sim/calendar.h"

namespace tulle::sim {

class Rounds {
 public:
  static constexpr std::uint32_t no_node = 0xFFFF'FFFF;

  // `length` is at least 1 ps.
  Rounds(Time length, std::uint32_t nodes) : length_(length.ps), words_((nodes + 63) / 64) {
    TULLE_CHECK(length_ > 0);
    for (Round& round : rounds_) {
      round.first.assign(nodes, none);
      round.nodes.assign(words_, 0);
    }
  }

  bool empty() const { return near_ == 0 && far_.empty(); }

  // Not before the present round.
  void add(std::uint32_t node, const CalendarEvent& event) {
    std::int64_t offset = event.at - start_;
    TULLE_CHECK(offset >= 0);
    std::size_t ahead = 0;
    for (; offset >= length_ && ahead < kept; ++ahead) offset -= length_;
    if (ahead == kept) {
      far_.push_back({event, node});
      std::push_heap(far_.begin(), far_.end(), Later());
    } else {
      insert(rounds_[(slot_ + ahead) % kept], node, event);
    }
  }

  // When the earliest event is; never: there is none.
  Time next() const {
    for (std::size_t ahead = 0; near_ > 0; ++ahead) {
      const Round& round = rounds_[(slot_ + ahead) % kept];
      if (round.events > 0) return earliest(round);
    }
    return far_.empty() ? Time::never() : Time{far_.front().event.at};
  }

  // Begins to go through the nodes with events in the earliest round that has any, and not later
  // than `until`; false: there are none.
  bool begin(Time until) {
    if (empty()) return false;
    const std::int64_t skipped = rounds_to_skip();
    const std::int64_t start = start_ + skipped * length_;
    const bool whole = until.ps >= start + length_ - 1;
    if (!whole && next() > until) return false;
    skip(skipped);
    end_ = whole ? start + length_ : until.ps + 1;
    cursor_ = 0;
    return true;
  }
  // All that take() gives is not before this, and before end().
  Time start() const { return Time{start_}; }
  Time end() const { return Time{end_}; }

  // The node whose turn it is next; no_node: all have had theirs.
  std::uint32_t next_node() {
    const std::uint32_t node = node_from(cursor_);
    cursor_ = node == no_node ? 0 : node + 1;
    return node;
  }
  // The node that next_node() will name after the `ahead` following ones.
  std::uint32_t peek_node(std::size_t ahead = 0) const {
    std::uint32_t node = node_from(cursor_);
    for (; ahead > 0 && node != no_node; --ahead) node = node_from(node + 1);
    return node;
  }
  // Fetch a node's events, which are soon to be taken.
  void prefetch(std::uint32_t node) const {
    const std::uint32_t first = rounds_[slot_].first[node];
    if (first == none) return;
    __builtin_prefetch(&blocks_[first]);
    __builtin_prefetch(&blocks_[first].events[4]);
  }
  // Takes a node's events before end(), in no order.
  template <typename Visit>
  void take(std::uint32_t node, Visit visit) {
    Round& round = rounds_[slot_];
    std::uint32_t index = round.first[node];
    round.first[node] = none;
    round.nodes[node / 64] &= ~(1ull << (node % 64));
    while (index != none) {
      const Block block = blocks_[index];
      blocks_[index].next = free_;
      free_ = index;
      round.events -= block.count;
      near_ -= block.count;
      if (block.next != none) __builtin_prefetch(&blocks_[block.next]);
      for (std::uint32_t i = 0; i < block.count; ++i) {
        if (block.events[i].at < end_) {
          visit(block.events[i]);
        } else {
          insert(round, node, block.events[i]);
        }
      }
      index = block.next;
    }
  }

 private:
  static constexpr std::size_t kept = 16;  // rounds whose events lie by node
  static constexpr std::uint32_t none = 0xFFFF'FFFF;

  struct alignas(64) Block {
    std::uint32_t count = 0;
    std::uint32_t next = none;
    std::array<CalendarEvent, 7> events;
  };
  struct Round {
    std::uint64_t events = 0;
    std::vector<std::uint32_t> first;  // block, by node
    std::vector<std::uint64_t> nodes;  // a bit for each that has events
  };
  struct Far {
    CalendarEvent event;
    std::uint32_t node = 0;
  };
  struct Later {
    bool operator()(const Far& a, const Far& b) const { return b.event.before(a.event); }
  };

  void insert(Round& round, std::uint32_t node, const CalendarEvent& event) {
    std::uint32_t& first = round.first[node];
    if (first == none || blocks_[first].count == blocks_[first].events.size()) {
      const std::uint32_t added = take_block();
      blocks_[added].count = 0;
      blocks_[added].next = first;
      first = added;
      round.nodes[node / 64] |= 1ull << (node % 64);
    }
    Block& block = blocks_[first];
    block.events[block.count++] = event;
    ++round.events;
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
    const std::vector<std::uint64_t>& nodes = rounds_[slot_].nodes;
    std::size_t word = from / 64;
    if (word >= words_) return no_node;
    std::uint64_t bits = nodes[word] >> (from % 64) << (from % 64);
    while (bits == 0) {
      if (++word == words_) return no_node;
      bits = nodes[word];
    }
    return static_cast<std::uint32_t>(word * 64) +
           static_cast<std::uint32_t>(std::countr_zero(bits));
  }

  Time earliest(const Round& round) const {
    std::int64_t at = std::numeric_limits<std::int64_t>::max();
    for (std::uint32_t index : round.first) {
      for (; index != none; index = blocks_[index].next) {
        const Block& block = blocks_[index];
        for (std::uint32_t i = 0; i < block.count; ++i) at = std::min(at, block.events[i].at);
      }
    }
    return Time{at};
  }

  // To the earliest round with events. There must be one.
  std::int64_t rounds_to_skip() const {
    if (near_ == 0) return (far_.front().event.at - start_) / length_;
    std::size_t ahead = 0;
    while (rounds_[(slot_ + ahead) % kept].events == 0) ++ahead;
    return static_cast<std::int64_t>(ahead);
  }

  void skip(std::int64_t rounds) {
    if (rounds == 0) return;
    start_ += rounds * length_;
    slot_ = (slot_ + static_cast<std::size_t>(rounds % static_cast<std::int64_t>(kept))) % kept;
    while (!far_.empty() &&
           (far_.front().event.at - start_) / length_ < static_cast<std::int64_t>(kept)) {
      std::pop_heap(far_.begin(), far_.end(), Later());
      const Far next = far_.back();
      far_.pop_back();
      add(next.node, next.event);
    }
  }

  std::int64_t length_;
  std::size_t words_;
  std::int64_t start_ = 0;  // of the present round
  std::size_t slot_ = 0;    // of it in rounds_
  std::int64_t end_ = 0;
  std::uint32_t cursor_ = 0;
  std::uint64_t near_ = 0;  // events in rounds_
  std::array<Round, kept> rounds_;
  std::vector<Block> blocks_;
  std::uint32_t free_ = none;
  std::vector<Far> far_;
};

}  // namespace tulle::sim

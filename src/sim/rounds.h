#pragma once

// The future events of each node, kept in rounds of virtual time.
//
// No action of a node reaches another before the delay of the link between them. In a round no
// longer than the shortest link delay, every node can therefore go through its events alone, one
// node after the other, and finds its data in the cache. Conservative parallel simulation calls
// this delay lookahead (Chandy and Misra 1979, Fujimoto 1990).
//
// Each node has a calendar queue (Brown 1988) whose days are rounds. Events are unsorted in blocks,
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
        span_(length.ps * static_cast<std::int64_t>(kept)),
        words_((nodes + 63) / 64),
        heads_(kept * nodes, none),
        marks_(kept * words_),
        counts_(kept) {
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    TULLE_CHECK(std::has_single_bit(kept) && length_ > 0);
    TULLE_CHECK(length_ <= most / length_ / static_cast<std::int64_t>(kept));
  }

  bool empty() const { return near_ == 0 && far_.empty(); }
  std::uint32_t nodes() const { return nodes_; }

  // Adds an event, which must not be before the present round.
  void add(std::uint32_t node, Event event) {
    const std::int64_t offset = event.at - start_;
    TULLE_CHECK(offset >= 0);
    if (offset >= span_) [[unlikely]]
      return add_far(node, event);
    insert(slot_after(rounds_in(offset)), node, event);
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
  // All events from take() are in [start(), end()).
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
  // The room of a block of events. Events fill it from the first place on.
  static constexpr std::size_t block_events = 8;
  using Events = std::array<Event, block_events>;
  // Takes a node's events before end(), in no particular order. Calls give(Events, number) with up
  // to block_events of them at a time.
  template <typename Give>
  void take(std::uint32_t node, Give give) {
    std::uint32_t& head = heads_[slot_ * nodes_ + node];
    std::uint32_t index = block_of(head);
    std::uint32_t count = count_of(head);
    head = none;
    marks_[slot_ * words_ + node / 64] &= ~(1ull << (node % 64));
    const bool is_whole = end_ - start_ == length_;
    for (; index != no_block; count = block_events) {
      const Events& events = blocks_[index].events;
      counts_[slot_] -= count;
      near_ -= count;
      if (is_whole) [[likely]] {
        give(events, count);
      } else {
        give_until_end(events, count, give);
      }
      const std::uint32_t next = next_[index];
      next_[index] = free_;
      free_ = index;
      index = next;
    }
    if (late_.empty()) return;
    for (const Event& event : late_) insert(slot_, node, event);
    late_.clear();
  }

  static constexpr std::uint32_t none = 0xFFFF'FFFF;
  // A view of a node's events before they are taken, a block at a time, so that the events and the
  // data that they name can be prefetched. The node's events must not change meanwhile.
  struct View {
    std::uint32_t head = none;     // the list of the blocks that are left
    std::uint32_t fetched = none;  // the first block of it that is not prefetched
    bool empty() const { return head == none; }
  };
  View view(std::uint32_t node) const {
    View view;
    view.head = heads_[slot_ * nodes_ + node];
    view.fetched = block_of(view.head);
    for (unsigned i = 0; i < fetched_blocks; ++i) fetch(view);
    return view;
  }
  // Visits the events of the first block. There must be one.
  template <typename Visit>
  void look(View& view, Visit visit) const {
    fetch(view);
    const std::uint32_t block = block_of(view.head), count = count_of(view.head);
    for (std::uint32_t i = 0; i < count; ++i) visit(blocks_[block].events[i]);
    const std::uint32_t next = next_[block];
    view.head = next == no_block ? none : next << count_bits | (block_events - 1);
  }

 private:
  __extension__ using Wide = unsigned __int128;

  // A node's events of a round are a list of blocks. All but the first one are full. The list's
  // head is the first block's index and, in the low bits, the number of its events less one.
  static constexpr unsigned count_bits = 3;
  static constexpr std::uint32_t count_mask = (1u << count_bits) - 1;
  static_assert(block_events - 1 == count_mask);  // so that `none` looks full
  static constexpr std::uint32_t no_block = none >> count_bits;
  static constexpr std::uint32_t block_of(std::uint32_t head) { return head >> count_bits; }
  static constexpr std::uint32_t count_of(std::uint32_t head) { return (head & count_mask) + 1; }
  // Number of blocks ahead of the one that is looked at which are prefetched.
  static constexpr unsigned fetched_blocks = 4;

  struct alignas(64) Block {
    Events events;
  };
  struct Far {
    Event event;
    std::uint32_t node = 0;
  };
  struct Later {
    bool operator()(const Far& a, const Far& b) const { return b.event.before(a.event); }
  };

  void fetch(View& view) const {
    if (view.fetched == no_block) return;
    tulle::prefetch(&blocks_[view.fetched]);
    tulle::prefetch(&blocks_[view.fetched].events[4]);
    view.fetched = next_[view.fetched];
  }

  std::size_t slot_after(std::size_t rounds) const { return (slot_ + rounds) & (kept_ - 1); }
  // Computes offset / length_ by a multiplication. As offset * length_ < 2^63, rounding the inverse
  // up never makes the result too large.
  std::size_t rounds_in(std::int64_t offset) const {
    return static_cast<std::size_t>(static_cast<Wide>(offset) * inverse_ >> 63);
  }

  void insert(std::size_t slot, std::uint32_t node, Event event) {
    std::uint32_t& head = heads_[slot * nodes_ + node];
    if ((++head & count_mask) == 0) {
      const std::uint32_t added = take_block();
      next_[added] = block_of(head - 1);
      head = added << count_bits;
      marks_[slot * words_ + node / 64] |= 1ull << (node % 64);
    }
    blocks_[block_of(head)].events[head & count_mask] = event;
    ++counts_[slot];
    ++near_;
  }

  [[gnu::noinline]] void add_far(std::uint32_t node, Event event) {
    far_.push_back({event, node});
    std::push_heap(far_.begin(), far_.end(), Later());
  }

  // Gives the events before the end of a round that is cut, and keeps the others.
  template <typename Give>
  void give_until_end(const Events& events, std::uint32_t count, Give give) {
    Events before;
    std::uint32_t given = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (events[i].at < end_) {
        before[given++] = events[i];
      } else {
        late_.push_back(events[i]);
      }
    }
    give(before, given);
  }

  std::uint32_t take_block() {
    if (free_ == no_block) [[unlikely]] {
      TULLE_CHECK(blocks_.size() < no_block);
      blocks_.emplace_back();
      next_.push_back(no_block);
      return static_cast<std::uint32_t>(blocks_.size() - 1);
    }
    const std::uint32_t index = free_;
    free_ = next_[index];
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
      const std::uint32_t head = heads_[slot * nodes_ + node];
      std::uint32_t count = count_of(head);
      for (std::uint32_t i = block_of(head); i != no_block; i = next_[i]) {
        for (std::uint32_t e = 0; e < count; ++e) at = std::min(at, blocks_[i].events[e].at);
        count = block_events;
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
    while (!far_.empty() && far_.front().event.at - start_ < span_) {
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
  std::int64_t span_;  // of the kept rounds, in ps
  std::size_t words_;
  std::vector<std::uint32_t> heads_;   // by round and node: the list of its blocks
  std::vector<std::uint64_t> marks_;   // by round: a bit for each node with events
  std::vector<std::uint32_t> counts_;  // by round: number of its events
  std::int64_t start_ = 0;             // start of the present round
  std::size_t slot_ = 0;               // index of the present round
  std::int64_t end_ = 0;
  std::uint32_t cursor_ = no_node;  // node to look at next
  std::uint64_t near_ = 0;          // events in blocks
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> next_;  // by block: the block behind it in its list
  std::uint32_t free_ = no_block;
  std::vector<Event> late_;
  std::vector<Far> far_;
};

}  // namespace tulle::sim

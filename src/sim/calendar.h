#pragma once

// The virtual time of a part, and its future events by the nodes that take turns. In its turn, a
// node goes through its events of a round (sim/rounds.h). What happens in a turn may plan events at
// any node, but for other nodes not before the end of the round.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/time.h"
#include "sim/event.h"
#include "sim/rounds.h"
#include "sim/turn.h"

namespace tulle::sim {

class Calendar {
 public:
  static constexpr std::uint32_t no_turn = Rounds::no_node;

  // --- set-up ---

  // Makes so many nodes take turns in rounds of that length. Most events are planned no further
  // ahead than `delay_max`.
  void take_turns(Time round, std::uint32_t turns, Time delay_max) {
    // Keeps as many rounds as a packet is ever away, if they take no more than some megabytes.
    constexpr std::uint64_t entries_max = 1 << 22, rounds_max = 1 << 18;
    const std::uint64_t most = std::min(std::bit_floor(entries_max / turns | 1), rounds_max);
    const auto wanted = std::bit_ceil(static_cast<std::uint64_t>(delay_max.ps / round.ps) + 4);
    const std::uint64_t kept = std::max<std::uint64_t>(16, std::min(wanted, most));
    rounds_ = std::make_unique<Rounds>(round, turns, kept);
  }
  // Makes all nodes share one turn of that length, with the number 0, so that events happen in the
  // order of time. Events that were planned before are kept.
  void share_turn(Time turn) {
    TULLE_CHECK(!has_begun());
    constexpr std::size_t kept = 1 << 14;
    const auto before = std::exchange(rounds_, std::make_unique<Rounds>(turn, 1, kept));
    if (before == nullptr) return;
    while (before->begin(Time::never())) {
      for (std::uint32_t each; (each = before->next_node()) != Rounds::no_node;) {
        before->take(each, [this](const Rounds::Events& events, std::size_t count) {
          for (std::size_t i = 0; i < count; ++i) rounds_->add(0, events[i]);
        });
      }
    }
  }
  // Returns true if all nodes share one turn.
  bool is_turn_shared() const { return rounds_->nodes() == 1; }

  // --- planning ---

  // Plans an event at the node with that turn.
  [[gnu::always_inline]] void plan(std::uint32_t turn, Event event) {
    if (turn == turn_ && event.at < turn_end_.ps) {
      events_of_turn_.insert(event);
    } else {
      TULLE_CHECK(turn_ == no_turn || turn == turn_ || event.at >= turn_end_.ps);
      rounds_->add(turn, event);
    }
  }
  // Does so between two rounds.
  void add(std::uint32_t turn, Event event) { rounds_->add(turn, event); }

  // --- rounds and turns ---

  Time round_length() const { return rounds_->length(); }
  Time round_end() const { return rounds_->end(); }
  // Begins the earliest round that has events, if it has any until then.
  bool begin_round(Time until) { return rounds_->begin(until); }
  // Begins the round of that start, and goes through its events before `end`.
  void begin_round_at(Time start, Time end) { rounds_->begin_at(start, end); }
  // Begins the turn of the next node that has events in this round. Returns false if all nodes have
  // had their turns. Calls prepare(turn) with the turn after it, if there is one.
  template <typename Prepare>
  bool begin_turn(Prepare prepare) {
    latest_ = std::max(latest_, now_);
    turn_ = rounds_->next_node();
    if (turn_ == no_turn) return false;
    turn_end_ = rounds_->end();
    const std::uint32_t next = rounds_->peek_node();
    next_turn_ = {};
    if (next != no_turn) {
      next_turn_ = rounds_->view(next);
      prepare(next);
    }
    events_of_turn_.begin(rounds_->start(), rounds_->end());
    rounds_->take(turn_, [this](const Rounds::Events& events, std::size_t count) {
      events_of_turn_.give(events, count);
    });
    events_of_turn_.sort();
    return true;
  }
  std::uint32_t turn() const { return turn_; }
  Time turn_end() const { return turn_end_; }
  bool is_turn_over() const { return events_of_turn_.empty(); }
  // Takes the next event of the turn, whose time is now. There must be one.
  Event pop() {
    const Event event = events_of_turn_.pop();
    now_ = Time{event.at};
    ++events_;
    return event;
  }

  // Visits some events of the turn after this one, so that what they name can be prefetched. Each
  // of its events is visited in one of these calls.
  template <typename Visit>
  [[gnu::always_inline]] void look_ahead(Visit visit) {
    if (!next_turn_.empty()) rounds_->look(next_turn_, visit);
  }
  // Returns an event of this turn that is soon to happen (Turn::peek_known()).
  const Event& peek_known() const { return events_of_turn_.peek_known(); }

  // --- what has happened, and will happen ---

  Time now() const { return now_; }
  // Returns the latest time of any event of a turn that is over.
  Time latest() const { return latest_; }
  // Makes the latest time the present one: no turn is left.
  void rest() { now_ = latest_; }
  std::uint64_t events() const { return events_; }
  bool has_begun() const { return turn_ != no_turn || events_ > 0; }
  // Returns the time of the earliest event. Time::never() means that there is none.
  Time next() const {
    const Time planned = rounds_->next();
    return is_turn_over() ? planned : std::min(Time{events_of_turn_.next().at}, planned);
  }
  // Returns when the earliest round with events begins. Time::never() means that there is none.
  Time next_round() const { return rounds_->next_round(); }
  // Returns when the round of a moment begins.
  Time round_of(Time at) const { return rounds_->round_of(at); }

 private:
  std::unique_ptr<Rounds> rounds_;
  Turn events_of_turn_;
  std::uint32_t turn_ = no_turn;  // number of the node whose turn it is
  Time turn_end_;
  Rounds::View next_turn_;  // what is left to look at of the next turn's events
  Time now_;
  Time latest_;
  std::uint64_t events_ = 0;
};

}  // namespace tulle::sim

#pragma once

// The queue pairs of one port that may have something to send, and whose turn it is.
//
// Queue pairs take turns by service level, and within a level in the order in which they had
// something to send. Those that owe an answer come before those that only have requests. Those that
// must notify a sender of congestion come before all others.

#include <array>
#include <bit>
#include <cstdint>

#include "rdma/transport/queue_pair.h"

namespace tulle::device {

// The packets of service level 0 touch only the first cache line.
class alignas(64) SendTurns {
 public:
  // There are 8 turns: service levels n and n + 8 share one.
  static constexpr std::uint32_t levels = 8;
  static constexpr std::uint32_t all_levels = (1u << levels) - 1;

  // True if a queue pair waits, apart from the paused levels (bit n: level n).
  bool has_ready(std::uint32_t held_back_levels) const {
    return (filled_ & ~(held_back_levels | held_back_levels << levels)) != 0 ||
           notifying_.first != nullptr;
  }
  // Returns the levels at which queue pairs wait, apart from notifications.
  std::uint32_t ready_levels() const { return (filled_ | filled_ >> levels) & all_levels; }

  // Puts a queue pair that is not scheduled behind the others of its level and kind.
  void add(transport::QueuePair& qp, bool answers) {
    const std::uint32_t level = qp.attributes().address.service_level % levels;
    const std::uint32_t number = answers ? level : levels + level;
    List& list = lists_[place_of(number)];
    qp.scheduled = true;
    qp.scheduled_list = static_cast<std::uint8_t>(number);
    qp.next_scheduled = nullptr;
    (list.last != nullptr ? list.last->next_scheduled : list.first) = &qp;
    list.last = &qp;
    filled_ |= 1u << number;
  }
  // Takes a queue pair out. Has no effect if it is not scheduled.
  void remove(transport::QueuePair& qp);

  // Returns the queue pair whose turn it is, or null if none waits at a level that is not paused.
  // It keeps its place in the list.
  transport::QueuePair* next(std::uint32_t held_back_levels) const {
    std::uint32_t open = filled_ & ~(held_back_levels | held_back_levels << levels);
    if (open == 0) return nullptr;
    const std::uint32_t first_list = (open & all_levels) != 0 ? 0 : levels;
    open = open >> first_list & all_levels;
    const std::uint32_t from_next = open >> next_level_ << next_level_;
    const auto level =
        static_cast<std::uint32_t>(std::countr_zero(from_next != 0 ? from_next : open));
    return lists_[place_of(first_list + level)].first;
  }
  // The queue pair that next() returned has sent a packet: the next level has its turn. Returns the
  // number of packets that the queue pair has sent since it came to the front.
  std::uint32_t sent(const transport::QueuePair& qp) {
    next_level_ = (qp.scheduled_list + 1) % levels;
    return ++packets_in_turn_;
  }
  // True if the queue pair owes an answer, by what was known when it was added.
  static bool is_among_answers(const transport::QueuePair& qp) {
    return qp.scheduled_list < levels;
  }
  // Takes the queue pair out that waits longest, of any level. Returns null if there is none.
  transport::QueuePair* take();

  // --- notifications ---

  void add_notification(transport::QueuePair& qp);
  // Has no effect if no notification is due.
  void remove_notification(transport::QueuePair& qp);
  transport::QueuePair* first_notification() const { return notifying_.first; }

 private:
  // An intrusive list of queue pairs.
  struct List {
    transport::QueuePair* first = nullptr;
    transport::QueuePair* last = nullptr;
  };

  // Lists are numbered 0 to 7 for the answers of a level, and 8 to 15 for the requests. The two
  // lists of a level are adjacent in memory.
  static std::uint32_t place_of(std::uint32_t number) {
    return 2 * (number % levels) + number / levels;
  }

  std::uint32_t filled_ = 0;            // bit n: list n is not empty
  std::uint32_t next_level_ = 0;        // the level with which to begin
  std::uint32_t packets_in_turn_ = 0;   // packets that the first of a list has sent in its turn
  List notifying_;                      // linked by next_notification
  std::array<List, 2 * levels> lists_;  // linked by next_scheduled
};

}  // namespace tulle::device

#pragma once

// InfiniBand's congestion control at the source of packets (IBTA annex A10, A10.2.2). Each flow has
// an index (CCTI) into a table of delays. A notification raises the index and a timer lowers it.
// The source waits for the delay behind each packet before it sends the next packet of the same
// flow. The delay is a multiple of the time that the packet itself takes on the link. A flow is a
// queue pair, or everything that an adapter sends on one service level (CACongestionSetting's port
// control).
//
// As in DCQCN, timers cause no events: their steps are made up for when the index is needed.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace tulle::transport::congestion {

// An entry of the table, 16 bits in a management datagram (A10.4.3.9): the delay is multiplier /
// 2^shift times the time that the packet takes on the link.
struct TableEntry {
  std::uint8_t shift = 0;        // 2 bits
  std::uint16_t multiplier = 0;  // 14 bits

  static constexpr std::uint8_t shift_max = 3;
  static constexpr std::uint16_t multiplier_max = (1 << 14) - 1;

  bool operator==(const TableEntry&) const = default;
};

// The settings that a congestion control manager writes into an adapter. One set holds for all
// service levels.
struct InfinibandSettings {
  bool enabled = false;
  std::int64_t line_bits_per_second = 100'000'000'000;
  bool by_service_level = false;  // true: a flow is a service level; false: it is a queue pair
  std::uint8_t increase = 1;      // CCTI_Increase: steps up for each notification
  std::uint16_t least = 0;        // CCTI_Min
  Time timer;                     // CCTI_Timer: time for one step down; zero: no steps down
  // The table up to CCTI_Limit. It has at least one entry.
  std::vector<TableEntry> table;

  std::uint16_t limit() const { return static_cast<std::uint16_t>(table.size() - 1); }
};

// The state of one flow.
class Injection {
 public:
  // A notification (BECN) has come.
  void notified(const InfinibandSettings& settings, Time now);
  // Returns the index at this time.
  std::uint16_t index(const InfinibandSettings& settings, Time now);
  // Returns the time that a packet of this length takes on the link, plus the delay behind it.
  Time spacing(const InfinibandSettings& settings, Time now, std::uint32_t bytes);

  // A flow of several queue pairs only: the earliest time that no queue pair has as its turn.
  Time free_at;
  // The spacing of the latest packet. Each turn takes this long, since the length of the packet
  // that will use it is not known yet.
  Time last_spacing;

  void rebase(Time by) { tulle::rebase(by, free_at, next_step_); }

 private:
  void advance(const InfinibandSettings& settings, Time now);

  std::uint16_t above_least_ = 0;  // the index minus CCTI_Min
  Time next_step_ = Time::never();
};

}  // namespace tulle::transport::congestion

#pragma once

// InfiniBand's congestion control at the source of packets (IBTA annex A10, A10.2.2): an index into
// a table of delays (CCTI), which a notification raises and a timer lowers. The delay is what the
// source waits behind a packet before it sends the next of the same flow, in times that the packet
// itself takes on the link. A flow is a queue pair, or all that an adapter sends on a service level
// (CACongestionSetting's port control).
//
// As in DCQCN, timers have no events: they are caught up with when the index is needed.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace tulle::transport::congestion {

// One of the table's, 16 bits in a ManagementDatagram (A10.4.3.9): delay = multiplier / 2^shift
// times the packet's own.
struct TableEntry {
  std::uint8_t shift = 0;        // 2 bits
  std::uint16_t multiplier = 0;  // 14 bits

  static constexpr std::uint8_t shift_max = 3;
  static constexpr std::uint16_t multiplier_max = (1 << 14) - 1;

  bool operator==(const TableEntry&) const = default;
};

// What a congestion control manager writes into an adapter; one for all of its service levels.
struct InfinibandSettings {
  bool enabled = false;
  std::int64_t line_bits_per_second = 100'000'000'000;
  bool by_service_level = false;  // the flow; else the queue pair
  std::uint8_t increase = 1;      // CCTI_Increase: of the index, by one notification
  std::uint16_t least = 0;        // CCTI_Min
  Time timer;                     // CCTI_Timer: of one step down; zero: never
  // The table, as far as CCTI_Limit: at least one entry.
  std::vector<TableEntry> table;

  std::uint16_t limit() const { return static_cast<std::uint16_t>(table.size() - 1); }
};

// One flow.
class Injection {
 public:
  // A notification has come (BECN).
  void notified(const InfinibandSettings& settings, Time now);
  // The index at this time.
  std::uint16_t index(const InfinibandSettings& settings, Time now);
  // How long the link takes for a packet of that length, and the delay behind it.
  Time spacing(const InfinibandSettings& settings, Time now, std::uint32_t bytes);

  // Of a flow of several queue pairs: the next time that none of them has been given yet.
  Time free_at;
  // And what each is given for a packet: as the last took.
  Time last_spacing;

 private:
  void advance(const InfinibandSettings& settings, Time now);

  std::uint16_t above_least_ = 0;  // the index, without CCTI_Min
  Time next_step_ = Time::never();
};

}  // namespace tulle::transport::congestion

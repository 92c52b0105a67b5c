// InfiniBand's congestion control (IBTA annex A10): the values that a congestion control manager
// writes into switches and adapters. Defaults are those of Mellanox OFED's manager, where it has
// one (User Manual, rev. 2.3-1.0.1, 3.2.2.8.1, and 2.1-1.0.6, 8.9.4).

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/split.h"
#include "study/scenario/build.h"
#include "study/workload/csv.h"

namespace tulle::scenario {
namespace {

using port::CongestionSettings;
using transport::congestion::InfinibandSettings;
using transport::congestion::TableEntry;

constexpr std::array<std::string_view, 3> victim_mask_names = {"none", "hosts", "all"};
constexpr std::array<std::string_view, 2> flow_names = {"queue-pair", "service-level"};

// Unit of the timer in CACongestionSetting.
constexpr Time timer_unit = Time::nanoseconds(1'024);
constexpr std::size_t table_entries_max = 1 << 14;

// Returns the table that Lawrence Livermore's scripts for OpenSM (opensm-cc-conf-gen.rb) call the
// Mellanox default: 128 entries of (7 i^2 / 95^2) / 0.218 packet times.
std::vector<TableEntry> usual_table() {
  std::vector<TableEntry> table(128);
  for (std::uint64_t i = 0; i < table.size(); ++i) {
    const std::uint64_t multiplier = 7 * i * i * 1'000 / (std::uint64_t{95 * 95} * 218);
    table[i].multiplier = static_cast<std::uint16_t>(multiplier);
  }
  return table;
}

// Reads a table in the form of OpenSM's option cc_cct: "0:0,0:1,3:5", shifts and multipliers.
std::vector<TableEntry> read_table(TableReader& table) {
  const std::string text = table.text("table", "");
  if (text.empty()) return usual_table();
  std::vector<TableEntry> entries;
  for (const std::string_view entry : split(text, ',')) {
    const std::size_t colon = std::min(entry.find(':'), entry.size());
    const auto shift = workload::parse_number<std::uint8_t>(entry.substr(0, colon));
    const auto multiplier =
        workload::parse_number<std::uint16_t>(entry.substr(std::min(colon + 1, entry.size())));
    const bool in_range = shift && *shift <= TableEntry::shift_max && multiplier &&
                          *multiplier <= TableEntry::multiplier_max;
    if (!in_range || entries.size() == table_entries_max) {
      table.wrong("table", fmt::format("must be up to {} entries SHIFT:MULTIPLIER such as "
                                       "\"0:0,3:1,3:2\", shifts 0 to {} and multipliers 0 to {}",
                                       table_entries_max, TableEntry::shift_max,
                                       TableEntry::multiplier_max));
      return usual_table();
    }
    entries.push_back({*shift, *multiplier});
  }
  return entries;
}

}  // namespace

void read_marking(TableReader table, Setup& setup) {
  CongestionSettings& congestion = setup.network.switches.congestion;
  congestion.enabled = table.is_given();
  if (!congestion.enabled) return;
  congestion.threshold = static_cast<std::uint8_t>(
      table.integer("threshold", congestion.threshold, 0, CongestionSettings::threshold_max));
  congestion.marking_rate =
      static_cast<std::uint16_t>(table.integer("marking_rate", congestion.marking_rate, 0, 0xFFFF));
  constexpr std::uint64_t packet_bytes_max = 0x3FC0;  // 255 credits of 64 bytes
  const std::uint64_t packet_bytes = table.bytes("packet_size", congestion.packet_bytes);
  if (packet_bytes > packet_bytes_max) {
    table.wrong("packet_size", fmt::format("must be at most {} bytes", packet_bytes_max));
  }
  congestion.packet_bytes = static_cast<std::uint32_t>(std::min(packet_bytes, packet_bytes_max));
  congestion.victim_mask = table.choice("victim_mask", victim_mask_names, congestion.victim_mask);
  table.finish();
}

void read_infiniband_control(TableReader& table, Setup& setup) {
  InfinibandSettings& control = setup.network.host.congestion.infiniband;
  control.enabled = true;
  control.by_service_level = table.choice<std::size_t>("flow", flow_names, 0) == 1;
  control.table = read_table(table);
  control.increase = static_cast<std::uint8_t>(table.integer("ccti_increase", 1, 0, 255));
  control.least = static_cast<std::uint16_t>(table.integer("ccti_min", 0, 0, 255));
  const auto units = table.integer("ccti_timer", 150, 0, 0xFFFF);
  control.timer = timer_unit * units;
  if (const std::int64_t limit = table.integer("ccti_limit", control.limit(), 0, 0xFFFF);
      limit <= control.limit()) {
    control.table.resize(static_cast<std::size_t>(limit) + 1);
  } else {
    table.wrong("ccti_limit", fmt::format("is beyond the table's last entry, {}", control.limit()));
  }
  if (control.least > control.limit()) table.wrong("ccti_min", "is beyond the limit");
  if (!setup.network.switches.congestion.enabled) {
    table.wrong("control",
                "infiniband needs switches that mark packets: fabric.kind = \"infiniband\" and a "
                "table [fabric.congestion]");
  }
}

}  // namespace tulle::scenario

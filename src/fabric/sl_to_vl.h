#pragma once

// Which virtual lane a packet of a service level takes (IBTA 7.6.6): a switch looks it up by the
// port that it came in by, the port that it leaves by and its level; a host by the level alone.

#include <array>
#include <cstdint>
#include <vector>

#include "fabric/frame.h"

namespace tulle::fabric {

inline constexpr std::uint32_t service_levels = 16;

// No lane for data: a packet that is mapped to it is dropped (IBTA 7.6.6).
inline constexpr std::uint8_t vl15 = 15;

// The lane, by service level.
using LaneRow = std::array<std::uint8_t, service_levels>;

// Level n on lane n, modulo the lanes that there are: what OpenSM writes into ports of 8 lanes
// (opensm/osm_qos.c, OSM_DEFAULT_QOS_SL2VL).
inline constexpr LaneRow default_lanes = [] {
  LaneRow row{};
  for (std::uint32_t level = 0; level < service_levels; ++level) {
    row[level] = static_cast<std::uint8_t>(level % classes);
  }
  return row;
}();

// A switch's table. Pairs of ports with equal rows share one. IBTA's tables know a packet's level
// and not the lane by which it came; one whose rows are by that lane instead is beyond IBTA, as is
// adaptive routing by paths that are not the shortest.
class SlToVl {
 public:
  SlToVl() = default;  // every pair of ports has the default row
  // Every pair has this row.
  explicit SlToVl(const LaneRow& row) : rows_(1, row) {}
  // So it is at first; set() then changes pairs.
  SlToVl(const LaneRow& row, std::uint16_t ports)
      : rows_(1, row), ports_(ports), row_of_(std::size_t{ports} * ports) {}

  void set(std::uint16_t in_port, std::uint16_t out_port, const LaneRow& row);
  // From now on rows are by the lane by which a packet came, not by its level.
  void take_lanes() { is_by_lane_ = true; }

  // Nothing to look up: lanes stay as hosts with the default row choose them.
  bool is_default() const { return rows_.empty(); }
  // Only where it is not the default.
  std::uint8_t lane(std::uint16_t in_port, std::uint16_t out_port, std::uint8_t level,
                    std::uint8_t in_lane = 0) const {
    const std::size_t row = row_of_.empty() ? 0 : row_of_[std::size_t{in_port} * ports_ + out_port];
    return rows_[row][is_by_lane_ ? in_lane : level];
  }

 private:
  std::vector<LaneRow> rows_;
  std::size_t ports_ = 0;
  bool is_by_lane_ = false;
  std::vector<std::uint8_t> row_of_;  // by (in port, out port); empty: all have the first
};

// The tables of a whole fabric.
struct LanePlan {
  LaneRow hosts = default_lanes;
  std::vector<SlToVl> switches;  // by switch; empty: all have the default
};

}  // namespace tulle::fabric

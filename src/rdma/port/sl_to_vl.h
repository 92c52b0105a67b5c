#pragma once

// Maps a packet's service level to its virtual lane (IBTA 7.6.6). A switch looks the lane up by the
// input port, the output port and the level, a host by the level alone.

#include <array>
#include <cstdint>
#include <vector>

#include "rdma/port/frame.h"

namespace tulle::port {

inline constexpr std::uint32_t service_levels = 16;

// Not a lane for data: a packet that is mapped to it is dropped (IBTA 7.6.6).
inline constexpr std::uint8_t vl15 = 15;

// Lanes by service level.
using LaneRow = std::array<std::uint8_t, service_levels>;

// Maps level n to lane n, modulo the number of lanes, as OpenSM writes it into ports of 8 lanes
// (opensm/osm_qos.c, OSM_DEFAULT_QOS_SL2VL).
inline constexpr LaneRow default_lanes = [] {
  LaneRow row{};
  for (std::uint32_t level = 0; level < service_levels; ++level) {
    row[level] = static_cast<std::uint8_t>(level % classes);
  }
  return row;
}();

// A switch's table. Pairs of ports with equal rows share one row. IBTA's tables know a packet's
// level, but not the lane by which the packet came. A table with rows by that lane is an extension
// of IBTA, as is adaptive routing over paths that are not the shortest.
class SlToVl {
 public:
  SlToVl() = default;  // every pair of ports has the default row
  // Gives every pair of ports this row.
  explicit SlToVl(const LaneRow& row) : rows_(1, row) {}
  // Gives every pair of ports this row at first. set() then changes pairs.
  SlToVl(const LaneRow& row, std::uint16_t ports)
      : rows_(1, row), ports_(ports), row_of_(std::size_t{ports} * ports) {}

  void set(std::uint16_t in_port, std::uint16_t out_port, const LaneRow& row);
  // Selects by the lane by which a packet came, and no longer by its level.
  void take_lanes() { is_by_lane_ = true; }

  // True if there is nothing to look up: packets stay on the lanes that hosts with the default row
  // chose.
  bool is_default() const { return rows_.empty(); }
  // Returns the packet's lane. The table must not be the default.
  std::uint8_t lane(std::uint16_t in_port, std::uint16_t out_port, std::uint8_t level,
                    std::uint8_t in_lane = 0) const {
    const std::size_t row = row_of_.empty() ? 0 : row_of_[std::size_t{in_port} * ports_ + out_port];
    return rows_[row][is_by_lane_ ? in_lane : level];
  }

 private:
  std::vector<LaneRow> rows_;
  std::size_t ports_ = 0;
  bool is_by_lane_ = false;
  // Index in rows_ by (in port, out port). Empty means the first row for all pairs.
  std::vector<std::uint8_t> row_of_;
};

// The levels of each lane of an adapter's port. Packets are scheduled by the level
// modulo 8, so that levels n and n + 8 must have one lane to be told apart by it.
class LevelLanes {
 public:
  static constexpr std::uint32_t scheduled_levels = 8;

  explicit LevelLanes(const LaneRow& row = default_lanes) {
    for (std::uint32_t level = 0; level < scheduled_levels; ++level) {
      std::uint8_t& levels = row[level] == vl15 ? without_lane_ : of_lane_[row[level]];
      levels = static_cast<std::uint8_t>(levels | 1u << level);
    }
  }
  // Return sets of scheduled levels, as bits: those of a lane, and those without one.
  std::uint32_t levels_of(std::uint32_t lane) const { return of_lane_[lane]; }
  std::uint32_t levels_without_lane() const { return without_lane_; }
  // Returns the lanes of these scheduled levels, as bits.
  std::uint32_t lanes_of(std::uint32_t levels) const {
    std::uint32_t lanes = 0;
    for (std::uint32_t lane = 0; lane < classes; ++lane) {
      if ((of_lane_[lane] & levels) != 0) lanes |= 1u << lane;
    }
    return lanes;
  }

 private:
  std::array<std::uint8_t, classes> of_lane_{};
  std::uint8_t without_lane_ = 0;
};

}  // namespace tulle::port

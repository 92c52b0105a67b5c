#include "rdma/port/sl_to_vl.h"

#include <gtest/gtest.h>

namespace tulle::port {
namespace {

LaneRow all_on(std::uint8_t lane) {
  LaneRow row;
  row.fill(lane);
  return row;
}

TEST(SlToVl, DefaultIsTheLevelModuloTheLanes) {
  EXPECT_TRUE(SlToVl().is_default());
  EXPECT_EQ(default_lanes[0], 0);
  EXPECT_EQ(default_lanes[7], 7);
  EXPECT_EQ(default_lanes[8], 0);
  EXPECT_EQ(default_lanes[15], 7);
}

TEST(SlToVl, OneRowForAllPorts) {
  LaneRow row = default_lanes;
  row[3] = vl15;
  const SlToVl table(row);
  EXPECT_FALSE(table.is_default());
  EXPECT_EQ(table.lane(0, 5, 2), 2);
  EXPECT_EQ(table.lane(40, 1, 3), vl15);
}

TEST(SlToVl, EachPairOfPortsHasItsOwn) {
  SlToVl table(default_lanes, 4);
  for (std::uint16_t in = 0; in < 4; ++in) {
    for (std::uint16_t out = 0; out < 4; ++out) {
      if (in != out) table.set(in, out, all_on(static_cast<std::uint8_t>((in * 4 + out) % 8)));
    }
  }
  for (std::uint16_t in = 0; in < 4; ++in) {
    for (std::uint16_t out = 0; out < 4; ++out) {
      for (std::uint8_t level = 0; level < service_levels; ++level) {
        EXPECT_EQ(table.lane(in, out, level), in == out ? level % 8 : (in * 4 + out) % 8);
      }
    }
  }
  table.set(1, 2, default_lanes);
  EXPECT_EQ(table.lane(1, 2, 5), 5);
}

}  // namespace
}  // namespace tulle::port

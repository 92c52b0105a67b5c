#include "management/subnet/forwarding_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace tulle::management::subnet {
namespace {

constexpr std::uint8_t no_port = ForwardingTables::no_port;

wire::SwitchInfo with_top(std::uint16_t top) {
  wire::SwitchInfo info;
  info.linear_top = top;
  return info;
}

TEST(ForwardingTablesTest, ALidLeadsToAPortThatThereIs) {
  ForwardingTables tables(4, 128, 32);
  EXPECT_EQ(tables.output_port(Lid(70)), no_port);
  const auto block = tables.linear_block(1);  // LIDs 64 to 127
  ASSERT_EQ(block.size(), 64u);
  block[6] = std::byte{3};
  block[7] = std::byte{5};
  EXPECT_EQ(tables.output_port(Lid(70)), no_port) << "it is above the top";
  EXPECT_EQ(tables.set_info(with_top(127)), Status::ok);
  EXPECT_EQ(tables.output_port(Lid(70)), 3);
  EXPECT_EQ(tables.output_port(Lid(71)), no_port) << "there is no port 5";
  EXPECT_EQ(tables.output_port(Lid(1'000)), no_port);
  EXPECT_EQ(tables.set_info(with_top(128)), Status::invalid_value);
  EXPECT_TRUE(tables.linear_block(2).empty());
}

TEST(ForwardingTablesTest, AMulticastLidLeadsToMarkedPorts) {
  ForwardingTables tables(20, 128, 40);
  const auto block = tables.multicast_block(1u << 28 | 1);  // ports 16 to 31, entries 32 to 39
  ASSERT_EQ(block.size(), 16u);
  const be16 mask = 1u << 2;
  std::memcpy(block.data() + 2, &mask, sizeof mask);
  const Lid lid(wire::unicast_lid_max + 1 + 33);
  EXPECT_TRUE(tables.forwards_multicast(lid, 18));
  EXPECT_FALSE(tables.forwards_multicast(lid, 2));
  EXPECT_FALSE(tables.forwards_multicast(Lid(lid.value + 1), 18));
  EXPECT_FALSE(tables.forwards_multicast(Lid(33), 18));
  EXPECT_FALSE(tables.forwards_multicast(Lid(wire::permissive_lid), 18));
  EXPECT_TRUE(tables.multicast_block(2).empty());
}

TEST(ForwardingTablesTest, AManagerTakesThePortChangeBack) {
  ForwardingTables tables(4, 128, 32);
  tables.note_port_change();
  EXPECT_EQ(tables.set_info(with_top(0)), Status::ok);
  EXPECT_NE(tables.info().life_and_change & wire::SwitchInfo::port_state_change, 0);
  wire::SwitchInfo wanted = with_top(0);
  wanted.life_and_change = wire::SwitchInfo::port_state_change;
  EXPECT_EQ(tables.set_info(wanted), Status::ok);
  EXPECT_EQ(tables.info().life_and_change & wire::SwitchInfo::port_state_change, 0);
}

TEST(ForwardingTablesTest, AnAdapterHasNone) {
  ForwardingTables tables;
  EXPECT_EQ(tables.output_port(Lid(0)), no_port);
  EXPECT_FALSE(tables.forwards_multicast(Lid(wire::unicast_lid_max + 1), 1));
  EXPECT_TRUE(tables.linear_block(0).empty());
}

}  // namespace
}  // namespace tulle::management::subnet

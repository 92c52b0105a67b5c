#include "management/port_agents.h"

#include <gtest/gtest.h>

#include "management/mad_test.h"
#include "rdma/wire/pma.h"
#include "rdma/wire/smp.h"

namespace tulle::management {
namespace {

constexpr std::uint8_t subnet_administration_class = 0x03;  // IBTA 13.4.4, table 104
constexpr std::uint8_t method_get_table = 0x12;             // IBTA 15.2.4

TEST(PortAgents, each_class_has_its_agent) {
  subnet::Identity identity;
  identity.node_guid = 0x1234;
  performance::Counters counters;
  counters.packets_sent = 77;
  Mad out{};
  Mad request = request_of(wire::performance_class, method_get, wire::attribute_port_counters);
  request[wire::performance_data_offset + 1] = std::byte{1};
  EXPECT_TRUE(needs_counters(request));
  ASSERT_TRUE(answer(request, identity, counters, out));
  EXPECT_EQ(number_at(out, wire::performance_data_offset + 32, 4), 77u);

  for (const std::uint8_t each : {wire::subnet_class, wire::subnet_directed_class}) {
    request = request_of(each, method_get, wire::attribute_node_info);
    EXPECT_FALSE(needs_counters(request));
    ASSERT_TRUE(answer(request, identity, counters, out));
    EXPECT_EQ(number_at(out, wire::subnet_data_offset + 12, 8), 0x1234u);
  }
}

TEST(PortAgents, a_class_that_nobody_serves) {
  Mad out{};
  const Mad request = request_of(subnet_administration_class, method_get, 0x35);
  EXPECT_FALSE(needs_counters(request));
  ASSERT_TRUE(answer(request, {}, {}, out));
  EXPECT_EQ(header_of(out).status, 3 << 2);
  EXPECT_EQ(header_of(out).method, method_get_response);
  out = {};
  EXPECT_FALSE(
      answer(request_of(subnet_administration_class, method_get_table, 0x35), {}, {}, out));
  EXPECT_EQ(out, Mad{});
}

TEST(PortAgents, ways) {
  EXPECT_EQ(way_of(request_of(wire::performance_class, method_get, 1)), Way::addressed);
  EXPECT_EQ(way_of(request_of(wire::subnet_class, method_get, 1)), Way::addressed);
  Mad request = request_of(wire::subnet_directed_class, method_get, 1);
  EXPECT_EQ(way_of(request), Way::directed_here);
  wire::MadHeader header = header_of(request);
  header.class_specific = 1;
  set_header(request, header);
  EXPECT_EQ(way_of(request), Way::directed_on);
}

}  // namespace
}  // namespace tulle::management

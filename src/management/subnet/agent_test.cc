#include "management/subnet/agent.h"

#include <gtest/gtest.h>

#include "management/mad_test.h"
#include "rdma/wire/smp.h"

namespace tulle::management::subnet {
namespace {

constexpr std::size_t data = wire::subnet_data_offset;

const Identity identity{.node_guid = 0xA1A2'A3A4'A5A6'A7A8,
                        .port_guid = 0xB1B2'B3B4'B5B6'B7B8,
                        .gid_prefix = 0xFE80'0000'0000'0000,
                        .vendor_id = 0xC1'C2C3,
                        .device_id = 0xD1D2,
                        .revision = 0xE1E2'E3E4,
                        .state = 4,
                        .physical_state = 5,
                        .mtu_code = 3,
                        .description = "tulle0"};

Mad ask(std::uint16_t attribute, std::uint32_t modifier = 0,
        std::uint8_t management_class = wire::subnet_directed_class) {
  return request_of(management_class, method_get, attribute, modifier);
}

Mad answer_to(const Mad& request) {
  Mad out{};
  EXPECT_TRUE(answer(request, identity, out));
  EXPECT_EQ(header_of(out).method, method_get_response);
  EXPECT_EQ(header_of(out).transaction_id, header_of(request).transaction_id);
  return out;
}

// IBTA 14.2.5.3, table 116.
TEST(SubnetAgent, node_info) {
  const Mad out = answer_to(ask(wire::attribute_node_info));
  EXPECT_EQ(header_of(out).status, wire::directed_route_returns);
  EXPECT_EQ(number_at(out, data, 4), 0x0101'0101u);  // versions, a channel adapter, one port
  EXPECT_EQ(number_at(out, data + 4, 8), identity.node_guid);
  EXPECT_EQ(number_at(out, data + 12, 8), identity.node_guid);
  EXPECT_EQ(number_at(out, data + 20, 8), identity.port_guid);
  EXPECT_EQ(number_at(out, data + 28, 2), 1u);
  EXPECT_EQ(number_at(out, data + 30, 2), identity.device_id);
  EXPECT_EQ(number_at(out, data + 32, 4), identity.revision);
  EXPECT_EQ(number_at(out, data + 36, 1), 1u);
  EXPECT_EQ(number_at(out, data + 37, 3), identity.vendor_id);
}

// IBTA 14.2.5.6, table 119.
TEST(SubnetAgent, port_info) {
  for (const std::uint32_t port : {0, 1}) {
    const Mad out = answer_to(ask(wire::attribute_port_info, port));
    EXPECT_EQ(number_at(out, data + 8, 8), identity.gid_prefix);
    EXPECT_EQ(number_at(out, data + 16, 4), 0u);  // no LID of the port or of a subnet manager
    EXPECT_EQ(number_at(out, data + 28, 4), 0x0102'0202u);  // port, widths
    EXPECT_EQ(number_at(out, data + 32, 1), 0x14u);         // speed, state
    EXPECT_EQ(number_at(out, data + 33, 1), 0x50u);
    EXPECT_EQ(number_at(out, data + 36, 1), 0x30u);  // MTU
    EXPECT_EQ(number_at(out, data + 37, 1), 0x10u);  // one virtual lane
    EXPECT_EQ(number_at(out, data + 41, 1), 0x03u);
    EXPECT_EQ(number_at(out, data + 43, 1), 0x10u);    // which is in use
    EXPECT_EQ(number_at(out, data + 50, 1), 1u);       // one GUID
    EXPECT_EQ(number_at(out, data + 62, 2), 0x2202u);  // EDR
  }
}

TEST(SubnetAgent, node_description_fits) {
  Mad out = answer_to(ask(wire::attribute_node_description));
  EXPECT_STREQ(reinterpret_cast<const char*>(out.data() + data), "tulle0");
  for (std::size_t i = 6; i < 64; ++i) EXPECT_EQ(out[data + i], std::byte{0});
  Identity talkative = identity;
  talkative.description = "0123456789012345678901234567890123456789012345678901234567890123456789";
  EXPECT_TRUE(answer(ask(wire::attribute_node_description), talkative, out));
  EXPECT_EQ(number_at(out, data + 60, 4), 0x3031'3233u);
  EXPECT_EQ(number_at(out, data + 64, 4), 0u);
}

TEST(SubnetAgent, a_route_by_lid_has_no_direction) {
  const Mad out = answer_to(ask(wire::attribute_node_info, 0, wire::subnet_class));
  EXPECT_EQ(header_of(out).status, 0);
}

TEST(SubnetAgent, refuses_what_it_has_not) {
  const auto status = [](const Mad& request) {
    return header_of(answer_to(request)).status & ~wire::directed_route_returns;
  };
  EXPECT_EQ(status(ask(0x0016)), 3 << 2);  // P_KeyTable
  EXPECT_EQ(status(ask(wire::attribute_port_info, 2)), 7 << 2);
  Mad request = ask(wire::attribute_port_info);
  wire::MadHeader header = header_of(request);
  header.method = method_set;
  set_header(request, header);
  EXPECT_EQ(status(request), 3 << 2);
  header.method = method_get;
  header.class_version = 2;
  set_header(request, header);
  EXPECT_EQ(status(request), 1 << 2);
}

TEST(SubnetAgent, answers_nothing_that_leads_on_and_no_answer) {
  Mad request = ask(wire::attribute_node_info), out{};
  wire::MadHeader header = header_of(request);
  header.class_specific = 0x0001;  // one hop
  set_header(request, header);
  EXPECT_FALSE(stays_here(request));
  EXPECT_FALSE(answer(request, identity, out));
  header.class_specific = 0;
  header.method = method_get_response;
  set_header(request, header);
  EXPECT_TRUE(stays_here(request));
  EXPECT_FALSE(answer(request, identity, out));
  EXPECT_EQ(out, Mad{});
}

}  // namespace
}  // namespace tulle::management::subnet

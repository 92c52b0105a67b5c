#include "fabric/subnet.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "management/mad_test.h"
#include "rdma/wire/pma.h"

namespace tulle::fabric {
namespace {

using management::Mad;
using management::Packet;
using management::request_of;

constexpr Time now = Time::seconds(1);
constexpr std::size_t data = wire::subnet_data_offset;

// Hosts 0 and 1 at switch 4, hosts 2 and 3 at switch 5; ports 3 of the switches are joined.
Topology topology() {
  auto read = from_csv("a,b,gbps,delay_ns\n0,4,100,1\n1,4,100,1\n2,5,200,1\n3,5,400,1\n4,5,100,1\n",
                       "test");
  return std::move(*read);
}

Packet directed(const std::vector<std::uint8_t>& route, const Mad& request) {
  Packet packet;
  packet.source = packet.destination = Lid(wire::permissive_lid);
  packet.mad = request;
  wire::MadHeader header = management::header_of(packet.mad);
  header.class_specific = static_cast<std::uint16_t>(route.size());
  management::set_header(packet.mad, header);
  wire::SubnetHeader subnet;
  subnet.directed_source = subnet.directed_destination = wire::permissive_lid;
  management::put_attribute(subnet, wire::subnet_header_offset, packet.mad);
  for (std::size_t i = 0; i < route.size(); ++i) {
    packet.mad[wire::initial_path_offset + 1 + i] = std::byte{route[i]};
  }
  return packet;
}

Mad get(std::uint16_t attribute, std::uint32_t modifier = 0) {
  return request_of(wire::subnet_directed_class, management::method_get, attribute, modifier);
}

class SubnetTest : public testing::Test {
 protected:
  // Asks from a host, and returns the answer.
  std::optional<Packet> ask(std::uint32_t host, const Packet& packet) {
    subnet.send(now, host, 1, packet);
    subnet.run(now);
    const auto arrival = subnet.take_arrival();
    if (!arrival) return std::nullopt;
    EXPECT_EQ(arrival->host, host);
    return arrival->packet;
  }
  void set_port(const std::vector<std::uint8_t>& route, std::uint8_t port, std::uint16_t lid,
                wire::PortState state, wire::PhysicalState physical = wire::PhysicalState::none) {
    Mad mad = request_of(wire::subnet_directed_class, management::method_set,
                         wire::attribute_port_info, port);
    wire::PortInfo info;
    info.gid_prefix = 0xFE80'0000'0000'0000;
    info.lid = lid;
    info.master_sm_lid = 1;
    info.speed_supported_and_state = static_cast<std::uint8_t>(state);
    info.physical_state_and_down_default =
        static_cast<std::uint8_t>(static_cast<unsigned>(physical) << 4);
    management::put_attribute(info, data, mad);
    const auto answer = ask(0, directed(route, mad));
    ASSERT_TRUE(answer);
    EXPECT_EQ(management::header_of(answer->mad).status & 0x7FFF, 0);
  }
  void activate(const std::vector<std::uint8_t>& route, std::uint8_t port, std::uint16_t lid = 0) {
    set_port(route, port, lid, wire::PortState::armed);
    set_port(route, port, lid, wire::PortState::active);
  }
  void set_table(const std::vector<std::uint8_t>& route, const std::vector<std::uint8_t>& ports) {
    Mad mad = request_of(wire::subnet_directed_class, management::method_set,
                         wire::attribute_linear_forwarding);
    std::fill(mad.begin() + data, mad.begin() + data + 64, std::byte{0xFF});
    for (std::size_t i = 0; i < ports.size(); ++i) mad[data + i] = std::byte{ports[i]};
    ASSERT_TRUE(ask(0, directed(route, mad)));
    mad = request_of(wire::subnet_directed_class, management::method_set,
                     wire::attribute_switch_info);
    wire::SwitchInfo info;
    info.linear_top = static_cast<std::uint16_t>(ports.size() - 1);
    management::put_attribute(info, data, mad);
    ASSERT_TRUE(ask(0, directed(route, mad)));
  }
  // Host h has the LID h + 1, and the switches have 5 and 6.
  void bring_up() {
    activate({}, 1, 1);
    activate({1, 2}, 1, 2);
    activate({1, 3, 1}, 1, 3);
    activate({1, 3, 2}, 1, 4);
    set_port({1}, 0, 5, wire::PortState::none);
    set_port({1, 3}, 0, 6, wire::PortState::none);
    for (std::uint8_t port = 1; port <= 3; ++port) {
      activate({1}, port);
      activate({1, 3}, port);
    }
    set_table({1}, {255, 1, 2, 3, 3, 0, 3});
    set_table({1, 3}, {255, 3, 3, 1, 2, 3, 0});
    subnet.run(now);
    while (subnet.take_arrival()) {
    }
  }
  Packet to_lid(std::uint16_t lid, const Mad& mad, std::uint16_t source) {
    Packet packet;
    packet.source = Lid(source);
    packet.destination = Lid(lid);
    packet.mad = mad;
    return packet;
  }

  Subnet subnet{now, topology()};
};

TEST_F(SubnetTest, DirectedRoutesReachAllNodes) {
  for (const auto& [route, guid] : std::vector<std::pair<std::vector<std::uint8_t>, std::uint32_t>>{
           {{}, 0}, {{1}, 4}, {{1, 2}, 1}, {{1, 3}, 5}, {{1, 3, 1}, 2}, {{1, 3, 2}, 3}}) {
    const auto answer = ask(0, directed(route, get(wire::attribute_node_info)));
    ASSERT_TRUE(answer);
    EXPECT_EQ(management::number_at(answer->mad, data + 12, 8), subnet.node(guid).settings().guid);
  }
  EXPECT_FALSE(ask(0, directed({1, 3, 2, 1}, get(wire::attribute_node_info))));  // an adapter
  EXPECT_FALSE(ask(0, directed({1, 9}, get(wire::attribute_node_info))));
  EXPECT_EQ(subnet.discarded(), 2u);
}

TEST_F(SubnetTest, LinksHaveTheRatesOfTheTopology) {
  const auto extended = [&](std::uint32_t host) {
    return subnet.node(host).port_info(1).extended_speed_active_and_supported >> 4;
  };
  EXPECT_EQ(extended(0), 2);  // four lanes of EDR
  EXPECT_EQ(extended(2), 4);  // HDR
  EXPECT_EQ(extended(3), 8);  // NDR
  for (std::uint32_t host = 0; host < 4; ++host) {
    EXPECT_EQ(subnet.node(host).port_info(1).link_width_active, 2);
  }
}

TEST_F(SubnetTest, ForwardsByTheTablesThatWereSet) {
  bring_up();
  const Mad request =
      request_of(wire::subnet_class, management::method_get, wire::attribute_node_info);
  for (std::uint16_t lid = 1; lid <= 6; ++lid) {
    const auto answer = ask(0, to_lid(lid, request, 1));
    ASSERT_TRUE(answer) << lid;
    EXPECT_EQ(answer->source, Lid(lid));
    EXPECT_EQ(answer->destination, Lid(1));
  }
  EXPECT_FALSE(ask(0, to_lid(7, request, 1)));
}

TEST_F(SubnetTest, CountersCountAndAreTakenBack) {
  bring_up();
  Mad request =
      request_of(wire::performance_class, management::method_get, wire::attribute_port_counters);
  request[data + 1] = std::byte{3};
  Packet packet = to_lid(5, request, 1);
  packet.source_qp = packet.destination_qp = wire::general_services_qp;
  auto answer = ask(0, packet);
  ASSERT_TRUE(answer);
  EXPECT_GT(management::number_at(answer->mad, data + 32, 4), 5u);  // packets sent by port 3
  wire::MadHeader header = management::header_of(packet.mad);
  header.method = management::method_set;
  management::set_header(packet.mad, header);
  ASSERT_TRUE(ask(0, packet));
  header.method = management::method_get;
  management::set_header(packet.mad, header);
  answer = ask(0, packet);
  ASSERT_TRUE(answer);
  EXPECT_EQ(management::number_at(answer->mad, data + 32, 4), 0u);
}

// The lanes of data wait until the manager has made the ports active; lane 15 does not.
TEST_F(SubnetTest, OnlyActivePortsCarryGeneralServices) {
  bring_up();
  Packet packet = to_lid(4, request_of(0x32, 1, 0), 1);
  packet.source_qp = packet.destination_qp = wire::general_services_qp;
  subnet.send(now, 0, 1, packet);
  subnet.run(now);
  ASSERT_TRUE(subnet.take_arrival());
  set_port({1}, 3, 0, wire::PortState::down);
  subnet.send(now, 0, 1, packet);
  subnet.run(now);
  EXPECT_FALSE(subnet.take_arrival());
  EXPECT_TRUE(ask(0, directed({1, 3}, get(wire::attribute_node_info))));
}

// The answer to the request that disables a link on the way still comes.
TEST_F(SubnetTest, AnAnswerLeavesBeforeItsLinkGoes) {
  set_port({1, 3}, 3, 0, wire::PortState::none, wire::PhysicalState::disabled);
  EXPECT_FALSE(ask(0, directed({1, 3}, get(wire::attribute_node_info))));
  EXPECT_EQ(subnet.node(4).state(3), wire::PortState::down);
}

TEST_F(SubnetTest, TablesInACircleEnd) {
  bring_up();
  set_table({1}, {255, 1, 2, 3, 3, 0, 3, 3});
  set_table({1, 3}, {255, 3, 3, 1, 2, 3, 0, 3});
  const auto before = subnet.discarded();
  const Mad request =
      request_of(wire::subnet_class, management::method_get, wire::attribute_node_info);
  EXPECT_FALSE(ask(0, to_lid(7, request, 1)));
  EXPECT_EQ(subnet.discarded(), before + 1);
}

TEST_F(SubnetTest, ACutIsReportedToTheManager) {
  bring_up();
  subnet.set_cut(now + Time::seconds(2), 3, true);
  EXPECT_EQ(subnet.node(3).state(1), wire::PortState::down);
  subnet.run(now + Time::seconds(2));
  // The other switch still tells of the links that came up, since nobody has repressed its trap.
  auto trap = subnet.take_arrival();
  if (trap && trap->packet.source == Lid(5)) trap = subnet.take_arrival();
  ASSERT_TRUE(trap);
  EXPECT_EQ(trap->host, 0u);
  EXPECT_EQ(management::header_of(trap->packet.mad).method, management::method_trap);
  EXPECT_EQ(management::number_at(trap->packet.mad, data + 4, 2), wire::trap_link_state);
  EXPECT_EQ(trap->packet.source, Lid(6));
  subnet.set_cut(now + Time::seconds(3), 3, false);
  EXPECT_EQ(subnet.node(3).state(1), wire::PortState::initialise);
}

// IBTA 16.1.3.5: LinkDownedCounter.
TEST_F(SubnetTest, ACutIsCountedAtBothEnds) {
  bring_up();
  const auto downed = [this](std::uint32_t node, std::uint8_t port) {
    return subnet.counters(node, port).link_downed;
  };
  const Wiring::Peer peer = subnet.wiring().peer(3, 0);
  const auto far_port = static_cast<std::uint8_t>(peer.port + 1);
  EXPECT_EQ(downed(3, 1), 0u) << "a link that comes up has not been lost";
  for (std::uint64_t cuts = 1; cuts <= 2; ++cuts) {
    subnet.set_cut(now + Time::seconds(2), 3, true);
    subnet.set_cut(now + Time::seconds(3), 3, false);
    EXPECT_EQ(downed(3, 1), cuts);
    EXPECT_EQ(downed(peer.node, far_port), cuts);
  }
  EXPECT_EQ(downed(0, 1), 0u) << "another link";
}

TEST_F(SubnetTest, NodesHaveNames) {
  EXPECT_EQ(subnet.name(0), "h0");
  EXPECT_EQ(subnet.name(4), "switch4");
  EXPECT_EQ(subnet.find("h3"), 3u);
  EXPECT_EQ(subnet.find("switch5"), 5u);
  EXPECT_FALSE(subnet.find("h4"));
}

}  // namespace
}  // namespace tulle::fabric

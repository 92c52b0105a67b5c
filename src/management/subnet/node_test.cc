#include "management/subnet/node.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "management/mad_test.h"
#include "management/subnet/header.h"
#include "rdma/wire/smp.h"

namespace tulle::management::subnet {
namespace {

using Outcome = Node::Outcome;
using wire::PhysicalState;
using wire::PortState;

constexpr std::size_t data = wire::subnet_data_offset;
constexpr Time now = Time::seconds(10);

NodeSettings switch_settings() {
  NodeSettings settings;
  settings.is_switch = true;
  settings.ports = 3;
  settings.guid = 0xA1A2'A3A4'A5A6'A7A8;
  settings.description = "leaf 1";
  settings.rates.assign(3, {3, 7, 3});  // 1x and 4x, up to EDR
  return settings;
}

NodeSettings adapter_settings() {
  NodeSettings settings;
  settings.guid = 0xB1B2'B3B4'B5B6'B7B8;
  settings.description = "h0 tulle0";
  settings.rates.assign(1, {3, 7, 1});  // 4x FDR
  return settings;
}

template <typename Attribute>
Attribute read(const Mad& mad) {
  Attribute out;
  std::memcpy(&out, mad.data() + data, sizeof out);
  return out;
}

template <typename Attribute>
void write(const Attribute& attribute, Mad& mad) {
  put_attribute(attribute, data, mad);
}

void set_key(std::uint64_t key, Mad& mad) {
  wire::SubnetHeader subnet = subnet_header_of(mad);
  subnet.management_key = key;
  put_attribute(subnet, wire::subnet_header_offset, mad);
}

Mad ask(std::uint8_t method, std::uint16_t attribute, std::uint32_t modifier = 0) {
  return request_of(wire::subnet_class, method, attribute, modifier);
}

unsigned status_of(const Mad& mad) { return header_of(mad).status; }

class NodeTest : public testing::Test {
 protected:
  wire::PortInfo port_info(Node& node, std::uint32_t port, std::uint8_t in_port = 1) {
    Mad mad = ask(method_get, wire::attribute_port_info, port);
    EXPECT_EQ(node.handle(now, mad, in_port), Outcome::answered);
    EXPECT_EQ(status_of(mad), 0u);
    return read<wire::PortInfo>(mad);
  }
  // Returns the status of the answer.
  unsigned set_port_info(Node& node, const wire::PortInfo& info, std::uint32_t port,
                         std::uint64_t key = 0) {
    Mad mad = ask(method_set, wire::attribute_port_info, port);
    set_key(key, mad);
    write(info, mad);
    if (node.handle(now, mad, 1) != Outcome::answered) return 0xFFFF;
    return status_of(mad);
  }
  // Returns a PortInfo that changes nothing but the state.
  wire::PortInfo with_state(Node& node, std::uint32_t port, PortState state,
                            PhysicalState physical = PhysicalState::none) {
    wire::PortInfo info = port_info(node, port);
    info.speed_supported_and_state = static_cast<std::uint8_t>(state);
    info.physical_state_and_down_default =
        static_cast<std::uint8_t>(static_cast<unsigned>(physical) << 4);
    info.link_width_enabled = 0;
    info.speed_active_and_enabled = 0;
    info.extended_speed_enabled = 0;
    return info;
  }
  void join() {
    const wire::PortInfo info = leaf.port_info(2);
    leaf.link_up(now, 2, host.port_info(1));
    host.link_up(now, 1, info);
  }

  Node leaf{switch_settings()};
  Node host{adapter_settings()};
};

TEST_F(NodeTest, TellsWhatItIs) {
  Mad mad = ask(method_get, wire::attribute_node_info);
  EXPECT_EQ(leaf.handle(now, mad, 2), Outcome::answered);
  EXPECT_EQ(header_of(mad).method, method_get_response);
  const auto info = read<wire::NodeInfo>(mad);
  EXPECT_EQ(info.node_type, wire::NodeInfo::switch_node);
  EXPECT_EQ(info.ports, 3);
  EXPECT_EQ(info.node_guid, leaf.settings().guid);
  EXPECT_EQ(info.local_port, 2);
  mad = ask(method_get, wire::attribute_node_description);
  EXPECT_EQ(host.handle(now, mad, 1), Outcome::answered);
  EXPECT_STREQ(reinterpret_cast<const char*>(mad.data() + data), "h0 tulle0");
}

// A link takes the best width and speed that both ends have, and waits for the manager.
TEST_F(NodeTest, LinkComesUpAtTheCommonRate) {
  EXPECT_EQ(leaf.state(2), PortState::down);
  EXPECT_EQ(leaf.physical_state(2), PhysicalState::polling);
  join();
  for (const Node* node : {&leaf, &host}) {
    const wire::PortInfo& info = node->port_info(node->is_switch() ? 2 : 1);
    EXPECT_EQ(info.link_width_active, 2);
    EXPECT_EQ(info.speed_active_and_enabled >> 4, 4);
    EXPECT_EQ(info.extended_speed_active_and_supported >> 4, 1);
  }
  EXPECT_EQ(leaf.state(2), PortState::initialise);
  EXPECT_EQ(host.physical_state(1), PhysicalState::link_up);
  leaf.link_down(now, 2);
  EXPECT_EQ(leaf.state(2), PortState::down);
}

// IBTA 7.2.7: the manager takes a port from INIT by ARMED to ACTIVE, and leaves no step out.
TEST_F(NodeTest, PortsBecomeActiveInSteps) {
  constexpr unsigned invalid = 7 << 2;
  EXPECT_EQ(set_port_info(leaf, with_state(leaf, 2, PortState::armed), 2), invalid);
  join();
  EXPECT_EQ(set_port_info(leaf, with_state(leaf, 2, PortState::active), 2), invalid);
  EXPECT_EQ(set_port_info(leaf, with_state(leaf, 2, PortState::armed), 2), 0u);
  EXPECT_EQ(leaf.state(2), PortState::armed);
  EXPECT_EQ(set_port_info(leaf, with_state(leaf, 2, PortState::active), 2), 0u);
  EXPECT_EQ(leaf.state(2), PortState::active);
  EXPECT_EQ(set_port_info(leaf, with_state(leaf, 2, PortState::none), 2), 0u);
  EXPECT_EQ(leaf.state(2), PortState::active);
  EXPECT_EQ(set_port_info(leaf, with_state(leaf, 2, PortState::initialise), 2), invalid);
}

TEST_F(NodeTest, ManagerDisablesAndEnablesALink) {
  join();
  EXPECT_FALSE(leaf.has_restarted_link());
  EXPECT_EQ(set_port_info(leaf, with_state(leaf, 2, PortState::none, PhysicalState::disabled), 2),
            0u);
  EXPECT_FALSE(leaf.is_enabled(2));
  EXPECT_EQ(leaf.take_restarted_link(), 2);
  EXPECT_EQ(leaf.take_restarted_link(), Node::no_port);
  leaf.link_down(now, 2);
  EXPECT_EQ(leaf.physical_state(2), PhysicalState::disabled);
  EXPECT_EQ(set_port_info(leaf, with_state(leaf, 2, PortState::none, PhysicalState::polling), 2),
            0u);
  EXPECT_TRUE(leaf.is_enabled(2));
  EXPECT_EQ(leaf.take_restarted_link(), 2);
}

TEST_F(NodeTest, SpeedsAreEnabledWithinTheSupportedOnes) {
  wire::PortInfo info = with_state(leaf, 2, PortState::none);
  info.link_width_enabled = 1;
  info.extended_speed_enabled = 30;  // none
  EXPECT_EQ(set_port_info(leaf, info, 2), 0u);
  join();
  EXPECT_EQ(leaf.port_info(2).link_width_active, 1);
  EXPECT_EQ(leaf.port_info(2).extended_speed_active_and_supported >> 4, 0);
  info.link_width_enabled = 0xFF;  // all
  info.extended_speed_enabled = 31;
  EXPECT_EQ(set_port_info(leaf, info, 2), 0u);
  EXPECT_EQ(leaf.port_info(2).link_width_enabled, 3);
  EXPECT_EQ(leaf.port_info(2).extended_speed_enabled, 3);
}

TEST_F(NodeTest, HasTheLidsThatItWasGiven) {
  wire::PortInfo info = port_info(host, 1);
  info.lid = 8;
  info.key_protection_and_lid_mask_control = 2;
  info.speed_supported_and_state = info.physical_state_and_down_default = 0;
  EXPECT_EQ(set_port_info(host, info, 1), 0u);
  for (std::uint16_t lid = 8; lid <= 11; ++lid) EXPECT_TRUE(host.has_lid(1, Lid(lid)));
  for (const int lid : {0, 7, 12}) {
    EXPECT_FALSE(host.has_lid(1, Lid(static_cast<std::uint16_t>(lid))));
  }
  constexpr unsigned invalid = 7 << 2;
  info.lid = 9;  // no multiple of four
  EXPECT_EQ(set_port_info(host, info, 1), invalid);
  info.lid = 0xC000;  // a multicast LID
  EXPECT_EQ(set_port_info(host, info, 1), invalid);
}

TEST_F(NodeTest, ForwardsByItsTable) {
  EXPECT_EQ(leaf.output_port(Lid(5)), Node::no_port);
  Mad mad = ask(method_set, wire::attribute_linear_forwarding, 0);
  mad[data + 5] = std::byte{3};
  mad[data + 6] = std::byte{9};  // no such port
  EXPECT_EQ(leaf.handle(now, mad, 1), Outcome::answered);
  wire::SwitchInfo info;
  info.linear_top = 5;
  mad = ask(method_set, wire::attribute_switch_info);
  write(info, mad);
  EXPECT_EQ(leaf.handle(now, mad, 1), Outcome::answered);
  EXPECT_EQ(read<wire::SwitchInfo>(mad).linear_top, 5);
  EXPECT_EQ(leaf.output_port(Lid(5)), 3);
  EXPECT_EQ(leaf.output_port(Lid(6)), Node::no_port);  // behind the top
  info.linear_top = 6;
  mad = ask(method_set, wire::attribute_switch_info);
  write(info, mad);
  EXPECT_EQ(leaf.handle(now, mad, 1), Outcome::answered);
  EXPECT_EQ(leaf.output_port(Lid(6)), Node::no_port);
  mad = ask(method_get, wire::attribute_linear_forwarding, 0x300);  // behind the last block
  EXPECT_EQ(leaf.handle(now, mad, 1), Outcome::answered);
  EXPECT_EQ(status_of(mad), 7u << 2);
}

TEST_F(NodeTest, MulticastGoesToThePortsOfItsMask) {
  Mad mad = ask(method_set, wire::attribute_multicast_forwarding, 1);
  mad[data + 3] = std::byte{0b1010};  // second entry of the second block: ports 1 and 3
  EXPECT_EQ(leaf.handle(now, mad, 1), Outcome::answered);
  const Lid group(0xC000 + 32 + 1);
  EXPECT_FALSE(leaf.forwards_multicast(group, 0));
  EXPECT_TRUE(leaf.forwards_multicast(group, 1));
  EXPECT_FALSE(leaf.forwards_multicast(group, 2));
  EXPECT_TRUE(leaf.forwards_multicast(group, 3));
  EXPECT_FALSE(leaf.forwards_multicast(Lid(0xC000), 1));
  EXPECT_FALSE(leaf.forwards_multicast(Lid(33), 1));
}

// The first LID behind a table goes nowhere. This table fills its memory, so that what lies behind
// it is not zero by chance.
TEST_F(NodeTest, MulticastEndsWithItsTable) {
  NodeSettings settings = switch_settings();
  settings.ports = 14;
  settings.rates.assign(settings.ports, {});
  settings.multicast_entries = 12;
  const Node small(settings);
  const Lid behind(wire::unicast_lid_max + 1 + 12);
  for (std::uint8_t port = 0; port <= settings.ports; ++port) {
    EXPECT_FALSE(small.forwards_multicast(behind, port)) << int{port};
  }
}

// Each table is read as it was set.
TEST_F(NodeTest, TablesAreKept) {
  struct Table {
    std::uint16_t attribute;
    std::uint32_t modifier;
    std::size_t bytes;
  };
  for (const Table& table : {Table{wire::attribute_pkey_table, 2u << 16, 64},
                             Table{wire::attribute_sl_to_vl, 1u << 8 | 2u, 8},
                             Table{wire::attribute_vl_arbitration, 3u << 16 | 2u, 64},
                             Table{wire::attribute_multicast_forwarding, 2u << 28 | 3u, 64},
                             Table{wire::attribute_linear_forwarding, 7, 64}}) {
    Mad set = ask(method_set, table.attribute, table.modifier);
    for (std::size_t i = 0; i < table.bytes; ++i) set[data + i] = static_cast<std::byte>(i + 1);
    const Mad wanted = set;
    EXPECT_EQ(leaf.handle(now, set, 1), Outcome::answered);
    EXPECT_EQ(status_of(set), 0u) << table.attribute;
    Mad get = ask(method_get, table.attribute, table.modifier);
    EXPECT_EQ(leaf.handle(now, get, 1), Outcome::answered);
    EXPECT_TRUE(
        std::equal(get.begin() + data, get.begin() + data + table.bytes, wanted.begin() + data))
        << table.attribute;
    Mad beyond = ask(method_get, table.attribute, 0xFFFF'FFFF);
    EXPECT_EQ(leaf.handle(now, beyond, 1), Outcome::answered);
    EXPECT_EQ(status_of(beyond), 7u << 2) << table.attribute;
  }
}

TEST_F(NodeTest, FirstGuidStaysThePortsOwn) {
  Mad mad = ask(method_set, wire::attribute_guid_info, 0);
  std::fill(mad.begin() + data, mad.end(), std::byte{0x77});
  EXPECT_EQ(host.handle(now, mad, 1), Outcome::answered);
  EXPECT_EQ(number_at(mad, data, 8), host.settings().guid);
  EXPECT_EQ(number_at(mad, data + 8, 8), 0x7777'7777'7777'7777u);
}

TEST_F(NodeTest, AdapterHasNoTablesOfASwitch) {
  for (const std::uint16_t attribute :
       {wire::attribute_switch_info, wire::attribute_linear_forwarding,
        wire::attribute_multicast_forwarding, std::uint16_t{0x0123}}) {
    for (const std::uint8_t method : {method_get, method_set}) {
      Mad mad = ask(method, attribute);
      EXPECT_EQ(host.handle(now, mad, 1), Outcome::answered);
      EXPECT_EQ(status_of(mad), 3u << 2) << attribute;
    }
  }
}

// --- lanes ---

// Each service level begins on the lane of its number, as far as there are lanes.
TEST_F(NodeTest, ServiceLevelsShareTheLanesThatThereAre) {
  constexpr std::uint8_t levels = 16;
  for (std::uint8_t code = 1; code <= 4; ++code) {
    NodeSettings settings = adapter_settings();
    settings.virtual_lanes_code = code;
    const Node node(settings);
    const int lanes = 1 << (code - 1);
    for (std::uint8_t level = 0; level < levels; ++level) {
      EXPECT_EQ(node.lane(1, 1, level), level % lanes) << lanes << " lanes, level " << int{level};
    }
  }
}

// IBTA 14.2.5.6: zero leaves the number of lanes as it is.
TEST_F(NodeTest, ALinkHasTheLanesThatItsManagerSets) {
  EXPECT_EQ(leaf.lane(0, 2, 1), 1);
  wire::PortInfo info = with_state(leaf, 2, PortState::none);
  info.operational_lanes_and_enforcement = wire::halves(1, 0);
  EXPECT_EQ(set_port_info(leaf, info, 2), 0u);
  EXPECT_EQ(leaf.lane(0, 2, 0), 0);
  EXPECT_EQ(leaf.lane(0, 2, 1), std::nullopt);
  info.operational_lanes_and_enforcement = wire::halves(0, 0);
  EXPECT_EQ(set_port_info(leaf, info, 2), 0u);
  EXPECT_EQ(leaf.lane(0, 2, 0), 0);
  EXPECT_EQ(leaf.lane(0, 2, 1), std::nullopt);
  info.operational_lanes_and_enforcement = wire::halves(2, 0);
  EXPECT_EQ(set_port_info(leaf, info, 2), 0u);
  EXPECT_EQ(leaf.lane(0, 2, 1), 1);
}

// The agent of such a node is another program, and may say anything.
TEST_F(NodeTest, ANodeElsewhereHasNoLanesUnlessItSaysSo) {
  wire::PortInfo info = host.port_info(1);
  info.operational_lanes_and_enforcement = 0;
  host.copy_port_info(1, info);
  EXPECT_EQ(host.lane(1, 1, 0), std::nullopt);
}

// The driver reads a port's arbitration again when a manager has written any of it.
TEST_F(NodeTest, WritesOfTheArbitrationAreCounted) {
  const auto write_block = [&](std::uint16_t attribute, std::uint32_t modifier) {
    Mad mad = ask(method_set, attribute, modifier);
    mad[data] = std::byte{1};
    EXPECT_EQ(leaf.handle(now, mad, 1), Outcome::answered);
    return status_of(mad);
  };
  EXPECT_EQ(leaf.arbitration_writes(), 0u);
  EXPECT_EQ(write_block(wire::attribute_vl_arbitration, 1u << 16 | 2u), 0u);
  EXPECT_EQ(leaf.arbitration_writes(), 1u);
  EXPECT_EQ(write_block(wire::attribute_vl_arbitration, 3u << 16 | 2u), 0u);
  EXPECT_EQ(leaf.arbitration_writes(), 2u);
  wire::PortInfo info = with_state(leaf, 2, PortState::none);
  info.vl_high_limit = 9;
  EXPECT_EQ(set_port_info(leaf, info, 2), 0u);
  EXPECT_EQ(leaf.arbitration_writes(), 3u);
  // What leaves the arbitration as it is does not count.
  EXPECT_EQ(set_port_info(leaf, info, 2), 0u);
  EXPECT_EQ(write_block(wire::attribute_pkey_table, 2u << 16), 0u);
  EXPECT_NE(write_block(wire::attribute_vl_arbitration, 5u << 16 | 2u), 0u);  // no such block
  EXPECT_EQ(leaf.arbitration_writes(), 3u);
}

// --- the manager's key ---

class KeyTest : public NodeTest {
 protected:
  static constexpr std::uint64_t key = 0x1234'5678;

  void protect(unsigned bits, std::uint16_t lease_seconds = 0) {
    wire::PortInfo info = port_info(host, 1);
    info.management_key = key;
    info.key_lease_period = lease_seconds;
    info.key_protection_and_lid_mask_control = static_cast<std::uint8_t>(bits << 6);
    info.lid = 3;
    info.master_sm_lid = 1;
    info.speed_supported_and_state = info.physical_state_and_down_default = 0;
    EXPECT_EQ(set_port_info(host, info, 1), 0u);
  }
  Outcome get(std::uint64_t with, std::uint64_t& shown, Time at = now) {
    Mad mad = ask(method_get, wire::attribute_port_info);
    set_key(with, mad);
    const Outcome outcome = host.handle(at, mad, 1);
    shown = read<wire::PortInfo>(mad).management_key;
    return outcome;
  }
};

TEST_F(KeyTest, NobodySetsWithoutIt) {
  protect(0);
  wire::PortInfo info = host.port_info(1);
  info.lid = 5;
  info.speed_supported_and_state = info.physical_state_and_down_default = 0;
  EXPECT_EQ(set_port_info(host, info, 1), 0xFFFFu);  // no answer
  EXPECT_EQ(host.port_info(1).lid, 3);
  EXPECT_EQ(host.port_info(1).management_key_violations, 1);
  EXPECT_EQ(set_port_info(host, info, 1, key), 0u);
  EXPECT_EQ(host.port_info(1).lid, 5);
}

TEST_F(KeyTest, IsHiddenFromOthersAsTheProtectionSays) {
  std::uint64_t shown = 0;
  protect(0);
  EXPECT_EQ(get(0, shown), Outcome::answered);
  EXPECT_EQ(shown, key);
  wire::PortInfo info = host.port_info(1);
  info.key_protection_and_lid_mask_control = 1 << 6;
  info.speed_supported_and_state = info.physical_state_and_down_default = 0;
  EXPECT_EQ(set_port_info(host, info, 1, key), 0u);
  EXPECT_EQ(get(0, shown), Outcome::answered);
  EXPECT_EQ(shown, 0u);
  EXPECT_EQ(get(key, shown), Outcome::answered);
  EXPECT_EQ(shown, key);
  info.key_protection_and_lid_mask_control = 2 << 6;
  EXPECT_EQ(set_port_info(host, info, 1, key), 0u);
  EXPECT_EQ(get(0, shown), Outcome::nothing);
}

// IBTA 14.2.4: once somebody has tried without the key, the manager must come within its lease.
TEST_F(KeyTest, LosesItsProtectionWhenTheLeaseEnds) {
  protect(2, 5);
  std::uint64_t shown = 0;
  EXPECT_EQ(get(0, shown, now), Outcome::nothing);
  EXPECT_EQ(get(0, shown, now + Time::seconds(4)), Outcome::nothing);
  EXPECT_EQ(get(key, shown, now + Time::seconds(4)), Outcome::answered);  // renews it
  EXPECT_EQ(get(0, shown, now + Time::seconds(6)), Outcome::nothing);
  host.rebase(now + Time::seconds(6));
  EXPECT_EQ(get(0, shown, Time::seconds(4)), Outcome::nothing);
  EXPECT_EQ(get(0, shown, Time::seconds(5)), Outcome::answered);
}

// Without its manager, a port shows the key, by which another manager can take over. It keeps its
// LIDs, by which programs work on.
TEST_F(KeyTest, ShowsTheKeyWhenTheManagersLeaseIsEnded) {
  const auto protect_with = [&](std::uint16_t lease_seconds, std::uint64_t known) {
    wire::PortInfo info = host.port_info(1);
    info.management_key = key;
    info.key_lease_period = lease_seconds;
    info.key_protection_and_lid_mask_control = 1 << 6 | 3;  // hidden, and eight LIDs
    info.lid = 8;
    info.master_sm_lid = 1;
    info.speed_supported_and_state = info.physical_state_and_down_default = 0;
    EXPECT_EQ(set_port_info(host, info, 1, known), 0u);
  };
  std::uint64_t shown = 0;
  protect_with(0, 0);
  host.end_lease(1);
  EXPECT_EQ(get(0, shown), Outcome::answered);
  EXPECT_EQ(shown, 0u) << "a key without a lease stays";
  protect_with(60, key);
  host.end_lease(2);
  EXPECT_EQ(get(0, shown), Outcome::answered);
  EXPECT_EQ(shown, 0u) << "the lease is another manager's";
  host.end_lease(1);
  EXPECT_EQ(get(0, shown), Outcome::answered);
  EXPECT_EQ(shown, key);
  for (std::uint16_t lid = 8; lid <= 15; ++lid) EXPECT_TRUE(host.has_lid(1, Lid(lid))) << lid;
}

TEST_F(KeyTest, AnIntruderIsReported) {
  protect(2);
  std::uint64_t shown = 0;
  EXPECT_EQ(get(0x666, shown), Outcome::nothing);
  Mad trap{};
  EXPECT_EQ(host.take_trap(now, trap), 1);
  EXPECT_EQ(header_of(trap).method, method_trap);
  EXPECT_EQ(subnet_header_of(trap).management_key, key);
  const auto notice = read<wire::Notice>(trap);
  EXPECT_EQ(notice.trap, wire::trap_bad_key);
  EXPECT_EQ(notice.issuer_lid, 3);
  wire::BadKeyDetails details;
  std::memcpy(&details, notice.details.data(), sizeof details);
  EXPECT_EQ(details.management_key, 0u) << "it may be the manager's own";
  EXPECT_EQ(details.attribute_id, wire::attribute_port_info);
}

// --- traps ---

TEST_F(NodeTest, SwitchReportsItsLinksUntilTheManagerAnswers) {
  Mad trap{};
  EXPECT_FALSE(leaf.take_trap(now, trap));
  join();
  EXPECT_LE(leaf.next_trap(), now);
  EXPECT_EQ(leaf.take_trap(now, trap), 0);
  EXPECT_EQ(read<wire::Notice>(trap).trap, wire::trap_link_state);
  EXPECT_FALSE(leaf.take_trap(now, trap));  // not at once again
  EXPECT_EQ(leaf.next_trap(), now + TrapSender::pause);
  EXPECT_EQ(leaf.take_trap(now + TrapSender::pause, trap), 0);
  wire::MadHeader header = header_of(trap);
  header.method = method_trap_repress;
  set_header(trap, header);
  EXPECT_EQ(leaf.handle(now, trap, 1), Outcome::nothing);
  EXPECT_TRUE(leaf.next_trap().is_never());
}

TEST_F(NodeTest, ATrapThatNobodyAnswersEnds) {
  join();
  Mad trap{};
  Time at = now;
  int sent = 0;
  while (!leaf.next_trap().is_never()) {
    at = std::max(at, leaf.next_trap());
    ASSERT_TRUE(leaf.take_trap(at, trap));
    ASSERT_LE(++sent, TrapSender::sendings_max);
  }
  EXPECT_EQ(sent, TrapSender::sendings_max);
}

TEST_F(NodeTest, ALinkThatFlapsDoesNotFloodTheManager) {
  Mad trap{};
  int sent = 0;
  for (int i = 0; i < 1'000; ++i) {
    const Time at = now + Time::milliseconds(i);
    leaf.link_up(at, 2, host.port_info(1));
    leaf.link_down(at, 2);
    while (leaf.take_trap(at, trap)) ++sent;
  }
  EXPECT_EQ(sent, 1);
}

TEST_F(NodeTest, SwitchTellsThatAPortChanged) {
  join();
  Mad mad = ask(method_get, wire::attribute_switch_info);
  EXPECT_EQ(leaf.handle(now, mad, 1), Outcome::answered);
  auto info = read<wire::SwitchInfo>(mad);
  EXPECT_NE(info.life_and_change & wire::SwitchInfo::port_state_change, 0);
  mad = ask(method_set, wire::attribute_switch_info);
  write(info, mad);
  EXPECT_EQ(leaf.handle(now, mad, 1), Outcome::answered);
  EXPECT_EQ(read<wire::SwitchInfo>(mad).life_and_change & wire::SwitchInfo::port_state_change, 0);
}

TEST_F(NodeTest, ShowsThatAManagerRuns) {
  host.set_manager(now, 1, true);
  EXPECT_NE(port_info(host, 1).capability_mask & wire::capability_is_sm, 0u);
  Mad trap{};
  EXPECT_EQ(host.take_trap(now, trap), 1);
  EXPECT_EQ(read<wire::Notice>(trap).trap, wire::trap_capability);
  host.set_manager(now, 1, false);
  EXPECT_EQ(port_info(host, 1).capability_mask & wire::capability_is_sm, 0u);
}

TEST_F(NodeTest, LeavesToTheManagerWhatIsItsOwn) {
  Mad mad = ask(method_get, wire::attribute_sm_info);
  EXPECT_EQ(host.handle(now, mad, 1), Outcome::for_manager);
  mad = ask(method_get_response, wire::attribute_node_info);
  EXPECT_EQ(host.handle(now, mad, 1), Outcome::for_manager);
  mad = ask(method_trap, wire::attribute_notice);
  EXPECT_EQ(host.handle(now, mad, 1), Outcome::for_manager);
}

TEST_F(NodeTest, AsksClientsToRegisterAnew) {
  wire::PortInfo info = port_info(host, 1);
  info.subnet_timeout = 0x80 | 18;
  info.speed_supported_and_state = info.physical_state_and_down_default = 0;
  EXPECT_EQ(set_port_info(host, info, 1), 0u);
  EXPECT_TRUE(host.take_reregistration(1));
  EXPECT_FALSE(host.take_reregistration(1));
}

TEST_F(NodeTest, RefusesAnotherVersion) {
  Mad mad = ask(method_get, wire::attribute_node_info);
  wire::MadHeader header = header_of(mad);
  header.class_version = 2;
  set_header(mad, header);
  EXPECT_EQ(host.handle(now, mad, 1), Outcome::answered);
  EXPECT_EQ(status_of(mad), 1u << 2);
}

}  // namespace
}  // namespace tulle::management::subnet

// These tests run a manager on a subnet of real nodes: a switch, the manager's own adapter at its
// port 1, and a guest at its port 2.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "management/subnet/header.h"
#include "management/subnet/manager.h"
#include "management/subnet/node.h"

namespace tulle::management::subnet {
namespace {

using wire::ManagerControl;
using wire::ManagerState;

constexpr std::uint64_t host_guid = 50;
constexpr std::uint64_t guest_guid = 60;
constexpr std::uint64_t key = 0x1234;
constexpr std::uint8_t host_port = 1;  // of the switch
constexpr std::uint8_t guest_port = 2;

NodeSettings adapter_settings(std::uint64_t guid) {
  NodeSettings settings;
  settings.guid = guid;
  settings.rates.assign(1, {});
  return settings;
}

NodeSettings switch_settings() {
  NodeSettings settings;
  settings.is_switch = true;
  settings.ports = 2;
  settings.guid = 70;
  settings.multicast_entries = wire::multicast_entries_in_block + 1;
  settings.rates.assign(settings.ports, {});
  return settings;
}

ManagerSettings manager_settings() {
  ManagerSettings settings;
  settings.port_guid = host_guid;
  settings.seed = 7;
  return settings;
}

ManagerSettings settings_with_key() {
  ManagerSettings settings = manager_settings();
  settings.ports.key = key;
  return settings;
}

// The switch sends each adapter's LIDs to the port where that is.
void route(Graph& graph) {
  for (GraphNode& node : graph.nodes) {
    if (!node.is_switch()) continue;
    for (std::size_t place = 1; place < node.ports.size(); ++place) {
      if (!node.ports[place].has_peer()) continue;
      const GraphNode& adapter = graph.nodes[node.ports[place].peer];
      for (std::uint32_t i = 0; adapter.lid != 0 && i < 1u << adapter.lmc; ++i) {
        node.linear[adapter.lid + i] = static_cast<std::uint8_t>(place);
      }
    }
  }
}

class SubnetManagerAndNodesTest : public testing::Test {
 protected:
  SubnetManagerAndNodesTest() {
    join(host_port, host);
    join(guest_port, guest);
  }

  void join(std::uint8_t port, Node& adapter) {
    const wire::PortInfo info = leaf.port_info(port);
    leaf.link_up(now, port, adapter.port_info(1));
    adapter.link_up(now, 1, info);
  }
  // Returns the node at the end of a directed route, and the port where the packet comes in.
  std::pair<Node*, std::uint8_t> end_of_route(const Packet& packet) {
    std::pair<Node*, std::uint8_t> at{&host, 1};
    const unsigned hops = wire::hop_count_of(header_of(packet.mad).class_specific);
    for (unsigned hop = 1; hop <= hops; ++hop) {
      const auto out = std::to_integer<int>(packet.mad[wire::initial_path_offset + hop]);
      if (at.first == &leaf) {
        at = {out == host_port ? &host : &guest, 1};
      } else {
        at = {&leaf, at.first == &host ? host_port : guest_port};
      }
    }
    return at;
  }
  Packet answer_of(Packet packet) {
    const auto header = header_of(packet.mad);
    const auto [node, port] = end_of_route(packet);
    Status status = Status::ok;
    if (node->handle(now, packet.mad, port) == Node::Outcome::for_manager) {
      put_attribute(other, wire::subnet_data_offset, packet.mad);
      if (header.method == method_set) status = Status::invalid_value;
    } else {
      status = static_cast<Status>(header_of(packet.mad).status & ~wire::directed_route_returns);
    }
    if (node == refuser && header.attribute_id == refused) status = Status::invalid_value;
    begin_answer(packet.mad, status, wire::directed_route_returns, packet.mad);
    return packet;
  }
  // Runs the manager, and answers its questions. Returns these.
  std::vector<Packet> run() {
    constexpr std::size_t questions_max = 1'000;
    std::vector<Packet> questions;
    do {
      manager.expire(now);
      while (const auto packet = manager.take_packet(now)) {
        questions.push_back(*packet);
        manager.receive(now, answer_of(*packet));
        if (questions.size() > questions_max) {
          ADD_FAILURE() << "the manager asks for ever";
          return questions;
        }
      }
    } while (manager.next_timeout() <= now);
    return questions;
  }
  std::vector<Packet> run_after(Time pause) {
    now += pause;
    return run();
  }
  std::vector<Packet> sweep() {
    manager.want_sweep(now);
    return run_after(Time::seconds(1));
  }
  // Brings the subnet up, and takes back the switch's note that ports have changed.
  void settle() {
    run();
    sweep();
    ASSERT_TRUE(manager.is_up());
    ASSERT_EQ(manager.errors(), 0u);
  }
  static std::ptrdiff_t sets_among(const std::vector<Packet>& questions) {
    return std::ranges::count_if(
        questions, [](const Packet& each) { return header_of(each.mad).method == method_set; });
  }
  // Returns a datagram that a program at the guest sends to the manager by LID.
  Packet from_guest(std::uint8_t method, std::uint16_t attribute) const {
    Packet packet;
    packet.source = Lid(guest.port_info(1).lid);
    packet.destination = Lid(host.port_info(1).lid);
    wire::MadHeader header;
    header.management_class = wire::subnet_class;
    header.class_version = wire::subnet_class_version;
    header.method = method;
    header.attribute_id = attribute;
    put_attribute(header, 0, packet.mad);
    return packet;
  }

  Time now = Time::seconds(1);
  Node host{adapter_settings(host_guid)};
  Node guest{adapter_settings(guest_guid)};
  Node leaf{switch_settings()};
  wire::SmInfo other;  // the manager at the guest, if that says that it has one
  // A node that refuses what is asked about an attribute, and shows it all the same.
  const Node* refuser = nullptr;
  std::uint16_t refused = 0;
  Manager manager{now, manager_settings(), route};
};

TEST_F(SubnetManagerAndNodesTest, ASweepSetsOnlyWhatDiffers) {
  settle();
  EXPECT_EQ(leaf.state(guest_port), wire::PortState::active);
  EXPECT_EQ(leaf.output_port(Lid(guest.port_info(1).lid)), guest_port);
  EXPECT_EQ(sets_among(sweep()), 0);
  // The guest has started again.
  guest = Node(adapter_settings(guest_guid));
  leaf.link_down(now, guest_port);
  join(guest_port, guest);
  EXPECT_GT(sets_among(sweep()), 0);
  EXPECT_EQ(guest.state(1), wire::PortState::active);
}

TEST_F(SubnetManagerAndNodesTest, ALightSweepThatFindsNothingNewIsAll) {
  settle();
  const auto before = manager.sweeps();
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(run_after(Manager::light_sweep_pause).empty());
    run_after(Time::seconds(1));
    EXPECT_EQ(manager.sweeps(), before);
  }
}

// What a node that refuses to tell shows besides means nothing.
TEST_F(SubnetManagerAndNodesTest, ANodeThatFailsInALightSweepIsReadAgain) {
  settle();
  const auto before = manager.sweeps();
  refuser = &leaf;
  refused = wire::attribute_switch_info;
  run_after(Manager::light_sweep_pause);
  refuser = nullptr;
  run_after(Time::seconds(1));
  EXPECT_EQ(manager.sweeps(), before + 1);
}

// Nobody knows how large the tables are of a switch that does not say so.
TEST_F(SubnetManagerAndNodesTest, ASwitchThatDoesNotTellItsSizeGetsNoTables) {
  refuser = &leaf;
  refused = wire::attribute_switch_info;
  for (const Packet& question : run()) {
    EXPECT_NE(header_of(question.mad).attribute_id, wire::attribute_linear_forwarding);
  }
  EXPECT_GT(manager.errors(), 0u);
  refuser = nullptr;
  settle();
  EXPECT_EQ(leaf.output_port(Lid(guest.port_info(1).lid)), guest_port);
}

// IBTA 14.4.1: a master stays the master if the other one does not take the subnet. It has taken
// its key from the ports by then, and sets it again.
TEST_F(SubnetManagerAndNodesTest, ARefusedHandoverLeavesItTheMaster) {
  manager = Manager(now, settings_with_key(), route);
  settle();
  guest.set_manager(now, 1, true);
  other.guid = guest_guid;
  other.key = 1;
  other.priority_and_state = wire::halves(15, static_cast<unsigned>(ManagerState::standby));
  const auto before = manager.sweeps();
  const auto questions = sweep();
  EXPECT_TRUE(std::ranges::any_of(questions, [](const Packet& each) {
    const auto header = header_of(each.mad);
    return header.method == method_set && header.attribute_id == wire::attribute_sm_info &&
           header.attribute_modifier == static_cast<std::uint32_t>(ManagerControl::handover);
  }));
  EXPECT_EQ(manager.state(), ManagerState::master);
  EXPECT_TRUE(manager.is_up());
  EXPECT_EQ(manager.sweeps(), before + 1);
  for (const Node* adapter : {&host, &guest}) {
    EXPECT_EQ(adapter->port_info(1).management_key, key);
    EXPECT_NE(wire::key_protection_of(adapter->port_info(1)), 0u);
  }
}

// A port whose manager has gone is as it was before it had one, but for its addresses.
TEST_F(SubnetManagerAndNodesTest, AManagerThatRestsLeavesNoKeyBehind) {
  ManagerSettings settings = settings_with_key();
  settings.lmc = 1;
  manager = Manager(now, settings, route);
  settle();
  ASSERT_EQ(guest.port_info(1).management_key, key);
  ASSERT_NE(wire::key_protection_of(guest.port_info(1)), 0u);
  const std::uint16_t lid = guest.port_info(1).lid;
  manager.set_allowed(now, false);
  run();
  for (const wire::PortInfo& info : {host.port_info(1), guest.port_info(1), leaf.port_info(0)}) {
    EXPECT_EQ(info.management_key, 0u);
    EXPECT_EQ(info.key_lease_period, 0);
    EXPECT_EQ(wire::key_protection_of(info), 0u);
  }
  EXPECT_TRUE(guest.has_lid(1, Lid(lid)));
  EXPECT_TRUE(guest.has_lid(1, Lid(static_cast<std::uint16_t>(lid + 1))));
}

// A program's trap has no key. Its node takes the manager's answer only with the port's key.
TEST_F(SubnetManagerAndNodesTest, TrapsWithoutAKeyAreRepressedWithTheManagers) {
  manager = Manager(now, settings_with_key(), route);
  settle();
  for (const std::uint64_t own : {std::uint64_t{0}, key, key + 1}) {
    Packet trap = from_guest(method_trap, wire::attribute_notice);
    wire::SubnetHeader header;
    header.management_key = own;
    put_attribute(header, wire::subnet_header_offset, trap.mad);
    manager.receive(now, trap);
    auto repress = manager.take_packet(now);
    ASSERT_TRUE(repress);
    EXPECT_EQ(header_of(repress->mad).method, method_trap_repress);
    const std::uint64_t sent = subnet_header_of(repress->mad).management_key;
    EXPECT_EQ(sent, own == 0 ? key : own);
    const bool arrives = guest.handle(now, repress->mad, 1) == Node::Outcome::for_manager;
    EXPECT_EQ(arrives, own != key + 1);
  }
}

// IBTA 4.1.3: the permissive LID stands for whatever port the packet reaches, and names no sender.
TEST_F(SubnetManagerAndNodesTest, AnswersByLidComeFromItsOwnLid) {
  settle();
  const Lid own(host.port_info(1).lid);
  for (const Lid asked : {Lid(wire::permissive_lid), own}) {
    Packet question = from_guest(method_get, wire::attribute_sm_info);
    question.destination = asked;
    manager.receive(now, question);
    const auto answer = manager.take_packet(now);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->source, own);
    EXPECT_EQ(answer->destination, Lid(guest.port_info(1).lid));
  }
}

// The switch's table ends with one entry in its second block, which counts as any other.
TEST_F(SubnetManagerAndNodesTest, TheLastGroupOfATableReachesItsMembers) {
  settle();
  const auto last =
      static_cast<std::uint16_t>(first_multicast_lid + wire::multicast_entries_in_block);
  manager.set_members({{last, {{host_guid, guest_guid}}}});
  run_after(Manager::groups_pause_max);
  for (const std::uint8_t port : {host_port, guest_port}) {
    EXPECT_TRUE(leaf.forwards_multicast(Lid(last), port));
    EXPECT_FALSE(leaf.forwards_multicast(Lid(first_multicast_lid), port));
  }
  EXPECT_FALSE(leaf.forwards_multicast(Lid(last), 0)) << "the switch itself is no member";
}

}  // namespace
}  // namespace tulle::management::subnet

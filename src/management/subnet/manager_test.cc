// These tests make every answer that a manager gets: they show what it believes, and what it does
// about other managers.

#include "management/subnet/manager.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "management/subnet/header.h"

namespace tulle::management::subnet {
namespace {

using wire::ManagerControl;
using wire::ManagerState;

constexpr std::uint64_t own_guid = 50;

class SubnetManagerTest : public testing::Test {
 protected:
  static ManagerSettings settings() {
    ManagerSettings settings;
    settings.port_guid = own_guid;
    settings.limits = {200, 100, 2'000};
    settings.seed = 7;
    return settings;
  }

  static Packet answer_of(Packet packet, const AttributeData& data, Status status = Status::ok) {
    begin_answer(packet.mad, status, wire::directed_route_returns, packet.mad);
    put_attribute(data, wire::subnet_data_offset, packet.mad);
    return packet;
  }
  template <typename Attribute>
  static AttributeData data_of(const Attribute& attribute) {
    AttributeData data{};
    std::memcpy(data.data(), &attribute, sizeof attribute);
    return data;
  }

  // Answers as an adapter with a link to one other adapter, at which `other` is a manager if it has
  // a GUID.
  AttributeData pair_answer(const Packet& packet) {
    const auto header = header_of(packet.mad);
    const unsigned hops = wire::hop_count_of(header.class_specific);
    wire::NodeInfo node;
    node.node_guid = node.port_guid = hops == 0 ? own_guid : 60;
    if (hops == 1 && other.guid != 0) node.node_guid = node.port_guid = other.guid;
    wire::PortInfo port;
    port.speed_supported_and_state = wire::halves(1, 2);
    port.init_type_reply_and_mtu = port.virtual_lanes_and_init_type = 0x44;
    if (hops == 1 && other.guid != 0) port.capability_mask = wire::capability_is_sm;
    if (header.method == method_set) {
      AttributeData data;
      std::memcpy(data.data(), packet.mad.data() + wire::subnet_data_offset, data.size());
      // A state of zero changes nothing.
      constexpr std::size_t state = 32;
      if (wire::lower_half(std::to_integer<std::uint8_t>(data[state])) == 0) {
        data[state] |= std::byte{static_cast<unsigned>(wire::PortState::initialise)};
      }
      return data;
    }
    switch (header.attribute_id) {
      case wire::attribute_node_info:
        return data_of(node);
      case wire::attribute_port_info:
        return data_of(port);
      case wire::attribute_sm_info:
        return data_of(other);
      default:
        return {};
    }
  }
  // Runs the manager, and answers all its questions. Returns the controls that it has sent.
  std::vector<ManagerControl> run() {
    std::vector<ManagerControl> controls;
    manager.expire(now);
    for (int sent = 0; sent < 1'000; ++sent) {
      const auto packet = manager.take_packet(now);
      if (!packet) return controls;
      const auto header = header_of(packet->mad);
      if (header.attribute_id == wire::attribute_sm_info && header.method == method_set) {
        controls.push_back(
            static_cast<ManagerControl>(static_cast<std::uint32_t>(header.attribute_modifier)));
      }
      manager.receive(now, answer_of(*packet, pair_answer(*packet)));
    }
    ADD_FAILURE() << "the manager asks for ever";
    return controls;
  }
  void set_other(std::uint64_t guid, unsigned priority, ManagerState state) {
    other.guid = guid;
    other.key = 1;
    other.priority_and_state = wire::halves(priority, static_cast<unsigned>(state));
  }
  Packet sm_info(std::uint8_t method, std::uint32_t modifier = 0) {
    Packet packet;
    packet.source = packet.destination = Lid(wire::permissive_lid);
    wire::MadHeader header;
    header.management_class = wire::subnet_directed_class;
    header.class_version = 1;
    header.method = method;
    header.class_specific = 0x0201;
    header.transaction_id = 99;
    header.attribute_id = wire::attribute_sm_info;
    header.attribute_modifier = modifier;
    put_attribute(header, 0, packet.mad);
    packet.mad[wire::return_path_offset + 1] = std::byte{1};
    return packet;
  }
  // Returns the status with which the manager answers.
  std::optional<std::uint16_t> tell(ManagerControl control) {
    manager.receive(now, sm_info(method_set, static_cast<std::uint32_t>(control)));
    const auto answer = manager.take_packet(now);
    if (!answer) return std::nullopt;
    const auto header = header_of(answer->mad);
    EXPECT_EQ(header.method, method_get_response);
    return static_cast<std::uint16_t>(header.status & ~wire::directed_route_returns);
  }

  Time now = Time::seconds(1);
  wire::SmInfo other;
  Manager manager{now, settings(), [](Graph&) {}};
};

TEST_F(SubnetManagerTest, AloneItIsTheMaster) {
  run();
  EXPECT_EQ(manager.state(), ManagerState::master);
  EXPECT_TRUE(manager.is_up());
  ASSERT_EQ(manager.graph().nodes.size(), 2u);
  EXPECT_NE(manager.graph().nodes[0].lid, manager.graph().nodes[1].lid);
  EXPECT_EQ(manager.graph().nodes[1].end_port().state(), wire::PortState::active);
}

TEST_F(SubnetManagerTest, TellsWhoItIs) {
  manager.receive(now, sm_info(method_get));
  const auto answer = manager.take_packet(now);
  ASSERT_TRUE(answer);
  wire::SmInfo info;
  std::memcpy(&info, answer->mad.data() + wire::subnet_data_offset, sizeof info);
  EXPECT_EQ(info.guid, own_guid);
  EXPECT_EQ(info.key, 1u);
  EXPECT_EQ(info.priority_and_state, 0x01);  // discovering
  EXPECT_NE(header_of(answer->mad).status & wire::directed_route_returns, 0);
}

// Of two managers with secret keys, each believes the other if that one knows the SM_Key, and shows
// its own to those who know the M_Key.
TEST_F(SubnetManagerTest, StrangersDoNotKnowSecretKeys) {
  ManagerSettings secret = settings();
  secret.manager_key = secret.ports.key = 0x1234;
  secret.shares_keys = true;
  manager = Manager(now, secret, [](Graph&) {});
  const auto shown_to = [&](std::uint64_t key) {
    Packet packet = sm_info(method_get);
    wire::SubnetHeader header;
    header.management_key = key;
    put_attribute(header, wire::subnet_header_offset, packet.mad);
    manager.receive(now, packet);
    const auto answer = manager.take_packet(now);
    wire::SmInfo info;
    std::memcpy(&info, answer->mad.data() + wire::subnet_data_offset, sizeof info);
    return static_cast<std::uint64_t>(info.key);
  };
  EXPECT_EQ(shown_to(0), 0u);
  EXPECT_EQ(shown_to(1), 0u);
  EXPECT_EQ(shown_to(0x1234), 0x1234u);
  set_other(40, 15, ManagerState::master);
  run();
  EXPECT_EQ(manager.state(), ManagerState::master);
  EXPECT_EQ(tell(ManagerControl::acknowledge), static_cast<std::uint16_t>(Status::invalid_value));
  other.key = 0x1234;
  other.priority_and_state = wire::halves(15, static_cast<unsigned>(ManagerState::standby));
  manager.want_sweep(now);
  now += Time::seconds(1);
  EXPECT_EQ(run(), std::vector{ManagerControl::handover});
  EXPECT_EQ(tell(ManagerControl::disable), static_cast<std::uint16_t>(Status::invalid_value));
  EXPECT_EQ(manager.state(), ManagerState::standby);
}

// Anybody can make the master acknowledge a handover, which does not keep it from its work.
TEST_F(SubnetManagerTest, AcknowledgementsDoNotPile) {
  run();
  ASSERT_TRUE(manager.is_up());
  for (int i = 0; i < 100'000; ++i) {
    manager.receive(now, sm_info(method_set, static_cast<std::uint32_t>(ManagerControl::handover)));
  }
  std::size_t sent = 0;
  while (manager.take_packet(now)) ++sent;
  EXPECT_LE(sent, Manager::outgoing_max + Exchange::on_the_wire_max);
  const auto before = manager.sweeps();
  now += Time::seconds(1);
  run();
  EXPECT_GT(manager.sweeps(), before);
}

// A waiting manager obeys the master that it polls, and nobody else.
TEST_F(SubnetManagerTest, StrangersDoNotEndAWaitingManager) {
  set_other(60, 3, ManagerState::master);
  run();
  ASSERT_EQ(manager.state(), ManagerState::standby);
  Packet packet = sm_info(method_set, static_cast<std::uint32_t>(ManagerControl::disable));
  auto header = header_of(packet.mad);
  header.class_specific = 0x0302;  // two hops away, where no manager is
  put_attribute(header, 0, packet.mad);
  packet.mad[wire::return_path_offset + 2] = std::byte{1};
  manager.receive(now, packet);
  EXPECT_EQ(manager.state(), ManagerState::standby);
  packet.source = Lid(77);
  header.management_class = wire::subnet_class;
  put_attribute(header, 0, packet.mad);
  manager.receive(now, packet);
  EXPECT_EQ(manager.state(), ManagerState::standby);
  while (manager.take_packet(now)) continue;
  EXPECT_EQ(tell(ManagerControl::disable), 0);
  EXPECT_EQ(manager.state(), ManagerState::not_active);
}

// Nobody learns from one question for a manager how to answer the next.
TEST_F(SubnetManagerTest, QuestionsForManagersHaveNumbersThatAreDrawn) {
  std::uint64_t drawn = 0x1111'0000'0000'0000;
  ManagerSettings drawing = settings();
  drawing.draw = [&] { return drawn += 0x0001'2345'6789'ABCD; };
  manager = Manager(now, drawing, [](Graph&) {});
  set_other(60, 3, ManagerState::master);
  std::set<std::uint64_t> numbers;
  manager.expire(now);
  while (const auto packet = manager.take_packet(now)) {
    const auto header = header_of(packet->mad);
    if (header.attribute_id == wire::attribute_sm_info) numbers.insert(header.transaction_id);
    manager.receive(now, answer_of(*packet, pair_answer(*packet)));
  }
  EXPECT_EQ(numbers, (std::set<std::uint64_t>{0x9112'2345'6789'ABCD}));
}

// Programs change groups without end, and the manager still looks at its switches.
TEST_F(SubnetManagerTest, GroupsDoNotPutOffWhatIsDue) {
  run();
  const auto before = manager.sweeps();
  manager.want_sweep(now);
  now += Time::seconds(1);
  manager.set_members({{0xC001, {}}});
  manager.expire(now);
  const auto first = manager.take_packet(now);
  ASSERT_TRUE(first);
  EXPECT_EQ(header_of(first->mad).attribute_id, wire::attribute_node_info) << "a sweep";
  manager.receive(now, answer_of(*first, pair_answer(*first)));
  run();
  EXPECT_EQ(manager.sweeps(), before + 1);
}

// Computing the trees of all groups takes long on a large fabric, whose packets wait meanwhile.
TEST_F(SubnetManagerTest, GroupsTakeHalfOfTheTimeAtMost) {
  run();
  manager.set_members({{0xC001, {}}});
  EXPECT_LE(manager.next_timeout(), now);
  manager.expire(now);
  now += Time::milliseconds(10);
  EXPECT_LE(manager.next_timeout(), now) << "to see how long it took";
  manager.expire(now);
  manager.set_members({{0xC002, {}}});
  EXPECT_EQ(manager.next_timeout(), now + Time::milliseconds(10)) << "as long as the last took";
  now += Time::milliseconds(10);
  manager.expire(now);
  now += Time::seconds(5);  // the process was stopped
  manager.expire(now);
  manager.set_members({{0xC003, {}}});
  EXPECT_EQ(manager.next_timeout(), now + Manager::groups_pause_max);
}

// All that one pass of the fabric's process does has the same time, and says nothing about how long
// groups took.
TEST_F(SubnetManagerTest, GroupsRestOnceTimeHasPassed) {
  run();
  manager.set_members({{0xC001, {}}});
  for (int i = 0; i < 3; ++i) manager.expire(now);
  EXPECT_GT(manager.next_timeout(), now);
  now += Time::milliseconds(10);
  EXPECT_LE(manager.next_timeout(), now);
  manager.expire(now);
  manager.set_members({{0xC002, {}}});
  EXPECT_EQ(manager.next_timeout(), now + Time::milliseconds(10));
}

// Programs change groups without end. Collecting the members of all groups takes long, too.
TEST_F(SubnetManagerTest, MembersAreCollectedWhenGroupsAreSet) {
  run();
  manager.expire(now);  // sets the groups of the first sweep
  now += Time::milliseconds(1);
  manager.expire(now);
  now += Time::seconds(1);
  int collected = 0;
  const auto members = [&] {
    ++collected;
    return Members{{0xC001, {}}};
  };
  for (int pass = 1; pass <= 5; ++pass) {
    for (int i = 0; i < 1'000; ++i) manager.want_groups();
    EXPECT_EQ(collected, pass - 1);
    EXPECT_LE(manager.next_timeout(), now);
    manager.expire(now, members);
    EXPECT_EQ(collected, pass);
    for (int i = 0; i < 1'000; ++i) manager.want_groups();
    now += Time::milliseconds(10);  // that is how long it took
    manager.expire(now, members);
    EXPECT_EQ(collected, pass) << "it rests, although the members were the same as before";
    EXPECT_EQ(manager.next_timeout(), now + Time::milliseconds(10));
    now += Time::milliseconds(10);
  }
}

// Programs that are managers see the questions for managers.
TEST_F(SubnetManagerTest, ItsOwnKeyGoesToNodesAlone) {
  ManagerSettings keyed = settings();
  keyed.ports.key = 0x1234;
  manager = Manager(now, keyed, [](Graph&) {});
  set_other(60, 3, ManagerState::standby);
  manager.expire(now);
  int to_managers = 0, to_nodes = 0;
  while (const auto packet = manager.take_packet(now)) {
    wire::SubnetHeader header;
    std::memcpy(&header, packet->mad.data() + wire::subnet_header_offset, sizeof header);
    const bool is_shown = header_of(packet->mad).attribute_id == wire::attribute_sm_info;
    EXPECT_EQ(header.management_key, is_shown ? 0u : 0x1234u);
    (is_shown ? to_managers : to_nodes) += 1;
    manager.receive(now, answer_of(*packet, pair_answer(*packet)));
  }
  EXPECT_GT(to_managers, 0);
  EXPECT_GT(to_nodes, 0);
}

TEST_F(SubnetManagerTest, WaitsWhileThereIsAMaster) {
  set_other(60, 0, ManagerState::master);  // without precedence, but it is there already
  EXPECT_TRUE(run().empty());
  EXPECT_EQ(manager.state(), ManagerState::standby);
  for (int i = 0; i < 10; ++i) {
    now += Manager::poll_pause;
    run();
    EXPECT_EQ(manager.state(), ManagerState::standby);
  }
  // The master answers no more: first the poll is repeated, then the manager takes over.
  other = {};
  now += Manager::poll_pause;
  run();
  now += Time::milliseconds(1);
  run();
  EXPECT_EQ(manager.state(), ManagerState::master);
  EXPECT_TRUE(manager.is_up());
}

TEST_F(SubnetManagerTest, HandsOverToOneThatHasPrecedence) {
  run();
  ASSERT_TRUE(manager.is_up());
  set_other(60, 3, ManagerState::standby);
  manager.want_sweep(now);
  now += Time::seconds(1);
  EXPECT_EQ(run(), std::vector{ManagerControl::handover});
  EXPECT_EQ(manager.state(), ManagerState::standby);
  EXPECT_FALSE(manager.is_up());
  // It polls in standby, and rests in between.
  set_other(60, 3, ManagerState::master);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(manager.next_timeout(), now + Manager::poll_pause);
    now = manager.next_timeout();
    const auto before = manager.info().activity;
    run();
    EXPECT_EQ(manager.info().activity, before + 1);
  }
}

TEST_F(SubnetManagerTest, EqualPriorityGoesByGuid) {
  run();
  set_other(60, 0, ManagerState::standby);
  manager.want_sweep(now);
  now += Time::seconds(1);
  EXPECT_TRUE(run().empty());
  EXPECT_EQ(manager.state(), ManagerState::master);
  set_other(40, 0, ManagerState::standby);
  manager.want_sweep(now);
  now += Time::seconds(1);
  EXPECT_EQ(run(), std::vector{ManagerControl::handover});
}

// A stranger that claims precedence and never becomes master keeps the subnet without one only for
// a while.
TEST_F(SubnetManagerTest, PassesOverOneThatNeverBecomesMaster) {
  set_other(60, 15, ManagerState::standby);
  run();
  EXPECT_EQ(manager.state(), ManagerState::standby);
  for (int i = 0; i < Manager::polls_max + 1; ++i) {
    now += Manager::poll_pause;
    run();
  }
  EXPECT_EQ(manager.state(), ManagerState::master);
}

// A manager that looks for others knows no master.
TEST_F(SubnetManagerTest, ObeysNobodyBeforeItKnowsTheOthers) {
  set_other(60, 3, ManagerState::master);
  ASSERT_EQ(manager.state(), ManagerState::discovering);
  for (const ManagerControl each : {ManagerControl::disable, ManagerControl::handover,
                                    ManagerControl::standby, ManagerControl::discover}) {
    EXPECT_EQ(tell(each), static_cast<std::uint16_t>(Status::invalid_value));
    EXPECT_EQ(manager.state(), ManagerState::discovering);
  }
  run();
  EXPECT_EQ(manager.state(), ManagerState::standby);
}

TEST_F(SubnetManagerTest, WhoWasDisabledWorksAgainWithoutAMaster) {
  set_other(60, 3, ManagerState::master);
  run();
  ASSERT_EQ(tell(ManagerControl::disable), 0);
  for (int i = 0; i < 100; ++i) {
    now += Manager::poll_pause;
    run();
    ASSERT_EQ(manager.state(), ManagerState::not_active) << "the master is there";
  }
  set_other(60, 3, ManagerState::not_active);
  for (int i = 0; i < 2; ++i) {
    now += Manager::poll_pause;
    run();
  }
  EXPECT_EQ(manager.state(), ManagerState::master);
}

TEST_F(SubnetManagerTest, ObeysAsItsStateAllows) {
  const auto refused = static_cast<std::uint16_t>(Status::invalid_value);
  run();
  ASSERT_EQ(manager.state(), ManagerState::master);
  EXPECT_EQ(tell(ManagerControl::disable), refused);
  EXPECT_EQ(tell(ManagerControl::standby), refused);
  EXPECT_EQ(tell(ManagerControl::discover), refused);
  EXPECT_EQ(tell(static_cast<ManagerControl>(9)), refused);
  EXPECT_EQ(tell(ManagerControl::acknowledge), 0);
  set_other(60, 3, ManagerState::standby);
  manager.want_sweep(now);
  now += Time::seconds(1);
  run();
  ASSERT_EQ(manager.state(), ManagerState::standby);
  // Anybody can claim precedence, and has the subnet handed over.
  EXPECT_EQ(tell(ManagerControl::disable), refused);
  EXPECT_EQ(manager.state(), ManagerState::standby);
  set_other(60, 3, ManagerState::master);
  now += Manager::poll_pause;
  run();
  EXPECT_EQ(tell(ManagerControl::disable), 0);
  EXPECT_EQ(manager.state(), ManagerState::not_active);
  EXPECT_EQ(tell(ManagerControl::handover), refused);
  EXPECT_EQ(tell(ManagerControl::standby), 0);
  run();
  EXPECT_EQ(manager.state(), ManagerState::standby);
  EXPECT_EQ(tell(ManagerControl::handover), 0);
  EXPECT_EQ(manager.state(), ManagerState::master);
  other = {};
  EXPECT_EQ(run(), std::vector{ManagerControl::acknowledge});
  EXPECT_TRUE(manager.is_up());
}

TEST_F(SubnetManagerTest, TrapsAreRepressedAndMakeItSweep) {
  run();
  const auto before = manager.sweeps();
  Packet trap;
  trap.source = Lid(2);
  trap.destination = Lid(1);
  wire::MadHeader header;
  header.management_class = wire::subnet_class;
  header.class_version = 1;
  header.method = method_trap;
  header.transaction_id = 5;
  header.attribute_id = wire::attribute_notice;
  put_attribute(header, 0, trap.mad);
  wire::Notice notice;
  notice.generic_and_type = wire::Notice::generic | wire::Notice::urgent;
  notice.trap = wire::trap_link_state;
  put_attribute(notice, wire::subnet_data_offset, trap.mad);
  for (int i = 0; i < 10; ++i) manager.receive(now, trap);
  for (int i = 0; i < 10; ++i) {
    const auto answer = manager.take_packet(now);
    ASSERT_TRUE(answer);
    EXPECT_EQ(header_of(answer->mad).method, method_trap_repress);
    EXPECT_EQ(header_of(answer->mad).transaction_id, 5u);
    EXPECT_EQ(answer->destination, Lid(2));
  }
  now += Manager::sweep_pause;
  run();
  EXPECT_EQ(manager.sweeps(), before + 1);  // one for ten traps
  EXPECT_EQ(manager.take_notice()->trap, wire::trap_link_state);
}

// An answer needs the transaction ID of its question.
TEST_F(SubnetManagerTest, ForgedAnswersAreIgnored) {
  manager.expire(now);
  const auto question = manager.take_packet(now);
  ASSERT_TRUE(question);
  Packet forged = answer_of(*question, pair_answer(*question));
  auto header = header_of(forged.mad);
  Random random(3);
  for (int i = 0; i < 1'000; ++i) {
    header.transaction_id = random.next();
    put_attribute(header, 0, forged.mad);
    manager.receive(now, forged);
    EXPECT_FALSE(manager.take_packet(now));
  }
  manager.receive(now, answer_of(*question, pair_answer(*question)));
  EXPECT_TRUE(manager.take_packet(now));
}

TEST_F(SubnetManagerTest, GivesUpAnUnansweredQuestion) {
  manager.expire(now);
  int asked = 0;
  while (manager.take_packet(now)) ++asked;
  EXPECT_EQ(asked, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(manager.next_timeout(), now + Exchange::timeout);
    now = manager.next_timeout();
    manager.expire(now);
    EXPECT_TRUE(manager.take_packet(now));
  }
  now = manager.next_timeout();
  manager.expire(now);
  EXPECT_FALSE(manager.take_packet(now));
  EXPECT_EQ(manager.state(), ManagerState::discovering);
  EXPECT_GE(manager.next_timeout(), now + Time::seconds(1));
}

// Nodes that answer anything: new GUIDs at each question, 255 ports, links to themselves. The graph
// stays within its limits, and the sweep ends.
TEST_F(SubnetManagerTest, NonsenseIsBounded) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    Manager each(now, settings(), [](Graph&) {});
    each.expire(now);
    int sent = 0;
    for (; sent < 20'000; ++sent) {
      if (each.next_timeout() <= now) each.expire(now);
      const auto packet = each.take_packet(now);
      if (!packet) break;
      const auto header = header_of(packet->mad);
      AttributeData data;
      for (std::byte& byte : data) byte = static_cast<std::byte>(random.next());
      if (header.attribute_id == wire::attribute_node_info) {
        wire::NodeInfo info;
        info.node_type = static_cast<std::uint8_t>(random.below(5) == 0 ? random.below(256) : 2);
        info.ports = static_cast<std::uint8_t>(random.below(4) == 0 ? 255 : random.below(60));
        info.node_guid = info.port_guid = seed % 2 == 0 ? random.next() : 1 + random.below(20);
        info.local_port = static_cast<std::uint8_t>(random.below(70));
        data = data_of(info);
      } else if (header.attribute_id == wire::attribute_port_info) {
        data[35 - 3] = std::byte{0x14};  // active
      }
      each.receive(now, answer_of(*packet, data));
    }
    EXPECT_LT(sent, 20'000);
    EXPECT_LE(each.graph().nodes.size(), 200u);
    if (each.next_timeout() <= now) each.expire(now);
    EXPECT_GE(each.next_timeout(), now);
  }
}

}  // namespace
}  // namespace tulle::management::subnet

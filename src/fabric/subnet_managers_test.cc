// Managers of a fabric in virtual time, on topologies that are drawn from seeds.

#include "fabric/subnet_managers.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "fabric/built_test.h"
#include "fabric/managed_subnet_test.h"
#include "fabric/manager_routes.h"
#include "fabric/random_topology_test.h"

namespace tulle::fabric {
namespace {

using management::subnet::Manager;
using wire::ManagerState;

TEST(SubnetManagersTest, BringUpAnyTopology) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ManagerSettings settings;
    settings.lmc = seed % 4 == 0 ? 2 : 0;
    ManagedSubnet all(random_topology(seed), settings);
    all.settle();
    EXPECT_EQ(all.managers.size(), 1u);
    EXPECT_TRUE(all.managers.manager(0).is_up());
    EXPECT_EQ(all.managers.manager(0).errors(), 0u);
    EXPECT_TRUE(all.all_links_are(wire::PortState::active));
    all.expect_all_pairs(settings.lmc);
  }
}

TEST(SubnetManagersTest, BringUpNetworksInTiersAsFatTrees) {
  ManagedSubnet all(built(leaf_spine({.leaves = 4, .spines = 2, .hosts_per_leaf = 3})));
  all.settle();
  EXPECT_TRUE(all.all_links_are(wire::PortState::active));
  all.expect_all_pairs();
}

// An idle manager looks at the switches every ten seconds and does nothing else.
TEST(SubnetManagersTest, RestWhenNothingChanges) {
  ManagedSubnet all(built(leaf_spine({.leaves = 4, .spines = 2, .hosts_per_leaf = 3})));
  all.run_for(Time::seconds(25));  // the switches' first note of a change is taken back
  const auto before = all.managers.manager(0).info().activity;
  const auto sweeps = all.managers.manager(0).sweeps();
  all.run_for(Time::seconds(100));
  EXPECT_EQ(all.managers.manager(0).sweeps(), sweeps);
  EXPECT_EQ(all.managers.manager(0).info().activity - before, 60u);
}

TEST(SubnetManagersTest, CablesAreCutAndJoined) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ManagedSubnet all(random_topology(seed));
    all.run_for(Time::seconds(30));
    std::vector<std::uint16_t> lids;
    const std::uint32_t nodes = all.subnet.topology().nodes();
    for (std::uint32_t node = 0; node < nodes; ++node) lids.push_back(all.lid(node));
    const auto links = static_cast<std::uint32_t>(all.subnet.topology().links.size());
    std::set<std::uint32_t> cut;
    for (int i = 0; i < 3; ++i) cut.insert(static_cast<std::uint32_t>(all.random.below(links)));
    for (const std::uint32_t link : cut) {
      all.subnet.set_cut(all.now, link, true);
      all.run_for(Time::seconds(2));
    }
    for (const std::uint32_t link : cut) {
      all.subnet.set_cut(all.now, link, false);
      all.run_for(Time::seconds(2));
    }
    all.run_for(Time::seconds(30));
    EXPECT_TRUE(all.all_links_are(wire::PortState::active));
    all.expect_all_pairs();
    for (std::uint32_t node = 0; node < nodes; ++node) EXPECT_EQ(all.lid(node), lids[node]);
  }
}

TEST(SubnetManagersTest, LostAnswersAreAskedForAgain) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ManagedSubnet all(random_topology(seed));
    all.random = Random(seed);
    all.loss = 0.2;
    all.run_for(Time::seconds(120));
    all.loss = 0;
    all.run_for(Time::seconds(30));
    EXPECT_TRUE(all.all_links_are(wire::PortState::active));
    EXPECT_EQ(all.managers.manager(0).errors(), 0u);
    all.expect_all_pairs();
  }
}

// Two hosts and a cable: the manager is at the host whose GUID is the highest.
TEST(SubnetManagersTest, TwoHostsNeedNoSwitch) {
  Topology pair;
  pair.hosts = 2;
  pair.ports = {1, 1};
  pair.links.push_back({0, 1, 0, 0, 100'000'000'000, Time::zero()});
  ManagedSubnet all(pair);
  all.settle();
  ASSERT_EQ(all.managers.size(), 1u);
  EXPECT_EQ(all.managers.node(0), 1u);
  EXPECT_TRUE(all.all_links_are(wire::PortState::active));
  EXPECT_NE(all.lid(0), all.lid(1));
  EXPECT_NE(all.lid(0), 0);
  all.subnet.set_cut(all.now, 0, true);
  all.run_for(Time::seconds(1));
  all.subnet.set_cut(all.now, 0, false);
  all.run_for(Time::seconds(1));
  EXPECT_TRUE(all.all_links_are(wire::PortState::active));
  // A program's manager at its port makes it rest.
  all.managers.set_program(all.now, 1, true);
  EXPECT_EQ(all.managers.manager(0).state(), ManagerState::not_active);
  EXPECT_TRUE(all.managers.next_timeout().is_never());
  all.managers.set_program(all.now, 1, false);
  all.settle();
  EXPECT_TRUE(all.managers.manager(0).is_up());
}

// Sets a table of partitions at a host's port, as a program of another host may try. Returns true
// if that is answered.
bool sets_partitions(ManagedSubnet& all, std::uint32_t from, std::uint32_t to, std::uint64_t key) {
  const auto& up = all.subnet.wiring().peer(from, 0);
  const auto& down = all.subnet.wiring().peer(to, 0);
  EXPECT_EQ(up.node, down.node);
  management::subnet::Exchange exchange(9);
  exchange.set_keys(key, key);
  exchange.ask(management::subnet::set_question(
      management::subnet::Route().by(1).by(static_cast<std::uint8_t>(down.port + 1)),
      wire::attribute_pkey_table, 0, management::subnet::AttributeData{}));
  all.subnet.send(all.now, from, 1, *exchange.take_packet(all.now));
  bool has_come = false;
  all.subnet.run(all.now);
  while (const auto arrival = all.subnet.take_arrival()) {
    has_come = has_come || exchange.receive(arrival->packet).has_value();
    all.managers.receive(all.now, *arrival);
  }
  return has_come;
}

// Only the manager sets nodes up. Attempts of others do not make it lose its key in time.
TEST(SubnetManagersTest, AKeyKeepsOthersOut) {
  ManagerSettings settings;
  settings.ports.key = 0x1234;
  ManagedSubnet all(built(single_switch({.hosts = 3})), settings);
  all.settle();
  EXPECT_TRUE(all.managers.manager(0).is_up());
  const auto pkey = [&] { return static_cast<std::uint16_t>(all.subnet.node(1).pkeys(1)[0]); };
  ASSERT_EQ(pkey(), 0xFFFF);
  for (int second = 0; second < 300; ++second) {
    EXPECT_FALSE(sets_partitions(all, 0, 1, second % 2 == 0 ? 0 : 0x4321));
    all.run_for(Time::seconds(1));
  }
  EXPECT_EQ(pkey(), 0xFFFF);
  for (std::uint32_t node = 0; node < 4; ++node) {
    const auto& info = all.subnet.node(node).port_info(node < 3 ? 1 : 0);
    EXPECT_EQ(info.management_key, 0x1234u);
    EXPECT_EQ(wire::key_protection_of(info), 1u);
  }
  EXPECT_GE(all.subnet.node(1).port_info(1).management_key_violations, 300u);
  EXPECT_TRUE(sets_partitions(all, 0, 1, 0x1234));
  EXPECT_EQ(pkey(), 0);
}

// A port shows the key when it was cut off from the manager for long. All ports get another one
// then.
TEST(SubnetManagersTest, AKeyThatWasShownIsReplaced) {
  for (const bool is_switch : {false, true}) {
    SCOPED_TRACE(testing::Message() << "switch " << is_switch);
    ManagerSettings settings;
    settings.ports.key = 0x1234;
    settings.draw = [] { return std::uint64_t{0x5678}; };
    ManagedSubnet all(built(single_switch({.hosts = 3})), settings);
    all.run_for(Time::seconds(25));
    const std::uint32_t node = is_switch ? 3 : 1;
    const std::uint8_t port = is_switch ? 0 : 1;
    wire::PortInfo shown = all.subnet.node(node).port_info(port);
    std::vector<std::uint32_t> parts = parts_of(all.subnet.topology());
    all.subnet.end_leases(parts, parts[node], static_cast<std::uint16_t>(shown.master_sm_lid + 1));
    EXPECT_EQ(wire::key_protection_of(all.subnet.node(node).port_info(port)), 1u) << "of another";
    all.subnet.end_leases(parts, parts[node], shown.master_sm_lid);
    EXPECT_EQ(wire::key_protection_of(all.subnet.node(node).port_info(port)), 0u);
    all.run_for(Time::seconds(25));
    for (std::uint32_t each = 0; each < 4; ++each) {
      const auto& info = all.subnet.node(each).port_info(each < 3 ? 1 : 0);
      EXPECT_EQ(info.management_key, 0x5678u);
      EXPECT_EQ(wire::key_protection_of(info), 1u);
    }
    EXPECT_EQ(all.managers.manager(0).errors(), 0u);
  }
}

// Networks without a link between them have different keys.
TEST(SubnetManagersTest, EachNetworkHasAKey) {
  ManagerSettings settings;
  settings.ports.key = 1;
  std::uint64_t drawn = 1;
  settings.draw = [&] { return ++drawn; };
  ManagedSubnet all(built(side_by_side(built(single_switch({.hosts = 2})), 3)), settings);
  all.settle();
  std::set<std::uint64_t> keys;
  for (std::uint32_t host = 0; host < 6; ++host) {
    keys.insert(all.subnet.node(host).port_info(1).management_key);
  }
  EXPECT_EQ(keys.size(), 3u);
}

// A manager that does not come back keeps the next one out until its key's lease ends.
TEST(SubnetManagersTest, AnotherManagerTakesOverAfterTheLease) {
  const Topology topology = built(single_switch({.hosts = 3}));
  Subnet subnet(Time::seconds(1), topology);
  Time now = Time::seconds(1);
  for (const std::uint64_t key : {5u, 6u, 0u}) {
    ManagerSettings settings;
    settings.ports.key = key;
    SubnetManagers managers(now, subnet, settings);
    for (const Time end = now + Time::seconds(100); now < end; now += Time::milliseconds(50)) {
      settle(now, subnet, managers, [] { return false; });
    }
    EXPECT_TRUE(managers.manager(0).is_up());
    EXPECT_EQ(managers.manager(0).errors(), 0u);
    for (std::uint32_t host = 0; host < 3; ++host) {
      EXPECT_EQ(subnet.node(host).port_info(1).management_key, key);
    }
  }
}

// A program's manager at the port of the fabric's own finds ports without a key.
TEST(SubnetManagersTest, AManagerThatRestsHasTakenItsKeyBack) {
  Topology pair;
  pair.hosts = 2;
  pair.ports = {1, 1};
  pair.links.push_back({0, 1, 0, 0, 100'000'000'000, Time::zero()});
  ManagerSettings settings;
  settings.ports.key = 7;
  ManagedSubnet all(pair, settings);
  all.settle();
  EXPECT_EQ(all.subnet.node(0).port_info(1).management_key, 7u);
  all.managers.set_program(all.now, 1, true);
  all.settle();
  for (std::uint32_t host = 0; host < 2; ++host) {
    EXPECT_EQ(all.subnet.node(host).port_info(1).management_key, 0u);
    EXPECT_EQ(wire::key_protection_of(all.subnet.node(host).port_info(1)), 0u);
  }
  EXPECT_TRUE(all.managers.next_timeout().is_never());
  all.managers.set_program(all.now, 1, false);
  all.settle();
  EXPECT_EQ(all.subnet.node(0).port_info(1).management_key, 7u);
}

// Two subnets that a cable joins have two masters for a moment. The one with precedence remains.
class TwoMasters : public testing::TestWithParam<std::uint64_t> {};

TEST_P(TwoMasters, OneHandsOver) {
  Topology topology =
      built(from_csv("a,b,gbps,delay_ns\n0,4,100,1\n1,4,100,1\n2,5,100,1\n"
                     "3,5,100,1\n4,5,100,1\n",
                     "test"));
  Subnet subnet(Time::seconds(1), topology);
  subnet.open_switch(4);
  subnet.open_switch(5);
  Time now = Time::seconds(1);
  std::vector<std::unique_ptr<Manager>> managers;
  for (const std::uint32_t node : {4u, 5u}) {
    ManagerSettings settings;
    settings.port_guid = subnet.node(node).port_guid(0);
    settings.seed = node;
    settings.ports.key = GetParam() == 0 ? 0 : GetParam() + node;
    subnet.set_manager(now, node, 0, true);
    managers.push_back(std::make_unique<Manager>(now, settings, route_subnet));
  }
  const auto run_until = [&](Time end) {
    for (; now < end; now += Time::milliseconds(50)) {
      for (bool is_moving = true; is_moving;) {
        is_moving = false;
        for (std::uint32_t i = 0; i < 2; ++i) {
          managers[i]->expire(now);
          while (const auto packet = managers[i]->take_packet(now)) {
            subnet.send(now, 4 + i, 0, *packet);
            is_moving = true;
          }
        }
        subnet.run(now);
        while (const auto arrival = subnet.take_arrival()) {
          managers[arrival->host - 4]->receive(now, arrival->packet);
        }
      }
    }
  };
  subnet.set_cut(now, 4, true);
  run_until(Time::seconds(30));
  EXPECT_TRUE(managers[0]->is_up());
  EXPECT_TRUE(managers[1]->is_up());
  subnet.set_cut(now, 4, false);
  run_until(Time::seconds(60));
  EXPECT_TRUE(managers[0]->is_up());
  EXPECT_EQ(managers[1]->state(), ManagerState::standby);
  EXPECT_EQ(managers[0]->graph().nodes.size(), 6u);
  for (std::uint32_t host = 0; host < 4; ++host) {
    EXPECT_EQ(subnet.node(host).state(1), wire::PortState::active);
  }
  subnet.set_cut(now, 4, true);
  run_until(Time::seconds(200));
  EXPECT_TRUE(managers[1]->is_up());
  EXPECT_EQ(managers[1]->errors(), 0u);
  for (std::uint32_t host = 2; host < 4; ++host) {
    EXPECT_EQ(subnet.node(host).port_info(1).management_key, GetParam() == 0 ? 0 : GetParam() + 5);
  }
}
INSTANTIATE_TEST_SUITE_P(Keys, TwoMasters, testing::Values(0, 100));

// The packets of a group reach each receiver once, on whatever topology.
TEST(SubnetManagersTest, GroupsHaveTrees) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Topology topology = random_topology(seed);
    Subnet subnet(Time::seconds(1), topology);
    Time now = Time::seconds(1);
    ManagerSettings settings;
    const std::uint32_t place = topology.hosts;
    settings.port_guid = subnet.node(place).port_guid(0);
    subnet.open_switch(place);
    Manager manager(now, settings, route_subnet);
    const auto settle = [&] {
      while (manager.next_timeout() <= now) {
        manager.expire(now);
        while (const auto packet = manager.take_packet(now)) subnet.send(now, place, 0, *packet);
        subnet.run(now);
        while (const auto arrival = subnet.take_arrival()) manager.receive(now, arrival->packet);
      }
    };
    settle();
    Random random(seed);
    std::set<std::uint32_t> members;
    std::vector<std::uint64_t> guids;
    for (int i = 0; i < 6; ++i)
      members.insert(static_cast<std::uint32_t>(random.below(topology.hosts)));
    guids.reserve(members.size());
    for (const std::uint32_t host : members) guids.push_back(subnet.node(host).port_guid(1));
    constexpr Lid group(0xC005);
    // Half of the time, the first member only sends.
    const bool only_sends = seed % 2 == 0 && guids.size() > 1;
    management::subnet::GroupMembers of;
    of.senders.assign(guids.begin(), guids.begin() + (only_sends ? 1 : 0));
    of.receivers.assign(guids.begin() + (only_sends ? 1 : 0), guids.end());
    manager.set_members({{group.value, std::move(of)}});
    settle();
    // A member sends: each switch passes the packet on to all ports of the tree but the one where
    // it came in.
    std::map<std::uint32_t, int> copies;
    const auto& first = subnet.wiring().peer(*members.begin(), 0);
    EXPECT_EQ(subnet.node(first.node)
                  .forwards_multicast(group, static_cast<std::uint8_t>(first.port + 1)),
              !only_sends);
    std::vector<std::pair<std::uint32_t, std::uint8_t>> queue = {
        {first.node, static_cast<std::uint8_t>(first.port + 1)}};
    for (std::size_t next = 0; next < queue.size() && next < 1'000; ++next) {
      const auto [node, in] = queue[next];
      for (std::uint8_t port = 1; port <= subnet.node(node).ports(); ++port) {
        if (port == in || !subnet.node(node).forwards_multicast(group, port)) continue;
        const auto& peer = subnet.wiring().peer(node, static_cast<std::uint16_t>(port - 1));
        if (topology.is_host(peer.node)) {
          ++copies[peer.node];
        } else {
          queue.push_back({peer.node, static_cast<std::uint8_t>(peer.port + 1)});
        }
      }
    }
    EXPECT_LE(queue.size(), topology.switches);
    EXPECT_EQ(copies.size(), members.size() - 1);
    for (const auto& [host, count] : copies) {
      EXPECT_TRUE(members.contains(host));
      EXPECT_EQ(count, 1);
    }
    manager.set_members({});
    settle();
    EXPECT_FALSE(subnet.node(first.node)
                     .forwards_multicast(group, static_cast<std::uint8_t>(first.port + 1)));
  }
}

// Each of the networks that lie side by side has a manager of its own.
TEST(SubnetManagersTest, EachNetworkHasAManager) {
  auto one = built(single_switch({.hosts = 2}));
  ManagedSubnet all(built(side_by_side(one, 3)));
  all.settle();
  ASSERT_EQ(all.managers.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(all.managers.manager(i).is_up());
  EXPECT_TRUE(all.all_links_are(wire::PortState::active));
}

}  // namespace
}  // namespace tulle::fabric

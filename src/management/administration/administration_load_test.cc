// What programs cost that ask or change much: it is counted in records, and in turns.

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "management/administration/administration_test.h"

namespace tulle::management::administration {
namespace {

class AdministrationLoadTest : public AdministrationTest {
 protected:
  static constexpr std::uint64_t trusted = Administration::trusted_key;
  static constexpr std::uint16_t waits = 0xFFFF;  // no answer yet

  wire::MemberRecord group(std::size_t number, std::uint32_t member) const {
    auto record = group_question(guid(member));
    record.group_gid[14] = static_cast<std::uint8_t>(number >> 8);
    record.group_gid[15] = static_cast<std::uint8_t>(number);
    return record;
  }
  // Returns the record of the group, unless it has been refused.
  std::optional<wire::MemberRecord> join(std::size_t number, std::uint32_t member) {
    const Reply reply = ask(question(method_set, wire::attribute_member_record, create_mask,
                                     group(number, member), member));
    if (reply.status != 0) return std::nullopt;
    return record_of<wire::MemberRecord>(reply.packet);
  }
  std::uint16_t leave(std::size_t number, std::uint32_t member) {
    return ask(question(wire::method_delete, wire::attribute_member_record, join_mask,
                        group(number, member), member))
        .status;
  }
  // All adapters are members of as many groups.
  void make_groups(std::size_t count) {
    for (std::size_t number = 0; number < count; ++number) {
      const std::uint32_t first = 1 + static_cast<std::uint32_t>(number % adapters);
      ASSERT_TRUE(join(number, first)) << number;
      for (std::uint32_t each = 1; each <= adapters; ++each) ASSERT_TRUE(join(number, each));
    }
  }
  // Asks for a member whom there is not among all of them.
  std::uint16_t ask_in_vain(std::uint32_t asker) {
    wire::MemberRecord none;
    none.qkey = 99;
    return ask(question(method_get, wire::attribute_member_record, MemberComponents::qkey, none,
                        asker, trusted))
        .status;
  }
  template <typename Record>
  std::uint16_t get(std::uint16_t attribute, std::uint64_t mask, const Record& record,
                    std::uint32_t asker = 1, std::uint64_t key = 0) {
    return ask(question(method_get, attribute, mask, record, asker, key)).status;
  }
  std::size_t answers() {
    std::size_t count = 0;
    while (administration.take_packet(now)) ++count;
    return count;
  }
  static std::uint64_t guid(std::uint32_t node) { return node == 0 ? switch_guid : node; }
};

// The fabric's process lets administration follow the manager before each datagram.
TEST_F(AdministrationLoadTest, NoJoinCollectsTheMembersOfAll) {
  bring_up();
  const auto work = [&] {
    for (int i = 0; i < 4; ++i) {
      administration.follow(manager);
      run_manager(manager);
      now += Time::milliseconds(200);
    }
  };
  work();
  const int before = members_collected;
  for (std::size_t number = 0; number < 50; ++number) {
    for (std::uint32_t member = 1; member <= adapters; ++member) {
      administration.follow(manager);
      ASSERT_TRUE(join(number, member));
    }
  }
  administration.follow(manager);
  EXPECT_EQ(members_collected, before);
  work();
  EXPECT_EQ(members_collected, before + 1);
  for (std::uint8_t port = 1; port <= adapters; ++port) {
    EXPECT_TRUE(nodes[0].forwards_multicast(Lid(Groups::first_lid + 50), port));
  }
  // Who is a member already changes nothing.
  const std::uint64_t changes = administration.groups().changes();
  ASSERT_TRUE(join(7, 1));
  EXPECT_EQ(administration.groups().changes(), changes);
}

// Switches have tables up to the highest LID.
TEST_F(AdministrationLoadTest, AGroupGetsTheLowestLidThatIsFree) {
  bring_up();
  const auto lid_of = [&](std::size_t number) { return std::uint16_t{join(number, 1)->lid}; };
  for (std::uint16_t i = 1; i <= 20; ++i) EXPECT_EQ(lid_of(i), Groups::first_lid + i);
  for (const std::size_t ended : {12, 3, 7}) EXPECT_EQ(leave(ended, 1), 0);
  for (const int next : {3, 7, 12, 21}) {
    EXPECT_EQ(lid_of(100 + static_cast<std::size_t>(next)), Groups::first_lid + next);
  }
}

TEST_F(AdministrationLoadTest, AGroupThatHasEndedIsNoneOfItsMakers) {
  bring_up();
  for (std::size_t i = 0; i < Groups::groups_of_port_max; ++i) ASSERT_TRUE(join(i, 1));
  EXPECT_FALSE(join(2'000, 1));
  EXPECT_EQ(leave(5, 1), 0);
  EXPECT_TRUE(join(2'000, 1));
  EXPECT_FALSE(join(2'001, 1));
  // Those of a port that is gone have ended, too.
  pull(1);
  manager.want_sweep(now);
  for (int i = 0; i < 5; ++i) {
    now += Time::milliseconds(200);
    run_manager(manager);
  }
  administration.follow(manager);
  EXPECT_EQ(administration.groups().members().size(), 1u);
  for (std::size_t i = 0; i < Groups::groups_of_port_max; ++i) ASSERT_TRUE(join(i, 2));
  EXPECT_FALSE(join(2'000, 2));
}

// A group ends with its last full member, though others have joined.
TEST_F(AdministrationLoadTest, FullMembersAreCounted) {
  bring_up();
  ASSERT_TRUE(join(1, 1));
  ASSERT_TRUE(join(1, 2));
  ASSERT_TRUE(join(1, 2)) << "once more";
  auto sender = group(1, 3);
  sender.scope_and_join_state = wire::MemberRecord::send_only_non_member;
  EXPECT_EQ(ask(question(method_set, wire::attribute_member_record, join_mask, sender, 3)).status,
            0);
  EXPECT_EQ(leave(1, 1), 0);
  EXPECT_TRUE(administration.groups().find(sender.group_gid));
  EXPECT_EQ(leave(1, 2), 0);
  EXPECT_FALSE(administration.groups().find(sender.group_gid));
}

// Questions for members look at many of them. Each turn looks at some, and few wait.
TEST_F(AdministrationLoadTest, QueriesTakeTurns) {
  bring_up();
  make_groups(600);  // 1,800 members, and the group of broadcasts
  next_turn();
  EXPECT_EQ(ask_in_vain(1), wire::administration_no_records);
  for (std::size_t i = 0; i < Administration::searches_of_port_max; ++i) {
    EXPECT_EQ(ask_in_vain(1), waits) << i;
  }
  EXPECT_EQ(ask_in_vain(1), wire::administration_no_resources);
  EXPECT_EQ(ask_in_vain(2), waits) << "one port takes no other's place";
  administration.expire(now);
  EXPECT_EQ(answers(), 0u) << "no time has passed";
  for (std::size_t i = 0; i < Administration::searches_of_port_max + 1; ++i) {
    EXPECT_TRUE(has_searches());
    next_turn();
    EXPECT_EQ(answers(), 1u) << "each turn has records for one of these";
  }
  EXPECT_FALSE(has_searches());
}

// A question that names what it asks for is answered at once, however much others ask for.
TEST_F(AdministrationLoadTest, WhatIsNamedDoesNotWait) {
  bring_up();
  make_groups(600);
  wire::ServiceRecord service;
  service.id = 5;
  service.gid = gid(1);
  service.lease_seconds = wire::ServiceRecord::for_ever;
  ASSERT_EQ(set_service(service, 1), 0);
  next_turn();
  while (ask_in_vain(1) != waits) {
  }
  wire::NodeRecord node;
  node.lid = lid(2);
  EXPECT_EQ(get(wire::attribute_node_record, 1, node), 0);
  wire::PortInfoRecord port;
  port.lid = lid(0);
  port.port = 3;
  EXPECT_EQ(get(wire::attribute_port_info_record, 3, port), 0);
  port.port = 4;
  EXPECT_EQ(get(wire::attribute_port_info_record, 3, port), wire::administration_no_records);
  wire::SwitchInfoRecord info;
  info.lid = lid(0);
  EXPECT_EQ(get(wire::attribute_switch_info_record, 1, info), 0);
  info.lid = lid(1);
  EXPECT_EQ(get(wire::attribute_switch_info_record, 1, info), wire::administration_no_records);
  wire::LinearTableRecord table;
  table.lid = lid(0);
  EXPECT_EQ(get(wire::attribute_linear_table_record, 3, table), 0);
  table.block = 1;
  EXPECT_EQ(get(wire::attribute_linear_table_record, 3, table), wire::administration_no_records);
  wire::LinkRecord link;
  link.from_lid = lid(0);
  link.from_port = 2;
  EXPECT_EQ(get(wire::attribute_link_record, 3, link), 0);
  link.from_port = 0;
  EXPECT_EQ(get(wire::attribute_link_record, 3, link), wire::administration_no_records);
  EXPECT_EQ(get(wire::attribute_sm_info_record, 0, wire::SmInfoRecord{}), 0);
  EXPECT_EQ(get(wire::attribute_service_record, 7, service), 0);
  constexpr std::uint64_t both = MemberComponents::group_gid | MemberComponents::port_gid;
  EXPECT_EQ(get(wire::attribute_member_record, both, group(7, 2), 1, trusted), 0);
  EXPECT_EQ(get(wire::attribute_member_record, both, group(7, 0), 1, trusted),
            wire::administration_no_records)
      << "the switch is no member";
  EXPECT_EQ(get(wire::attribute_member_record, MemberComponents::group_gid, group(7, 2)), 0);
}

// Questions for nodes, ports, links and tables look at few records here, and are many.
TEST_F(AdministrationLoadTest, QueriesOfAllKindsHaveABudget) {
  bring_up();
  const auto expect_budget = [&](std::uint16_t attribute, const auto& record) {
    SCOPED_TRACE(attribute);
    for (int i = 0; i < 10; ++i) {
      next_turn();
      answers();
    }
    ASSERT_FALSE(has_searches());
    constexpr std::size_t least = adapters + 1;  // that each looks at
    std::size_t asked = 0;
    while (get(attribute, ~std::uint64_t{1}, record) != waits) {
      ASSERT_LE(++asked, Administration::records_in_a_turn / least);
    }
    EXPECT_GT(asked, 10u);
  };
  expect_budget(wire::attribute_node_record, wire::NodeRecord{});
  expect_budget(wire::attribute_port_info_record, wire::PortInfoRecord{});
  expect_budget(wire::attribute_switch_info_record, wire::SwitchInfoRecord{});
  expect_budget(wire::attribute_linear_table_record, wire::LinearTableRecord{});
  expect_budget(wire::attribute_link_record, wire::LinkRecord{});
}

TEST_F(AdministrationLoadTest, QueriesForServicesHaveABudget) {
  bring_up();
  wire::ServiceRecord service;
  service.lease_seconds = wire::ServiceRecord::for_ever;
  for (std::uint32_t port = 0; port <= adapters; ++port) {
    for (std::uint64_t i = 0; i < Services::services_of_port_max; ++i) {
      service.id = i;
      service.gid = gid(guid(port));
      ASSERT_EQ(set_service(service, port), 0);
    }
  }
  constexpr std::uint64_t name = 1 << 6, id = 1;
  wire::ServiceRecord none;
  none.name[0] = 'x';
  next_turn();
  static_assert(Services::services_of_port_max * (adapters + 1) ==
                Administration::records_in_a_turn);
  EXPECT_EQ(get(wire::attribute_service_record, name, none), wire::administration_no_records);
  EXPECT_EQ(get(wire::attribute_service_record, name, none), waits);
  next_turn();
  EXPECT_EQ(answers(), 1u);
  next_turn();
  // Those of one ID are the only ones that such a question looks at.
  none.id = 7;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(get(wire::attribute_service_record, id | name, none),
              wire::administration_no_records);
  }
  const auto found = table<wire::ServiceRecord>(
      question(wire::method_get_table, wire::attribute_service_record, id, none));
  EXPECT_EQ(found.size(), adapters + 1);
}

// A search that is interrupted finds the same as one that is not.
TEST_F(AdministrationLoadTest, ALongTableIsCollectedInTurns) {
  bring_up();
  make_groups(1'000);  // 3,000 members, and the group of broadcasts
  next_turn();
  const Packet all = question(wire::method_get_table, wire::attribute_member_record, 0,
                              wire::MemberRecord{}, 1, trusted);
  EXPECT_EQ(ask(all).status, waits);
  next_turn();
  EXPECT_FALSE(has_searches());
  std::set<std::pair<wire::GidBytes, wire::GidBytes>> found;
  for (const auto& record : table<wire::MemberRecord>(all)) {
    EXPECT_TRUE(found.emplace(record.group_gid, record.port_gid).second);
  }
  EXPECT_EQ(found.size(), 3'001u);
  // A stranger sees a group once.
  next_turn();
  EXPECT_EQ(
      table<wire::MemberRecord>(question(wire::method_get_table, wire::attribute_member_record, 0,
                                         wire::MemberRecord{}, 2))
          .size(),
      1'001u);
}

// Members come and go while a search waits.
TEST_F(AdministrationLoadTest, ASearchGoesOnWhateverHasEnded) {
  bring_up();
  make_groups(1'000);
  next_turn();
  const Packet all = question(wire::method_get_table, wire::attribute_member_record, 0,
                              wire::MemberRecord{}, 1, trusted);
  EXPECT_EQ(ask(all).status, waits);
  for (std::size_t number = 100; number < 1'000; ++number) {
    for (std::uint32_t member = 1; member <= adapters; ++member) {
      EXPECT_EQ(leave(number, member), 0);
    }
  }
  next_turn();
  EXPECT_FALSE(has_searches());
  const std::size_t found = table<wire::MemberRecord>(all).size();
  EXPECT_EQ(found, Administration::records_in_a_turn + 1) << "and the group of broadcasts";
}

// Leases end one by one, and none of them makes administration look at all services.
TEST_F(AdministrationLoadTest, LeasesEndInTheirOrder) {
  bring_up();
  wire::ServiceRecord service;
  service.gid = gid(1);
  const auto set = [&](std::uint64_t id, std::uint32_t seconds) {
    service.id = id;
    service.lease_seconds = seconds;
    EXPECT_EQ(set_service(service, 1), 0);
  };
  const auto has = [&](std::uint64_t id) {
    service.id = id;
    return get(wire::attribute_service_record, 7, service) == 0;
  };
  set(1, 30);
  set(2, 10);
  set(3, 20);
  set(4, wire::ServiceRecord::for_ever);
  set(2, 40);  // renewed
  EXPECT_EQ(administration.next_timeout(), now + Time::seconds(20));
  now += Time::seconds(20);
  administration.expire(now);
  EXPECT_TRUE(has(1) && has(2) && !has(3) && has(4));
  service.id = 1;
  EXPECT_EQ(end_service(service, 1), 0);
  EXPECT_EQ(administration.next_timeout(), now + Time::seconds(20));
  now += Time::seconds(20);
  administration.expire(now);
  EXPECT_TRUE(!has(1) && !has(2) && has(4));
  EXPECT_TRUE(administration.next_timeout().is_never());
}

}  // namespace
}  // namespace tulle::management::administration

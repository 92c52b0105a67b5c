// What a port may have of subnet administration, and what is its own there.

#include <gtest/gtest.h>

#include "management/administration/administration_test.h"

namespace tulle::management::administration {
namespace {

// A port joins and leaves groups for itself alone. Another could end a group by its last member.
TEST_F(AdministrationTest, APortsMembershipsAreItsOwn) {
  bring_up();
  const auto record = group_question(1);
  const auto join = [&](std::uint32_t asker, std::uint64_t key = 0) {
    return ask(question(method_set, wire::attribute_member_record, create_mask, record, asker, key))
        .status;
  };
  const auto leave = [&](std::uint32_t asker, std::uint64_t key = 0) {
    return ask(question(wire::method_delete, wire::attribute_member_record, join_mask, record,
                        asker, key))
        .status;
  };
  EXPECT_EQ(join(2), wire::administration_bad_request);
  EXPECT_FALSE(administration.groups().find(record.group_gid));
  EXPECT_EQ(join(1), 0);
  EXPECT_EQ(leave(2), wire::administration_bad_request);
  // Everybody knows the usual SM_Key, which is no secret.
  EXPECT_EQ(leave(2, Administration::trusted_key), wire::administration_bad_request);
  EXPECT_TRUE(administration.groups().find(record.group_gid));
  EXPECT_EQ(leave(1), 0);
  EXPECT_FALSE(administration.groups().find(record.group_gid));
}

TEST_F(AdministrationTest, APortsServicesAreItsOwn) {
  bring_up();
  wire::ServiceRecord service;
  service.id = 5;
  service.gid = gid(1);
  service.lease_seconds = wire::ServiceRecord::for_ever;
  service.name[0] = 'a';
  EXPECT_EQ(set_service(service, 2), wire::administration_bad_request);
  EXPECT_EQ(set_service(service, 1), 0);
  wire::ServiceRecord other = service;
  other.name[0] = 'b';
  EXPECT_EQ(set_service(other, 2), wire::administration_bad_request) << "zero is no key";
  EXPECT_EQ(end_service(service, 2), wire::administration_bad_request);
  const auto found = ask(question(method_get, wire::attribute_service_record, 1, service, 3));
  ASSERT_EQ(found.status, 0);
  EXPECT_EQ(record_of<wire::ServiceRecord>(found.packet).name[0], 'a');
  // Who has its key may change and end it from elsewhere.
  service.key = other.key = {1, 2, 3};
  EXPECT_EQ(set_service(service, 1), 0);
  other.key[0] = 2;
  EXPECT_EQ(set_service(other, 2), wire::administration_bad_request);
  other.key[0] = 1;
  EXPECT_EQ(set_service(other, 2), 0);
  EXPECT_EQ(end_service(other, 3), 0);
  EXPECT_EQ(end_service(other, 1), wire::administration_no_records);
}

TEST_F(AdministrationTest, TheManagersSecretKeyMayChangeAll) {
  auto settings = manager_settings();
  settings.shares_keys = true;
  settings.manager_key = settings.ports.key = 0x1234;
  Manager secret{now, settings, route_star};
  run_manager(secret);
  ASSERT_TRUE(secret.is_up());
  administration.follow(secret);
  const auto member = group_question(1);
  const auto join = [&](std::uint64_t key) {
    return ask(question(method_set, wire::attribute_member_record, create_mask, member, 2, key))
        .status;
  };
  EXPECT_EQ(join(0x1235), wire::administration_bad_request);
  EXPECT_EQ(join(0x1234), 0);
  wire::ServiceRecord service;
  service.gid = gid(1);
  service.lease_seconds = wire::ServiceRecord::for_ever;
  EXPECT_EQ(set_service(service, 2, 0x1235), wire::administration_bad_request);
  EXPECT_EQ(set_service(service, 2, 0x1234), 0);
  EXPECT_EQ(end_service(service, 3, 0x1234), 0);
}

// A port that asks for tables without reading them costs a bounded number of them.
TEST_F(AdministrationTest, TablesUnderWayAreBounded) {
  bring_up();
  for (std::size_t i = 0; i < Administration::tables_max + 10; ++i) {
    administration.receive(now, question(wire::method_get_table, wire::attribute_path_record, 0,
                                         wire::PathRecord{}, i % 4));
    next_turn();
  }
  std::size_t refused = 0;
  while (const auto packet = administration.take_packet(now)) {
    refused += header_of(packet->mad).status == 0x0100;
  }
  EXPECT_EQ(refused, 10u);
  for (int i = 0; i < 20; ++i) {
    now += RmppSender::patience;
    administration.expire(now);
    while (administration.take_packet(now)) {
    }
  }
  EXPECT_TRUE(administration.next_timeout().is_never());
}

// A subscriber that does not answer loses its own reports, and no other's.
TEST_F(AdministrationTest, APortHasAShareOfTheReports) {
  bring_up();
  const wire::InformInfo wanted = all_notices();
  EXPECT_EQ(ask(question(method_set, wire::attribute_inform_info, 0, wanted, 1)).status, 0);
  const auto make_groups = [&](std::size_t count) {
    std::size_t reports = 0;
    for (auto record = group_question(3); count > 0; --count) {
      record.group_gid[14] = static_cast<std::uint8_t>(++groups_made >> 8);
      record.group_gid[15] = static_cast<std::uint8_t>(groups_made);
      EXPECT_EQ(
          ask(question(method_set, wire::attribute_member_record, create_mask, record, 3)).status,
          0);
      EXPECT_EQ(
          ask(question(wire::method_delete, wire::attribute_member_record, join_mask, record, 3))
              .method,
          0x95);
      while (const auto packet = administration.take_packet(now)) {
        reports += header_of(packet->mad).method == wire::method_report &&
                   packet->destination == Lid(lid(2));
      }
    }
    return reports;
  };
  make_groups(Subscriptions::reports_of_port_max / 2);
  EXPECT_EQ(administration.dropped_reports(), 0u);
  EXPECT_EQ(ask(question(method_set, wire::attribute_inform_info, 0, wanted, 2)).status, 0);
  EXPECT_EQ(make_groups(10), 20u);
  EXPECT_EQ(administration.dropped_reports(), 20u);
  for (int i = 0; i < Subscriptions::tries_max; ++i) {
    now += Subscriptions::timeout;
    administration.expire(now);
    while (administration.take_packet(now)) {
    }
  }
  EXPECT_TRUE(administration.next_timeout().is_never());
  EXPECT_EQ(make_groups(1), 2u);
  EXPECT_EQ(administration.dropped_reports(), 20u);
}

// Tables have different lengths. A port has a share of their bytes, too.
TEST_F(AdministrationTest, APortHasAShareOfTheBytes) {
  constexpr std::size_t node_bytes = 112, table_bytes = 56 + 4 * node_bytes;
  administration = Administration(4 * (2 * table_bytes + 100));
  bring_up();
  const auto table_for = [&](std::uint32_t asker) {
    return ask(question(wire::method_get_table, wire::attribute_node_record, 0, wire::NodeRecord{},
                        asker))
        .status;
  };
  const auto one_for = [&](std::uint32_t asker) {
    wire::NodeRecord wanted;
    wanted.lid = lid(2);
    return ask(question(method_get, wire::attribute_node_record, 1, wanted, asker)).status;
  };
  EXPECT_EQ(table_for(1), 0);
  EXPECT_EQ(table_for(1), 0);
  EXPECT_EQ(table_for(1), wire::administration_no_resources);
  EXPECT_EQ(table_for(2), 0) << "one port takes no other's share";
  EXPECT_EQ(one_for(1), 0) << "one record is no table";
  const Packet paths =
      question(wire::method_get_table, wire::attribute_path_record, 0, wire::PathRecord{}, 1);
  EXPECT_EQ(ask(paths).status, wire::administration_no_resources);
}

// A question that will be refused costs no search.
TEST_F(AdministrationTest, APortsShareIsLookedAtBeforeTheRecords) {
  bring_up();
  for (std::size_t i = 0; i < Administration::tables_of_port_max; ++i) {
    administration.receive(
        now, question(wire::method_get_table, wire::attribute_node_record, 0, wire::NodeRecord{}));
  }
  while (administration.take_packet(now)) {
  }
  wire::PathRecord none;
  none.pkey = 0x8001;
  for (std::size_t i = 0; i < Administration::paths_in_a_turn / 16; ++i) {
    ask(question(method_get, wire::attribute_path_record, PathComponents::pkey, none, 2));
  }
  const auto paths_for = [&](std::uint32_t asker) {
    return ask(question(wire::method_get_table, wire::attribute_path_record, 0, wire::PathRecord{},
                        asker))
        .status;
  };
  EXPECT_EQ(paths_for(1), wire::administration_no_resources);
  EXPECT_EQ(paths_for(2), 0xFFFF) << "its search waits";
}

// A receiver that only repeats itself, or takes its time, does not keep a table for ever.
TEST_F(AdministrationTest, ATableThatIsNotReadEnds) {
  bring_up();
  const Packet asked =
      question(wire::method_get_table, wire::attribute_path_record, 0, wire::PathRecord{});
  const Reply first = ask(asked);
  ASSERT_EQ(first.status, 0);
  RmppReceiver receiver(now, first.packet);
  const auto ack = receiver.receive(now, first.packet, 1 << 20);
  ASSERT_TRUE(ack);
  const Time end = now + RmppSender::patience * (RmppSender::tries_max + 1);
  while (!administration.next_timeout().is_never()) {
    ASSERT_LE(now, end);
    while (administration.take_packet(now)) {
    }
    now += Time::milliseconds(500);
    administration.receive(now, *ack);
    administration.expire(now);
  }
}

// What there is for all, no port has alone, and none by another's name.
TEST_F(AdministrationTest, APortHasAShareOfWhatThereIs) {
  bring_up();
  for (std::size_t i = 0; i < Administration::tables_of_port_max; ++i) {
    const Packet packet =
        question(wire::method_get_table, wire::attribute_node_record, 0, wire::NodeRecord{});
    administration.receive(now, packet);
  }
  while (administration.take_packet(now)) {
  }
  const auto table_for = [&](std::uint32_t asker) {
    return ask(question(wire::method_get_table, wire::attribute_node_record, 0, wire::NodeRecord{},
                        asker))
        .status;
  };
  EXPECT_EQ(table_for(1), wire::administration_no_resources);
  EXPECT_EQ(table_for(2), 0);

  wire::ServiceRecord service;
  service.lease_seconds = wire::ServiceRecord::for_ever;
  const auto set = [&](std::uint64_t id, std::uint32_t asker) {
    service.id = id;
    service.gid = gid(asker);
    return set_service(service, asker);
  };
  for (std::size_t i = 0; i < Services::services_of_port_max; ++i) EXPECT_EQ(set(i, 1), 0);
  EXPECT_EQ(set(1'000'000, 1), wire::administration_no_resources);
  EXPECT_EQ(set(0, 1), 0) << "one that is renewed is no other";
  EXPECT_EQ(set(2'000'000, 2), 0);

  wire::InformInfo wanted = all_notices();
  const auto subscribe = [&](std::uint16_t trap, std::uint32_t asker) {
    wanted.trap = trap;
    return ask(question(method_set, wire::attribute_inform_info, 0, wanted, asker)).status;
  };
  for (std::size_t i = 0; i < Subscriptions::subscriptions_of_port_max; ++i) {
    EXPECT_EQ(subscribe(static_cast<std::uint16_t>(i), 1), 0);
  }
  EXPECT_EQ(subscribe(9'999, 1), wire::administration_no_resources);
  EXPECT_EQ(subscribe(9'999, 2), 0);
}

}  // namespace
}  // namespace tulle::management::administration

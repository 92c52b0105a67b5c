// What subnet administration answers.

#include "management/administration/administration_test.h"

#include <gtest/gtest.h>

namespace tulle::management::administration {
namespace {

TEST_F(AdministrationTest, AnswersNothingBeforeTheSubnetIsUp) {
  administration.follow(manager);
  administration.receive(now, question(method_get, wire::attribute_class_port_info, 0, be16{}));
  EXPECT_FALSE(administration.take_packet(now));
}

TEST_F(AdministrationTest, TellsOfItself) {
  bring_up();
  const auto reply = ask(question(method_get, wire::attribute_class_port_info, 0, be16{}));
  EXPECT_EQ(reply.status, 0);
  EXPECT_EQ(reply.method, method_get_response);
  EXPECT_EQ(record_of<wire::ClassPortInfo>(reply.packet).class_version, 2);
}

TEST_F(AdministrationTest, RefusesWhatItDoesNotKnow) {
  bring_up();
  const auto status = [&](std::uint8_t method, std::uint16_t attribute) {
    return ask(question(method, attribute, 0, be16{})).status;
  };
  EXPECT_EQ(status(method_get, 0x3F), static_cast<std::uint16_t>(Status::attribute_not_supported));
  EXPECT_EQ(status(method_set, wire::attribute_node_record),
            static_cast<std::uint16_t>(Status::attribute_not_supported));
  EXPECT_EQ(status(0x14, wire::attribute_node_record),
            static_cast<std::uint16_t>(Status::method_not_supported));
  Packet old = question(method_get, wire::attribute_node_record, 0, be16{});
  old.mad[2] = std::byte{1};
  EXPECT_EQ(ask(old).status, static_cast<std::uint16_t>(Status::bad_version));
}

TEST_F(AdministrationTest, RecordsOfAllKinds) {
  bring_up();
  const auto table_of = [&]<typename Record>(std::uint16_t attribute, Record record) {
    return table<Record>(question(wire::method_get_table, attribute, 0, record)).size();
  };
  EXPECT_EQ(table_of(wire::attribute_node_record, wire::NodeRecord{}), 4u);
  EXPECT_EQ(table_of(wire::attribute_port_info_record, wire::PortInfoRecord{}), 7u);
  EXPECT_EQ(table_of(wire::attribute_switch_info_record, wire::SwitchInfoRecord{}), 1u);
  EXPECT_EQ(table_of(wire::attribute_link_record, wire::LinkRecord{}), 6u);
  EXPECT_EQ(table_of(wire::attribute_sm_info_record, wire::SmInfoRecord{}), 1u);
  EXPECT_EQ(table_of(wire::attribute_linear_table_record, wire::LinearTableRecord{}), 1u);
  EXPECT_EQ(table_of(wire::attribute_path_record, wire::PathRecord{}), 16u);
}

TEST_F(AdministrationTest, ComponentsSelectRecords) {
  bring_up();
  wire::NodeRecord wanted;
  wanted.lid = lid(2);
  auto reply = ask(question(method_get, wire::attribute_node_record, 1, wanted));
  EXPECT_EQ(reply.status, 0);
  EXPECT_EQ(record_of<wire::NodeRecord>(reply.packet).info.port_guid, 2u);
  wanted.info.node_type = wire::NodeInfo::channel_adapter;
  EXPECT_EQ(ask(question(method_get, wire::attribute_node_record, 1 << 4, wanted)).status, 0x0400);
  EXPECT_EQ(table<wire::NodeRecord>(
                question(wire::method_get_table, wire::attribute_node_record, 1 << 4, wanted))
                .size(),
            3u);
  wanted.info.node_guid = 99;
  EXPECT_EQ(ask(question(method_get, wire::attribute_node_record, 1 << 7, wanted)).status, 0x0300);
  // Fields that share a byte are told apart.
  wire::PortInfoRecord port;
  port.info.speed_supported_and_state = 4;
  EXPECT_EQ(table<wire::PortInfoRecord>(
                question(wire::method_get_table, wire::attribute_port_info_record, 1 << 15, port))
                .size(),
            7u);
}

TEST_F(AdministrationTest, PathsHaveTheLinksLimits) {
  bring_up();
  wire::PathRecord wanted;
  wanted.source_gid = gid(1);
  wanted.destination_gid = gid(3);
  wanted.reversible_and_paths = wire::PathRecord::reversible | 1;
  const std::uint64_t mask = PathComponents::source_gid | PathComponents::destination_gid |
                             PathComponents::reversible | PathComponents::paths;
  auto reply = ask(question(method_get, wire::attribute_path_record, mask, wanted));
  ASSERT_EQ(reply.status, 0);
  const auto path = record_of<wire::PathRecord>(reply.packet);
  EXPECT_EQ(path.source_lid, lid(1));
  EXPECT_EQ(path.destination_lid, lid(3));
  EXPECT_EQ(path.mtu, 0x85);
  EXPECT_EQ(path.rate, 0x90);  // 100 Gb/s
  EXPECT_EQ(path.reversible_and_paths & 0x80, 0x80);
  // A smaller MTU can be had, a larger one cannot.
  wanted.mtu = wire::selected(wire::Selector::exactly, 3);
  const std::uint64_t with_mtu = mask | PathComponents::mtu_selector | PathComponents::mtu;
  reply = ask(question(method_get, wire::attribute_path_record, with_mtu, wanted));
  EXPECT_EQ(record_of<wire::PathRecord>(reply.packet).mtu, 0x83);
  wanted.mtu = wire::selected(wire::Selector::below, 3);
  reply = ask(question(method_get, wire::attribute_path_record, with_mtu, wanted));
  EXPECT_EQ(record_of<wire::PathRecord>(reply.packet).mtu, 0x82);
  wanted.mtu = wire::selected(wire::Selector::above, 5);
  EXPECT_EQ(ask(question(method_get, wire::attribute_path_record, with_mtu, wanted)).status,
            0x0300);
  wanted.destination_gid = gid(77);
  EXPECT_EQ(ask(question(method_get, wire::attribute_path_record, mask, wanted)).status, 0x0500);
}

// A lease may end later than Time can say, and the manager's clock may be weeks old.
TEST_F(AdministrationTest, ALeaseLongerThanTimeDoesNotEnd) {
  bring_up();
  now += Time::seconds(20 * 24 * 3'600);
  wire::ServiceRecord service;
  service.id = 5;
  service.gid = gid(1);
  service.lease_seconds = 90 * 24 * 3'600;
  EXPECT_EQ(ask(question(method_set, wire::attribute_service_record, 0, service)).status, 0);
  administration.expire(now);
  EXPECT_EQ(ask(question(method_get, wire::attribute_service_record, 1, service)).status, 0);
  EXPECT_TRUE(administration.next_timeout().is_never());
}

TEST_F(AdministrationTest, ServicesEndWithTheirLease) {
  bring_up();
  wire::ServiceRecord service;
  service.id = 5;
  service.gid = gid(1);
  service.lease_seconds = 10;
  service.key = {1, 2, 3};
  EXPECT_EQ(ask(question(method_set, wire::attribute_service_record, 0, service)).status, 0);
  now += Time::seconds(4);
  auto reply = ask(question(method_get, wire::attribute_service_record, 1, service));
  EXPECT_EQ(reply.status, 0);
  const auto found = record_of<wire::ServiceRecord>(reply.packet);
  EXPECT_EQ(found.lease_seconds, 6u);
  EXPECT_EQ(found.key[0], 0);
  administration.rebase(now - Time::milliseconds(1));
  now = Time::milliseconds(1);
  EXPECT_EQ(administration.next_timeout(), now + Time::seconds(6));
  now += Time::seconds(6);
  administration.expire(now);
  EXPECT_EQ(ask(question(method_get, wire::attribute_service_record, 1, service)).status, 0x0300);
  service.lease_seconds = wire::ServiceRecord::for_ever;
  EXPECT_EQ(ask(question(method_set, wire::attribute_service_record, 0, service)).status, 0);
  reply = ask(question(wire::method_delete, wire::attribute_service_record, 0, service));
  EXPECT_EQ(reply.status, 0);
  EXPECT_EQ(reply.method, 0x95);
  EXPECT_EQ(ask(question(wire::method_delete, wire::attribute_service_record, 0, service)).status,
            0x0300);
}

TEST_F(AdministrationTest, GroupsAreMadeJoinedAndLeft) {
  bring_up();
  auto record = group_question(1);
  // A port that joins a group which does not exist yet has to say what the group is to be like.
  EXPECT_EQ(ask(question(method_set, wire::attribute_member_record, join_mask, record)).status,
            0x0600);
  auto reply = ask(question(method_set, wire::attribute_member_record, create_mask, record));
  ASSERT_EQ(reply.status, 0);
  const auto made = record_of<wire::MemberRecord>(reply.packet);
  EXPECT_EQ(made.lid, 0xC001);
  EXPECT_EQ(made.mtu, 0x84);
  record = group_question(2);
  record.qkey = 8;
  EXPECT_EQ(ask(question(method_set, wire::attribute_member_record, create_mask, record, 2)).status,
            0x0200);
  record.qkey = 7;
  EXPECT_EQ(ask(question(method_set, wire::attribute_member_record, create_mask, record, 2)).status,
            0);
  EXPECT_EQ(administration.groups().members().at(0xC001).receivers,
            (std::vector<std::uint64_t>{1, 2}));
  const auto leave = [&] {
    return ask(question(wire::method_delete, wire::attribute_member_record, join_mask, record, 2))
        .status;
  };
  EXPECT_EQ(leave(), 0);
  EXPECT_EQ(leave(), 0x0200);
  record = group_question(1);
  EXPECT_EQ(
      ask(question(wire::method_delete, wire::attribute_member_record, join_mask, record)).status,
      0);
  EXPECT_FALSE(administration.groups().find(record.group_gid));
  EXPECT_EQ(administration.groups().members().size(), 1u);  // IPoIB's broadcasts
}

TEST_F(AdministrationTest, SubscribersHearOfPortsThatGo) {
  bring_up();
  wire::InformInfo wanted = all_notices();
  EXPECT_EQ(ask(question(method_set, wire::attribute_inform_info, 0, wanted)).status, 0);
  pull(3);
  manager.want_sweep(now);
  now += Time::seconds(1);
  for (int i = 0; i < 5; ++i) {
    run_manager(manager);
    now += Time::milliseconds(200);
  }
  administration.follow(manager);
  const auto report = administration.take_packet(now);
  ASSERT_TRUE(report);
  EXPECT_EQ(header_of(report->mad).method, wire::method_report);
  const auto notice = record_of<wire::ReportedNotice>(*report);
  EXPECT_EQ(notice.notice.trap, 65);
  EXPECT_EQ(notice.notice.details[6 + 15], 3);
  EXPECT_EQ(report->destination, Lid(lid(1)));
  // It is sent three times, unless it is answered.
  administration.rebase(now);
  now = Subscriptions::timeout;
  administration.expire(now);
  const auto again = administration.take_packet(now);
  ASSERT_TRUE(again);
  Packet answer = answer_to(*again);
  auto header = header_of(answer.mad);
  header.method = wire::method_report | response_bit;
  put_attribute(header, 0, answer.mad);
  administration.receive(now, answer);
  now += Subscriptions::timeout;
  administration.expire(now);
  EXPECT_FALSE(administration.take_packet(now));
  wanted.subscribes = 0;
  EXPECT_EQ(ask(question(method_set, wire::attribute_inform_info, 0, wanted)).status, 0);
  EXPECT_EQ(ask(question(method_set, wire::attribute_inform_info, 0, wanted)).status, 0x0200);
}

// Anybody may ask for all paths of the subnet, and again. Each turn follows some.
TEST_F(AdministrationTest, SearchesForPathsTakeTurns) {
  bring_up();
  constexpr std::size_t pairs = 16;  // of four nodes
  wire::PathRecord none;
  none.pkey = 0x8001;
  const auto in_vain = [&] {
    return question(method_get, wire::attribute_path_record, PathComponents::pkey, none);
  };
  const auto spend = [&](std::size_t paths) {
    next_turn();
    for (; paths >= pairs; paths -= pairs) ASSERT_EQ(ask(in_vain()).status, 0x0300);
  };
  spend(Administration::paths_in_a_turn);
  EXPECT_FALSE(has_searches());
  const Packet later = in_vain();
  EXPECT_EQ(ask(later).status, 0xFFFF) << "no answer yet";
  EXPECT_TRUE(has_searches());
  administration.receive(now, later);  // asked again
  administration.expire(now);
  EXPECT_FALSE(administration.take_packet(now)) << "no time has passed";
  next_turn();
  ASSERT_TRUE(administration.take_packet(now));
  EXPECT_FALSE(administration.take_packet(now)) << "it was one question";
  EXPECT_FALSE(has_searches());

  spend(Administration::paths_in_a_turn);
  for (std::size_t i = 0; i < Administration::searches_of_port_max; ++i) {
    EXPECT_EQ(ask(in_vain()).status, 0xFFFF);
  }
  EXPECT_EQ(ask(in_vain()).status, wire::administration_no_resources);
  Packet of_another = in_vain();
  of_another.source = Lid(lid(2));
  EXPECT_EQ(ask(of_another).status, 0xFFFF) << "one port takes no other's place";
}

// A search that is interrupted finds the same as one that is not.
TEST_F(AdministrationTest, ASearchGoesOnWhereItWas) {
  bring_up();
  next_turn();
  wire::PathRecord none;
  none.pkey = 0x8001;
  for (std::size_t left = Administration::paths_in_a_turn; left > 16; left -= 16) {
    ask(question(method_get, wire::attribute_path_record, PathComponents::pkey, none));
  }
  wire::PathRecord from;
  from.source_lid = lid(1);
  from.pkey = 0x8001;
  ask(question(method_get, wire::attribute_path_record,
               PathComponents::source_lid | PathComponents::pkey, from));
  const Packet all =
      question(wire::method_get_table, wire::attribute_path_record, 0, wire::PathRecord{});
  EXPECT_EQ(ask(all).status, 0xFFFF);
  next_turn();
  EXPECT_EQ(table<wire::PathRecord>(all).size(), 16u);
}

// A question for one path is answered at once, however many others search for.
TEST_F(AdministrationTest, OnePathDoesNotWaitForSearches) {
  bring_up();
  wire::PathRecord none;
  none.pkey = 0x8001;
  const auto in_vain = [&] {
    return question(method_get, wire::attribute_path_record, PathComponents::pkey, none);
  };
  next_turn();
  for (std::size_t i = 0; i < Administration::paths_in_a_turn / 16 + 1; ++i) ask(in_vain());
  ASSERT_TRUE(has_searches());
  wire::PathRecord one;
  one.source_lid = lid(1);
  one.destination_lid = lid(2);
  const std::uint64_t mask = PathComponents::source_lid | PathComponents::destination_lid;
  EXPECT_EQ(ask(question(method_get, wire::attribute_path_record, mask, one)).status, 0);
}

}  // namespace
}  // namespace tulle::management::administration

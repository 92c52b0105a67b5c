// Subnet administration over a manager whose subnet is answered by nodes of this test: a switch
// with the manager, and three adapters at its ports 1 to 3.

#include "management/administration/administration.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "management/administration/paths.h"
#include "management/subnet/node.h"

namespace tulle::management::administration {
namespace {

using subnet::Manager;
using subnet::Node;
using subnet::NodeSettings;

constexpr std::uint32_t adapters = 3;
constexpr std::uint64_t switch_guid = 0x100;

NodeSettings settings_of(std::uint64_t guid, bool is_switch) {
  NodeSettings settings;
  settings.guid = guid;
  settings.is_switch = is_switch;
  settings.ports = is_switch ? adapters : 1;
  settings.description = is_switch ? "switch" : "adapter";
  settings.rates.assign(settings.ports, {3, 7, 3});
  return settings;
}

void route_star(subnet::Graph& graph) {
  for (std::size_t place = 1; place < graph.nodes[0].ports.size(); ++place) {
    const auto& port = graph.nodes[0].ports[place];
    if (!port.has_peer()) continue;
    const auto& peer = graph.nodes[port.peer];
    for (std::uint32_t path = 0; path < 1u << peer.lmc; ++path) {
      graph.nodes[0].linear[peer.lid + path] = static_cast<std::uint8_t>(place);
    }
  }
}

class AdministrationTest : public testing::Test {
 protected:
  AdministrationTest() {
    nodes.emplace_back(settings_of(switch_guid, true));
    for (std::uint64_t i = 1; i <= adapters; ++i) nodes.emplace_back(settings_of(i, false));
    for (std::uint8_t port = 1; port <= adapters; ++port) plug_in(port);
  }

  void plug_in(std::uint8_t port) {
    const wire::PortInfo info = nodes[0].port_info(port);
    nodes[0].link_up(now, port, nodes[port].port_info(1));
    nodes[port].link_up(now, 1, info);
  }
  void pull(std::uint8_t port) {
    nodes[0].link_down(now, port);
    nodes[port].link_down(now, 1);
  }

  // Answers the manager's questions: at the switch itself, or one hop away.
  void run_manager(Manager& manager) {
    manager.expire(now);
    while (auto packet = manager.take_packet(now)) {
      const auto header = header_of(packet->mad);
      const unsigned hops = wire::hop_count_of(header.class_specific);
      std::uint8_t port = 0;
      if (hops == 1) {
        port = std::to_integer<std::uint8_t>(packet->mad[wire::initial_path_offset + 1]);
        if (nodes[0].physical_state(port) != wire::PhysicalState::link_up) continue;
      }
      ASSERT_LE(hops, 1u);
      const auto outcome = nodes[port].handle(now, packet->mad, port == 0 ? 0 : 1);
      ASSERT_EQ(outcome, Node::Outcome::answered);
      manager.receive(now, *packet);
    }
  }
  void bring_up() {
    run_manager(manager);
    ASSERT_TRUE(manager.is_up());
    administration.follow(manager);
  }
  std::uint16_t lid(std::uint32_t node) const {
    return nodes[node].port_info(nodes[node].addressed_port(1)).lid;
  }

  template <typename Record>
  Packet question(std::uint8_t method, std::uint16_t attribute, std::uint64_t mask,
                  const Record& record, std::uint32_t asker = 1, std::uint64_t key = 0) {
    Packet packet;
    packet.source = Lid(lid(asker));
    packet.destination = Lid(lid(0));
    packet.source_qp = packet.destination_qp = wire::general_services_qp;
    wire::MadHeader header;
    header.management_class = wire::subnet_administration_class;
    header.class_version = wire::administration_version;
    header.method = method;
    header.transaction_id = ++transaction;
    header.attribute_id = attribute;
    put_attribute(header, 0, packet.mad);
    wire::AdministrationHeader rest;
    rest.key = key;
    rest.components = mask;
    put_attribute(rest, wire::administration_header_offset, packet.mad);
    put_attribute(record, wire::administration_data_offset, packet.mad);
    return packet;
  }
  struct Reply {
    std::uint16_t status = 0xFFFF;
    std::uint8_t method = 0;
    Packet packet;
  };
  Reply ask(const Packet& packet) {
    administration.receive(now, packet);
    const auto answer = administration.take_packet(now);
    if (!answer) return {};
    EXPECT_EQ(answer->destination, packet.source);
    const auto header = header_of(answer->mad);
    return {header.status, header.method, *answer};
  }
  template <typename Record>
  static Record record_of(const Packet& packet) {
    Record record;
    std::memcpy(&record, packet.mad.data() + wire::administration_data_offset, sizeof record);
    return record;
  }
  // Returns all records of a table, which comes in segments.
  template <typename Record>
  std::vector<Record> table(const Packet& packet) {
    administration.receive(now, packet);
    std::optional<RmppReceiver> receiver;
    std::vector<std::byte> whole;
    while (const auto segment = administration.take_packet(now)) {
      EXPECT_EQ(header_of(segment->mad).method, 0x92);
      if (!receiver) receiver.emplace(now, *segment);
      if (const auto back = receiver->receive(now, *segment, 1 << 20)) {
        administration.receive(now, *back);
      }
      receiver->take_whole(whole);
    }
    EXPECT_FALSE(whole.empty());
    std::vector<Record> records;
    constexpr std::size_t row = (sizeof(Record) + 7) / 8 * 8;
    for (std::size_t at = 56; at + row <= whole.size(); at += row) {
      std::memcpy(&records.emplace_back(), whole.data() + at, sizeof(Record));
    }
    return records;
  }
  std::uint16_t set_service(const wire::ServiceRecord& record, std::uint32_t asker,
                            std::uint64_t key = 0) {
    return ask(question(method_set, wire::attribute_service_record, 0, record, asker, key)).status;
  }
  std::uint16_t end_service(const wire::ServiceRecord& record, std::uint32_t asker,
                            std::uint64_t key = 0) {
    return ask(question(wire::method_delete, wire::attribute_service_record, 0, record, asker, key))
        .status;
  }
  wire::GidBytes gid(std::uint64_t guid) const { return gid_bytes(0xFE80'0000'0000'0000, guid); }
  wire::MemberRecord group_question(std::uint64_t guid) const {
    wire::MemberRecord record;
    record.group_gid = {0xFF, 0x12, 1, 2, 3};
    record.port_gid = gid(guid);
    record.qkey = 7;
    record.pkey = 0xFFFF;
    record.scope_and_join_state = wire::MemberRecord::full_member;
    return record;
  }

  static constexpr std::uint64_t join_mask =
      MemberComponents::group_gid | MemberComponents::port_gid | MemberComponents::join_state;
  static constexpr std::uint64_t create_mask =
      join_mask | MemberComponents::qkey | MemberComponents::pkey | MemberComponents::sl |
      MemberComponents::flow_label | MemberComponents::traffic_class;

  static subnet::ManagerSettings manager_settings() {
    subnet::ManagerSettings settings;
    settings.port_guid = switch_guid;
    return settings;
  }

  Time now = Time::seconds(1);
  std::vector<Node> nodes;
  Manager manager{now, manager_settings(), route_star};
  Administration administration{};
  std::uint64_t transaction = 0;
  unsigned groups_made = 0;
};

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

TEST_F(AdministrationTest, SubscribersHearOfPortsThatGo) {
  bring_up();
  wire::InformInfo wanted;
  wanted.first_lid = wanted.type = wanted.trap = wire::InformInfo::all;
  wanted.is_generic = wanted.subscribes = 1;
  wanted.producer = 0xFF'FFFF;
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
  now += Subscriptions::timeout;
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

// Whoever asks for tables without reading them costs a bounded number of them.
TEST_F(AdministrationTest, TablesUnderWayAreBounded) {
  bring_up();
  for (std::size_t i = 0; i < Administration::tables_max + 10; ++i) {
    administration.receive(now, question(wire::method_get_table, wire::attribute_path_record, 0,
                                         wire::PathRecord{}, i % 4));
    administration.expire(now);
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
    administration.expire(now);
    for (; paths >= pairs; paths -= pairs) ASSERT_EQ(ask(in_vain()).status, 0x0300);
  };
  spend(Administration::paths_in_a_turn);
  EXPECT_NE(administration.next_timeout(), Time::zero());
  const Packet later = in_vain();
  EXPECT_EQ(ask(later).status, 0xFFFF) << "no answer yet";
  EXPECT_EQ(administration.next_timeout(), Time::zero());
  administration.receive(now, later);  // asked again
  administration.expire(now);
  ASSERT_TRUE(administration.take_packet(now));
  EXPECT_FALSE(administration.take_packet(now)) << "it was one question";
  EXPECT_NE(administration.next_timeout(), Time::zero());

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
  administration.expire(now);
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
  administration.expire(now);
  EXPECT_EQ(table<wire::PathRecord>(all).size(), 16u);
}

// A question for one path is answered at once, whoever searches for how many.
TEST_F(AdministrationTest, OnePathDoesNotWaitForSearches) {
  bring_up();
  wire::PathRecord none;
  none.pkey = 0x8001;
  const auto in_vain = [&] {
    return question(method_get, wire::attribute_path_record, PathComponents::pkey, none);
  };
  administration.expire(now);
  for (std::size_t i = 0; i < Administration::paths_in_a_turn / 16 + 1; ++i) ask(in_vain());
  ASSERT_EQ(administration.next_timeout(), Time::zero()) << "a search waits";
  wire::PathRecord one;
  one.source_lid = lid(1);
  one.destination_lid = lid(2);
  const std::uint64_t mask = PathComponents::source_lid | PathComponents::destination_lid;
  EXPECT_EQ(ask(question(method_get, wire::attribute_path_record, mask, one)).status, 0);
}

// A subscriber that does not answer loses its own reports, and no other's.
TEST_F(AdministrationTest, APortHasAShareOfTheReports) {
  bring_up();
  wire::InformInfo wanted;
  wanted.first_lid = wanted.type = wanted.trap = wire::InformInfo::all;
  wanted.is_generic = wanted.subscribes = 1;
  wanted.producer = 0xFF'FFFF;
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

  wire::InformInfo wanted;
  wanted.first_lid = wanted.type = wire::InformInfo::all;
  wanted.is_generic = wanted.subscribes = 1;
  wanted.producer = 0xFF'FFFF;
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

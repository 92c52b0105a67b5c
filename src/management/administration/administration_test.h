#pragma once

// Subnet administration over a manager whose subnet is answered by nodes of this test: a switch
// with the manager, and three adapters at its ports 1 to 3.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "management/administration/administration.h"
#include "management/administration/paths.h"
#include "management/subnet/node.h"

namespace tulle::management::administration {

using subnet::Manager;
using subnet::Node;
using subnet::NodeSettings;

inline constexpr std::uint32_t adapters = 3;
inline constexpr std::uint64_t switch_guid = 0x100;

inline NodeSettings settings_of(std::uint64_t guid, bool is_switch) {
  NodeSettings settings;
  settings.guid = guid;
  settings.is_switch = is_switch;
  settings.ports = is_switch ? adapters : 1;
  settings.description = is_switch ? "switch" : "adapter";
  settings.rates.assign(settings.ports, {3, 7, 3});
  return settings;
}

inline void route_star(subnet::Graph& graph) {
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
    manager.expire(now, [this] {
      ++members_collected;
      return administration.groups().members();
    });
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
  // Lets a little time pass, so that searches have another turn.
  void next_turn() {
    now += Time::microseconds(1);
    administration.expire(now);
  }
  bool has_searches() const { return administration.next_timeout() <= now + Time::nanoseconds(1); }
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
  // A subscription to all notices.
  static wire::InformInfo all_notices() {
    wire::InformInfo wanted;
    wanted.first_lid = wanted.type = wanted.trap = wire::InformInfo::all;
    wanted.is_generic = wanted.subscribes = 1;
    wanted.producer = 0xFF'FFFF;
    return wanted;
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
  int members_collected = 0;  // by the manager
};

}  // namespace tulle::management::administration

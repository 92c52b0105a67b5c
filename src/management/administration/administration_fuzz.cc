// Programs ask subnet administration for anything, change what may be changed, and acknowledge
// tables as they like. The subnet behind it is a switch with three adapters. Nothing is read beyond
// its end, what is kept stays within its bounds, and in the end nothing is under way.

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "management/administration/administration.h"
#include "management/subnet/node.h"

namespace tulle::management::administration {
namespace {

constexpr std::array<std::uint16_t, 14> attributes = {
    wire::attribute_class_port_info,    wire::attribute_inform_info,
    wire::attribute_node_record,        wire::attribute_port_info_record,
    wire::attribute_switch_info_record, wire::attribute_linear_table_record,
    wire::attribute_sm_info_record,     wire::attribute_link_record,
    wire::attribute_service_record,     wire::attribute_path_record,
    wire::attribute_member_record,      wire::attribute_notice,
    wire::attribute_path_record,        wire::attribute_member_record};
constexpr std::array<std::uint8_t, 7> methods = {method_get,
                                                 method_set,
                                                 wire::method_get_table,
                                                 wire::method_delete,
                                                 0x14,
                                                 0x92,
                                                 wire::method_report | response_bit};

subnet::NodeSettings settings_of(std::uint64_t guid, std::uint8_t ports) {
  subnet::NodeSettings settings;
  settings.guid = guid;
  settings.is_switch = ports > 1;
  settings.ports = ports;
  settings.rates.assign(ports, {3, 7, 3});
  return settings;
}

struct Run {
  base::Script& script;
  Time now = Time::seconds(1);
  std::vector<subnet::Node> nodes{};
  subnet::Manager manager{now, manager_settings(), [](subnet::Graph& graph) {
                            for (std::uint8_t place = 1; place <= 3; ++place) {
                              const auto& port = graph.nodes[0].ports[place];
                              if (port.has_peer()) {
                                graph.nodes[0].linear[graph.nodes[port.peer].lid] = place;
                              }
                            }
                          }};
  Administration administration{};

  static subnet::ManagerSettings manager_settings() {
    subnet::ManagerSettings settings;
    settings.port_guid = 9;
    return settings;
  }

  void bring_up() {
    nodes.emplace_back(settings_of(9, 3));
    for (std::uint8_t port = 1; port <= 3; ++port) {
      auto& node = nodes.emplace_back(settings_of(port, 1));
      const wire::PortInfo info = nodes[0].port_info(port);
      nodes[0].link_up(now, port, node.port_info(1));
      node.link_up(now, 1, info);
    }
    follow();
    TULLE_CHECK(manager.is_up());
  }

  void follow() {
    for (int turn = 0; turn < 2; ++turn) {
      manager.expire(now, [this] { return administration.groups().members(); });
      while (auto packet = manager.take_packet(now)) {
        const bool is_far = wire::hop_count_of(header_of(packet->mad).class_specific) == 1;
        const auto port =
            is_far ? std::to_integer<std::size_t>(packet->mad[wire::initial_path_offset + 1]) : 0;
        nodes[port].handle(now, packet->mad, is_far ? 1 : 0);
        manager.receive(now, *packet);
      }
      administration.follow(manager);
    }
  }

  Packet any_packet() {
    Packet packet;
    packet.source = Lid(static_cast<std::uint16_t>(script.below(6)));
    packet.destination = Lid(static_cast<std::uint16_t>(1 + script.below(2)));
    packet.source_qp = packet.destination_qp = wire::general_services_qp;
    wire::MadHeader header;
    header.management_class = wire::subnet_administration_class;
    header.class_version = script.one_in(16) ? 1 : wire::administration_version;
    header.method = methods[script.below(methods.size())];
    header.transaction_id = script.below(6);
    header.attribute_id =
        script.one_in(16) ? script.half() : attributes[script.below(attributes.size())];
    put_attribute(header, 0, packet.mad);
    if (script.one_in(4)) {
      wire::RmppHeader rmpp;
      rmpp.version = 1;
      rmpp.type = static_cast<std::uint8_t>(script.below(6));
      rmpp.response_time_and_flags = static_cast<std::uint8_t>(script.below(8));
      rmpp.segment = script.below(12);
      rmpp.length_or_window = script.one_in(8) ? script.word() : script.below(80);
      put_attribute(rmpp, wire::rmpp_header_offset, packet.mad);
    }
    wire::AdministrationHeader rest;
    rest.key = script.below(3);
    rest.components = script.one_in(3) ? script.number() : script.word() & 0x1FFFF;
    put_attribute(rest, wire::administration_header_offset, packet.mad);
    if (script.one_in(2)) put_members(packet);
    for (unsigned i = script.below(24); i > 0; --i) {
      packet.mad[wire::administration_data_offset + script.below(200)] = std::byte{script.byte()};
    }
    return packet;
  }
  void put_members(Packet& packet) {
    wire::MemberRecord record;
    record.group_gid = {0xFF, 0x12, 0, 0, 0, 0, 0, 0,
                        0,    0,    0, 0, 0, 0, 0, static_cast<std::uint8_t>(script.below(4))};
    record.port_gid = gid_bytes(0xFE80'0000'0000'0000, 1 + script.below(4));
    record.scope_and_join_state = static_cast<std::uint8_t>(1 + script.below(4));
    put_attribute(record, wire::administration_data_offset, packet.mad);
  }

  void drain() {
    int sent = 0;
    while (const auto packet = administration.take_packet(now)) {
      TULLE_CHECK(++sent < 20'000);
      TULLE_CHECK(!packet->is_subnet_management());
    }
  }

  void step() {
    switch (script.below(12)) {
      case 0:
        now += Time::milliseconds(script.half());
        break;
      case 1:
        manager.want_sweep(now);
        now += Time::seconds(1);
        break;
      default:
        administration.receive(now, any_packet());
        break;
    }
    follow();
    now += Time::microseconds(1);  // as between two passes of the fabric's process
    administration.expire(now);
    if (!script.one_in(8)) drain();
  }

  void end() {
    for (int i = 0; !administration.next_timeout().is_never(); ++i) {
      TULLE_CHECK(i < 20'000);
      now = std::max(now, administration.next_timeout());
      administration.expire(now);
      drain();
    }
  }
};

}  // namespace
}  // namespace tulle::management::administration

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::base::Script script(data, size);
  tulle::management::administration::Run run{script};
  run.bring_up();
  while (!script.is_over()) run.step();
  run.end();
  return 0;
}

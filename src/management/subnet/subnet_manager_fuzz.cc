// A subnet manager asks, and a script says which of its questions are answered, with what, and what
// strangers send besides. The manager stays within its limits, its sweeps end, and it continues to
// report who it is.

#include <cstring>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "management/subnet/manager.h"

namespace tulle::management::subnet {
namespace {

constexpr std::uint32_t nodes_max = 40;
constexpr std::uint32_t ports_max = 400;

struct Run {
  base::Script& script;
  Time now = Time::seconds(1);
  Manager manager{now, settings(), [](Graph&) {}};
  std::vector<Packet> asked{};

  static ManagerSettings settings() {
    ManagerSettings settings;
    settings.port_guid = 4;
    settings.limits = {nodes_max, 20, ports_max};
    settings.lmc = 1;
    return settings;
  }

  // Returns an attribute that has sense here and there.
  AttributeData any_data(std::uint16_t attribute) {
    AttributeData data{};
    const auto put = [&data](const auto& from) { std::memcpy(data.data(), &from, sizeof from); };
    if (attribute == wire::attribute_node_info) {
      wire::NodeInfo info;
      info.node_type = script.one_in(3) ? 1 : 2;
      info.ports =
          script.one_in(8) ? script.byte() : static_cast<std::uint8_t>(1 + script.below(4));
      info.node_guid = info.port_guid = script.below(12);
      info.local_port = static_cast<std::uint8_t>(script.below(6));
      put(info);
    } else if (attribute == wire::attribute_port_info) {
      wire::PortInfo info;
      info.lid = static_cast<std::uint16_t>(script.below(10));
      info.speed_supported_and_state = wire::halves(1, script.below(6));
      info.capability_mask = script.one_in(4) ? wire::capability_is_sm : 0;
      put(info);
    } else if (attribute == wire::attribute_switch_info) {
      wire::SwitchInfo info;
      info.linear_top = script.byte();
      info.life_and_change = script.byte();
      info.multicast_entries_max = script.half();
      put(info);
    } else if (attribute == wire::attribute_sm_info) {
      wire::SmInfo info;
      info.guid = script.below(8);
      info.priority_and_state = wire::halves(script.below(3), script.below(6));
      put(info);
    }
    if (script.one_in(8)) data[script.below(64)] = std::byte{script.byte()};
    return data;
  }

  void drain() {
    int sent = 0;
    while (const auto packet = manager.take_packet(now)) {
      TULLE_CHECK(++sent <= 2'000);
      if (asked.size() < 64) asked.push_back(*packet);
    }
  }

  void answer() {
    if (asked.empty()) return;
    const std::size_t which = script.below(static_cast<std::uint32_t>(asked.size()));
    Packet packet = asked[which];
    if (!script.one_in(8)) asked.erase(asked.begin() + static_cast<std::ptrdiff_t>(which));
    const auto attribute = header_of(packet.mad).attribute_id;
    const Status status = script.one_in(16) ? Status::invalid_value : Status::ok;
    begin_answer(packet.mad, status, wire::directed_route_returns, packet.mad);
    put_attribute(any_data(attribute), wire::subnet_data_offset, packet.mad);
    manager.receive(now, packet);
  }

  void stranger() {
    constexpr std::array<std::uint8_t, 5> methods = {method_get, method_set, method_trap,
                                                     method_trap_repress, method_get_response};
    Packet packet;
    packet.source = Lid(static_cast<std::uint16_t>(script.below(10)));
    wire::MadHeader header;
    header.management_class = script.one_in(2) ? wire::subnet_class : wire::subnet_directed_class;
    header.class_version = 1;
    header.method = methods[script.below(methods.size())];
    header.class_specific = script.half();
    header.transaction_id = script.number();
    header.attribute_id = script.one_in(2) ? wire::attribute_sm_info : wire::attribute_notice;
    header.attribute_modifier = script.below(8);
    put_attribute(header, 0, packet.mad);
    for (int i = 0; i < 8; ++i) packet.mad[64 + script.below(192)] = std::byte{script.byte()};
    manager.receive(now, packet);
  }

  void step() {
    switch (script.below(8)) {
      case 0:
        now += Time::milliseconds(script.half() % 3'000);
        break;
      case 1:
        stranger();
        break;
      case 2:
        if (script.one_in(4)) {
          manager.set_allowed(now, script.one_in(2));
        } else {
          manager.set_members({{static_cast<std::uint16_t>(first_multicast_lid + script.byte()),
                                {{script.below(12), script.below(12)}, {script.below(12)}}}});
        }
        break;
      default:
        answer();
        break;
    }
    manager.expire(now);
    drain();
    TULLE_CHECK(manager.graph().nodes.size() <= nodes_max);
    while (manager.take_notice()) {
    }
  }

  // Whatever is under way ends without answers, and the manager rests.
  void end() {
    manager.set_allowed(now, true);
    for (int i = 0; i < 20'000; ++i) {
      const Time next = manager.next_timeout();
      TULLE_CHECK(!next.is_never() || manager.state() == wire::ManagerState::not_active);
      if (next > now + Time::seconds(1)) return;
      now = std::max(now, next);
      manager.expire(now);
      drain();
    }
    TULLE_CHECK(false);
  }
};

}  // namespace
}  // namespace tulle::management::subnet

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::base::Script script(data, size);
  tulle::management::subnet::Run run{script};
  while (!script.is_over()) run.step();
  run.end();
  return 0;
}

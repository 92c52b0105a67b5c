#include "management/subnet/node.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "management/subnet/header.h"
#include "rdma/wire/pkey.h"

namespace tulle::management::subnet {

using wire::halves;
using wire::lower_half;
using wire::upper_half;

namespace {

constexpr std::uint8_t highest_bit(unsigned bits) {
  return static_cast<std::uint8_t>(std::bit_floor(bits));
}

template <typename Details>
wire::Notice notice_of(bool is_switch, std::uint8_t type, std::uint16_t trap, Lid issuer,
                       const Details& details) {
  wire::Notice notice;
  notice.generic_and_type = wire::Notice::generic | type;
  notice.producer = is_switch ? wire::NodeInfo::switch_node : wire::NodeInfo::channel_adapter;
  notice.trap = trap;
  notice.issuer_lid = issuer.value;
  static_assert(sizeof details <= sizeof notice.details);
  std::memcpy(notice.details.data(), &details, sizeof details);
  return notice;
}

// A port as it is before any manager has seen it.
wire::PortInfo first_port_info(const NodeSettings& settings, std::uint8_t number) {
  wire::PortInfo info;
  const bool is_switch_port_0 = number == 0;
  info.gid_prefix = 0xFE80'0000'0000'0000;  // IBTA 4.1.1: the default prefix
  info.capability_mask =
      wire::capability_trap | wire::capability_automatic_migration | wire::capability_sl_mapping |
      wire::capability_system_image_guid | wire::capability_extended_speeds |
      wire::capability_communication_management | wire::capability_client_reregistration;
  const LinkRates rates = is_switch_port_0 ? LinkRates{} : settings.rates[number - 1u];
  info.link_width_enabled = info.link_width_supported = rates.widths;
  info.link_width_active = highest_bit(rates.widths);
  const auto state = is_switch_port_0 ? wire::PortState::active : wire::PortState::down;
  const auto physical =
      is_switch_port_0 ? wire::PhysicalState::link_up : wire::PhysicalState::polling;
  info.speed_supported_and_state = halves(rates.speeds, static_cast<unsigned>(state));
  info.physical_state_and_down_default =
      halves(static_cast<unsigned>(physical), static_cast<unsigned>(wire::PhysicalState::polling));
  info.speed_active_and_enabled = halves(highest_bit(rates.speeds), rates.speeds);
  info.extended_speed_active_and_supported = halves(0, rates.extended_speeds);
  info.extended_speed_enabled = rates.extended_speeds;
  info.neighbor_mtu_and_master_sm_sl = halves(settings.mtu_code, 0);
  info.virtual_lanes_and_init_type = halves(settings.virtual_lanes_code, 0);
  info.vl_arbitration_high = info.vl_arbitration_low = Node::arbitration_entries;
  info.init_type_reply_and_mtu = halves(0, settings.mtu_code);
  info.operational_lanes_and_enforcement = halves(settings.virtual_lanes_code, 0);
  info.guids = wire::guids_in_block;
  info.subnet_timeout = 18;  // 4.096 us * 2^18 is a second
  info.response_time = 16;
  return info;
}

}  // namespace

Node::Node(const NodeSettings& settings) : settings_(settings), ports_(settings.ports + 1u) {
  TULLE_CHECK(settings.ports >= 1 && settings.ports < no_port);
  TULLE_CHECK(settings.rates.size() == settings.ports);
  const std::uint8_t first = is_switch() ? 0 : 1;
  for (std::uint8_t number = first; number <= ports(); ++number) {
    Port& port = ports_[number];
    port.info = first_port_info(settings, number);
    port.pkeys.assign(wire::pkeys_in_block, 0);
    port.pkeys[0] = default_pkey.value;
    port.guids.assign(wire::guids_in_block, 0);
    port.guids[0] = port_guid(number);
    // Each service level begins on the lane of its number, as far as there are lanes.
    const unsigned lanes = 1u << (settings.virtual_lanes_code - 1u);
    port.sl_to_vl.assign(is_switch() ? ports() + 1u : 1u, {});
    for (auto& mapping : port.sl_to_vl) {
      for (unsigned i = 0; i < mapping.size(); ++i) {
        mapping[i] = halves(2 * i % lanes, (2 * i + 1) % lanes);
      }
    }
  }
  if (!is_switch()) return;
  tables_ = ForwardingTables(ports(), settings.linear_entries, settings.multicast_entries);
}

std::uint64_t Node::port_guid(std::uint8_t port) const {
  return is_switch() ? settings_.guid : settings_.guid + port - 1;
}

wire::PortState Node::state(std::uint8_t port) const {
  return static_cast<wire::PortState>(lower_half(ports_[port].info.speed_supported_and_state));
}

wire::PhysicalState Node::physical_state(std::uint8_t port) const {
  return static_cast<wire::PhysicalState>(
      upper_half(ports_[port].info.physical_state_and_down_default));
}

Lid Node::own_lid(std::uint8_t port) const { return Lid(ports_[addressed_port(port)].info.lid); }

bool Node::has_lid(std::uint8_t port, Lid lid) const {
  const wire::PortInfo& info = ports_[port].info;
  return info.lid != 0 && base_of(lid, lmc_of(info)).value == info.lid;
}

std::optional<std::uint8_t> Node::lane(std::uint8_t in_port, std::uint8_t out_port,
                                       std::uint8_t level) const {
  const Port& port = ports_[out_port];
  const std::uint8_t both = port.sl_to_vl[is_switch() ? in_port : 0][level / 2 & 7];
  const std::uint8_t lane = level % 2 == 0 ? upper_half(both) : lower_half(both);
  const unsigned code = upper_half(port.info.operational_lanes_and_enforcement);
  // IBTA 14.2.5.6: 1 is one lane, 2 two, 3 four, 4 eight, and 5 fifteen.
  const unsigned lanes = code == 0 ? 0 : std::min(1u << (code - 1u), 15u);
  return lane < lanes ? std::optional(lane) : std::nullopt;
}

Node::Arbitration Node::arbitration(std::uint8_t port) const {
  const Port& of = ports_[port];
  return {of.arbitration[2], of.arbitration[0], of.info.vl_high_limit};
}

// Members of both kinds pass. OpenSM gives a switch's port the keys of the host behind it
// (osm_pkey_mgr.c), and a limited member must reach the full ones. The hosts keep limited members
// apart.
bool Node::has_partition(std::uint8_t port, Pkey pkey) const {
  const auto is_it = [pkey](const be16& own) { return wire::is_same_partition(Pkey(own), pkey); };
  return !wire::is_same_partition(pkey, Pkey(0)) && std::ranges::any_of(ports_[port].pkeys, is_it);
}

bool Node::lets_in(std::uint8_t port, Pkey pkey) const {
  const std::uint8_t flags = ports_[port].info.operational_lanes_and_enforcement;
  return (flags & wire::PortInfo::enforces_inbound) == 0 || has_partition(port, pkey);
}

bool Node::lets_out(std::uint8_t port, Pkey pkey) const {
  const std::uint8_t flags = ports_[port].info.operational_lanes_and_enforcement;
  return (flags & wire::PortInfo::enforces_outbound) == 0 || has_partition(port, pkey);
}

// --- links ---

bool Node::is_enabled(std::uint8_t port) const { return ports_[port].is_enabled; }

void Node::set_state(Time now, std::uint8_t port, wire::PortState state,
                     wire::PhysicalState physical) {
  wire::PortInfo& info = ports_[port].info;
  const bool changes = state != this->state(port);
  info.speed_supported_and_state =
      halves(upper_half(info.speed_supported_and_state), static_cast<unsigned>(state));
  info.physical_state_and_down_default =
      halves(static_cast<unsigned>(physical), lower_half(info.physical_state_and_down_default));
  // IBTA 14.2.5.4: what a manager sets is no change of the port's state in this sense.
  const bool is_managers_own = state == wire::PortState::armed || state == wire::PortState::active;
  if (!changes || !is_switch() || is_managers_own) return;
  tables_.note_port_change();
  // IBTA 14.2.5.1, trap 128: the details begin with the switch's LID.
  const be16 details = own_lid(0).value;
  traps_.raise(now, TrapSender::Kind::link_state, 0,
               notice_of(true, wire::Notice::urgent, wire::trap_link_state, own_lid(0), details));
}

void Node::link_up(Time now, std::uint8_t port, const wire::PortInfo& neighbour) {
  wire::PortInfo& info = ports_[port].info;
  const unsigned widths = info.link_width_enabled & neighbour.link_width_enabled;
  const unsigned speeds =
      lower_half(info.speed_active_and_enabled) & lower_half(neighbour.speed_active_and_enabled);
  const unsigned extended = info.extended_speed_enabled & neighbour.extended_speed_enabled;
  if (widths == 0 || (speeds == 0 && extended == 0)) return;
  info.link_width_active = highest_bit(widths);
  info.speed_active_and_enabled =
      halves(highest_bit(speeds), lower_half(info.speed_active_and_enabled));
  info.extended_speed_active_and_supported =
      halves(highest_bit(extended), lower_half(info.extended_speed_active_and_supported));
  set_state(now, port, wire::PortState::initialise, wire::PhysicalState::link_up);
}

void Node::link_down(Time now, std::uint8_t port) {
  set_state(now, port, wire::PortState::down,
            ports_[port].is_enabled ? wire::PhysicalState::polling : wire::PhysicalState::disabled);
}

std::uint8_t Node::take_restarted_link() {
  for (std::uint8_t number = 1; number <= ports(); ++number) {
    if (std::exchange(ports_[number].has_restarted_link, false)) return number;
  }
  return no_port;
}

bool Node::has_restarted_link() const {
  return std::any_of(ports_.begin(), ports_.end(),
                     [](const Port& port) { return port.has_restarted_link; });
}

// --- packets ---

bool Node::has_port(std::uint32_t port) const {
  return port <= ports() && (port > 0 || is_switch());
}

// IBTA 14.2.4: without the manager's key, nobody sets anything, and what may be read depends on the
// protection. A request that may not is not answered.
bool Node::may_ask(Time now, const wire::MadHeader& header, const wire::SubnetHeader& subnet,
                   std::uint8_t number) {
  Port& port = ports_[addressed_port(number)];
  wire::PortInfo& info = port.info;
  if (now >= port.key_lease_end) {
    // The manager did not come back to renew its lease: anybody may take over.
    port.key_lease_end = Time::never();
    info.key_protection_and_lid_mask_control &= 0x3F;
  }
  if (info.management_key == 0 || info.management_key == subnet.management_key) {
    // A repress repeats the key of its trap, which is no sign that the manager knows it.
    if (header.method != method_trap_repress) port.key_lease_end = Time::never();
    return true;
  }
  const unsigned protection = key_protection_of(info);
  if (header.method == method_get && protection < 2) return true;
  if (info.management_key_violations != 0xFFFF) {
    info.management_key_violations =
        static_cast<std::uint16_t>(info.management_key_violations + 1u);
  }
  if (info.key_lease_period != 0 && port.key_lease_end.is_never()) {
    port.key_lease_end = now + Time::seconds(info.key_lease_period);
  }
  // IBTA 14.2.5.1, trap 256.
  wire::BadKeyDetails details;
  details.lid = own_lid(number).value;
  details.directed_source = subnet.directed_source;
  details.method = header.method;
  details.attribute_id = header.attribute_id;
  details.attribute_modifier = header.attribute_modifier;
  // Not the key that was tried: it may be the manager's, which asks a port that another has taken.
  traps_.raise(
      now, TrapSender::Kind::bad_key, addressed_port(number),
      notice_of(is_switch(), wire::Notice::security, wire::trap_bad_key, own_lid(number), details));
  return false;
}

void Node::end_lease(std::uint16_t manager) {
  for (Port& port : ports_) {
    const bool is_its = port.info.master_sm_lid == manager && port.info.key_lease_period != 0;
    if (is_its) port.info.key_protection_and_lid_mask_control &= 0x3F;
  }
}

Node::Outcome Node::handle(Time now, Answer packet, std::uint8_t port) {
  const wire::MadHeader header = header_of(packet);
  const bool is_directed = header.management_class == wire::subnet_directed_class;
  const std::uint16_t direction = is_directed ? wire::directed_route_returns : 0;
  if (header.base_version != wire::MadHeader::current_base_version ||
      header.class_version != wire::subnet_class_version) {
    if (!asks(header)) return Outcome::nothing;
    begin_answer(packet, Status::bad_version, direction, packet);
    return Outcome::answered;
  }
  if (header.method == method_trap_repress) {
    if (!may_ask(now, header, subnet_header_of(packet), port)) return Outcome::nothing;
    if (traps_.repress(header)) return Outcome::nothing;
    // A manager in standby sends traps, too, and waits for their answers. It does not learn the
    // key.
    wire::SubnetHeader subnet = subnet_header_of(packet);
    subnet.management_key = 0;
    std::memcpy(packet.data() + wire::subnet_header_offset, &subnet, sizeof subnet);
    return Outcome::for_manager;
  }
  if (!asks(header) || header.attribute_id == wire::attribute_sm_info) return Outcome::for_manager;
  const wire::SubnetHeader subnet = subnet_header_of(packet);
  if (!may_ask(now, header, subnet, port)) return Outcome::nothing;
  const auto data = packet.subspan<wire::subnet_data_offset, wire::subnet_data_bytes>();
  Status status = Status::ok;
  if (header.method == method_set) status = set(now, header, port, data);
  if (status == Status::ok) {
    std::fill(data.begin(), data.end(), std::byte{0});
    status = get(header, subnet, port, data);
  }
  begin_answer(packet, status, direction, packet);
  return Outcome::answered;
}

// --- events ---

void Node::set_manager(Time now, std::uint8_t number, bool is_manager) {
  wire::PortInfo& info = ports_[number].info;
  const std::uint32_t before = info.capability_mask;
  const std::uint32_t after =
      is_manager ? before | wire::capability_is_sm : before & ~wire::capability_is_sm;
  if (before == after) return;
  info.capability_mask = after;
  // IBTA 14.2.5.1, trap 144.
  wire::CapabilityDetails details;
  details.lid = own_lid(number).value;
  details.capability_mask = after;
  traps_.raise(now, TrapSender::Kind::capability, number,
               notice_of(is_switch(), wire::Notice::informational, wire::trap_capability,
                         own_lid(number), details));
}

bool Node::take_reregistration(std::uint8_t port) {
  return std::exchange(ports_[port].wants_reregistration, false);
}

std::optional<std::uint8_t> Node::take_trap(Time now, Answer packet) {
  const auto port = traps_.take(now, packet);
  if (!port) return port;
  wire::SubnetHeader subnet;
  subnet.management_key = ports_[*port].info.management_key;
  std::memcpy(packet.data() + wire::subnet_header_offset, &subnet, sizeof subnet);
  return port;
}

}  // namespace tulle::management::subnet

// This file has the attributes that a subnet manager reads and sets at a node (IBTA 14.2.5).

#include <algorithm>
#include <cstring>
#include <utility>

#include "management/subnet/node.h"
#include "management/subnet/table_block.h"

namespace tulle::management::subnet {

using wire::halves;
using wire::lower_half;
using wire::upper_half;

namespace {

using Data = std::span<std::byte>;
using ConstData = std::span<const std::byte>;

template <typename Attribute>
Attribute read_from(ConstData data) {
  Attribute attribute;
  std::memcpy(&attribute, data.data(), sizeof attribute);
  return attribute;
}

template <typename Attribute>
void write_to(const Attribute& attribute, Data data) {
  std::memcpy(data.data(), &attribute, sizeof attribute);
}

}  // namespace

// An adapter's port 0 in a modifier means the port that received the request.
std::uint32_t Node::port_of_modifier(std::uint32_t modifier, std::uint8_t in_port) const {
  return modifier == 0 && !is_switch() ? in_port : modifier;
}

wire::NodeInfo Node::node_info(std::uint8_t in_port) const {
  wire::NodeInfo out;
  out.node_type = is_switch() ? wire::NodeInfo::switch_node : wire::NodeInfo::channel_adapter;
  out.ports = ports();
  out.system_image_guid = settings_.guid;
  out.node_guid = settings_.guid;
  out.port_guid = port_guid(in_port);
  out.partitions = static_cast<std::uint16_t>(wire::pkeys_in_block);
  out.device_id = settings_.device_id;
  out.revision = settings_.revision;
  out.local_port = in_port;
  out.vendor_id = settings_.vendor_id;
  return out;
}

// A switch's ports share the addresses and the key of port 0, and show none. The key is shown to
// requesters that have it, or where it protects nothing (IBTA 14.2.4).
wire::PortInfo Node::shown_port_info(std::uint32_t number, std::uint8_t in_port,
                                     std::uint64_t key) const {
  wire::PortInfo info = ports_[number].info;
  info.local_port = in_port;
  const bool is_protected = wire::key_protection_of(info) != 0;
  if (is_protected && info.management_key != key) info.management_key = 0;
  if (is_switch() && number > 0) {
    info.management_key = 0;
    info.gid_prefix = 0;
    info.capability_mask = 0;
    info.guids = 0;
  }
  return info;
}

Status Node::get(const wire::MadHeader& header, const wire::SubnetHeader& subnet,
                 std::uint8_t in_port, Data data) {
  switch (header.attribute_id) {
    case wire::attribute_node_info:
      write_to(node_info(in_port), data);
      return Status::ok;
    case wire::attribute_node_description:
      std::memcpy(data.data(), settings_.description.data(),
                  std::min(settings_.description.size(), data.size()));
      return Status::ok;
    case wire::attribute_switch_info:
      if (!is_switch()) return Status::attribute_not_supported;
      write_to(tables_.info(), data);
      return Status::ok;
    case wire::attribute_port_info: {
      const std::uint32_t number = port_of_modifier(header.attribute_modifier & 0xFF, in_port);
      if (!has_port(number)) return Status::invalid_value;
      write_to(shown_port_info(number, in_port, subnet.management_key), data);
      return Status::ok;
    }
    default: {
      const Block block = block_at(header, in_port);
      std::copy(block.bytes.begin(), block.bytes.end(), data.begin());
      return block.status;
    }
  }
}

Status Node::set(Time now, const wire::MadHeader& header, std::uint8_t in_port, ConstData data) {
  switch (header.attribute_id) {
    case wire::attribute_switch_info:
      if (!is_switch()) return Status::attribute_not_supported;
      return tables_.set_info(read_from<wire::SwitchInfo>(data));
    case wire::attribute_port_info: {
      const std::uint32_t number = port_of_modifier(header.attribute_modifier & 0xFF, in_port);
      if (!has_port(number)) return Status::invalid_value;
      return set_port_info(now, number, read_from<wire::PortInfo>(data));
    }
    default: {
      const Block block = block_at(header, in_port);
      if (block.status != Status::ok) return block.status;
      std::copy_n(data.begin(), block.bytes.size(), block.bytes.begin());
      if (header.attribute_id == wire::attribute_vl_arbitration) ++arbitration_writes_;
      // IBTA 14.2.5.5: the first GUID is the port's own.
      ports_[addressed_port(in_port)].guids[0] = port_guid(in_port);
      return Status::ok;
    }
  }
}

// --- tables ---

// All tables are kept as they are on the wire, so that a block is read and set as bytes.
Node::Block Node::block_at(const wire::MadHeader& header, std::uint8_t in_port) {
  const std::uint32_t modifier = header.attribute_modifier;
  const std::uint32_t first = modifier >> 16;
  const std::uint32_t second = modifier & 0xFFFF;
  const auto found = [](Data bytes) {
    return Block{bytes, bytes.empty() ? Status::invalid_value : Status::ok};
  };
  switch (header.attribute_id) {
    case wire::attribute_guid_info:
      return found(block_of(ports_[addressed_port(in_port)].guids, modifier, wire::guids_in_block));
    case wire::attribute_pkey_table: {
      // IBTA 14.2.5.7: the upper half is a switch's port.
      const std::uint32_t number = is_switch() ? first : in_port;
      if (!has_port(number)) return {};
      return found(block_of(ports_[number].pkeys, second, wire::pkeys_in_block));
    }
    case wire::attribute_sl_to_vl: {
      // IBTA 14.2.5.8: at a switch, bits 15:8 are the input port, and bits 7:0 the output port.
      const std::uint32_t output = is_switch() ? modifier & 0xFF : in_port;
      const std::uint32_t input = is_switch() ? modifier >> 8 & 0xFF : 0;
      if (!has_port(output) || input > ports()) return {};
      return found(std::as_writable_bytes(std::span(ports_[output].sl_to_vl[input])));
    }
    case wire::attribute_vl_arbitration: {
      // IBTA 14.2.5.9: the upper half is the block, from 1 on, and the lower half the port.
      const std::uint32_t number = port_of_modifier(second, in_port);
      if (!has_port(number) || first < 1 || first > arbitration_blocks) return {};
      return found(ports_[number].arbitration[first - 1]);
    }
    case wire::attribute_linear_forwarding:
      if (!is_switch()) return {{}, Status::attribute_not_supported};
      return found(tables_.linear_block(modifier));
    case wire::attribute_multicast_forwarding:
      if (!is_switch()) return {{}, Status::attribute_not_supported};
      return found(tables_.multicast_block(modifier));
    default:
      return {{}, Status::attribute_not_supported};
  }
}

// --- PortInfo ---

Status Node::set_port_info(Time now, std::uint32_t number, const wire::PortInfo& wanted) {
  const auto port = static_cast<std::uint8_t>(number);
  const unsigned lmc = wire::lmc_of(wanted);
  const bool has_addresses = !is_switch() || port == 0;
  if (has_addresses && wanted.lid > wire::unicast_lid_max) return Status::invalid_value;
  if (has_addresses && (wanted.lid & ((1u << lmc) - 1)) != 0) return Status::invalid_value;
  if (port > 0) {
    set_link_limits(port, wanted);
    if (const Status status = set_link_states(now, port, wanted); status != Status::ok) {
      return status;
    }
  }
  if (has_addresses) set_addresses(port, wanted);
  return Status::ok;
}

void Node::set_addresses(std::uint8_t number, const wire::PortInfo& wanted) {
  Port& port = ports_[number];
  wire::PortInfo& info = port.info;
  info.management_key = wanted.management_key;
  info.gid_prefix = wanted.gid_prefix;
  info.lid = wanted.lid;
  info.master_sm_lid = wanted.master_sm_lid;
  info.key_lease_period = wanted.key_lease_period;
  info.key_protection_and_lid_mask_control = wanted.key_protection_and_lid_mask_control & 0xC7;
  info.neighbor_mtu_and_master_sm_sl = halves(upper_half(info.neighbor_mtu_and_master_sm_sl),
                                              lower_half(wanted.neighbor_mtu_and_master_sm_sl));
  info.management_key_violations = wanted.management_key_violations;
  info.pkey_violations = wanted.pkey_violations;
  info.qkey_violations = wanted.qkey_violations;
  constexpr std::uint8_t client_reregister = 0x80;
  if ((wanted.subnet_timeout & client_reregister) != 0) port.wants_reregistration = true;
  // The bit stays set in the answer, by which a manager sees that the port knows it.
  info.subnet_timeout = wanted.subnet_timeout & (client_reregister | 0x1F);
}

// Zero leaves an enabled width or speed as it is. All ones mean all that the port supports.
void Node::set_link_limits(std::uint8_t number, const wire::PortInfo& wanted) {
  wire::PortInfo& info = ports_[number].info;
  constexpr std::uint8_t all_widths = 0xFF;
  constexpr std::uint8_t all_speeds = 0xF;
  constexpr std::uint8_t all_extended_speeds = 0x1F;
  constexpr std::uint8_t no_extended_speeds = 30;
  const std::uint8_t widths = wanted.link_width_enabled;
  if (widths == all_widths) {
    info.link_width_enabled = info.link_width_supported;
  } else if (widths != 0) {
    info.link_width_enabled = widths & info.link_width_supported;
  }
  const std::uint8_t speeds = lower_half(wanted.speed_active_and_enabled);
  const std::uint8_t supported = upper_half(info.speed_supported_and_state);
  if (speeds != 0) {
    info.speed_active_and_enabled = halves(upper_half(info.speed_active_and_enabled),
                                           speeds == all_speeds ? supported : speeds & supported);
  }
  const std::uint8_t extended = wanted.extended_speed_enabled & all_extended_speeds;
  const std::uint8_t extended_supported = lower_half(info.extended_speed_active_and_supported);
  if (extended == all_extended_speeds) {
    info.extended_speed_enabled = extended_supported;
  } else if (extended == no_extended_speeds) {
    info.extended_speed_enabled = 0;
  } else if (extended != 0) {
    info.extended_speed_enabled = extended & extended_supported;
  }
  const std::uint8_t mtu = upper_half(wanted.neighbor_mtu_and_master_sm_sl);
  if (mtu != 0) {
    info.neighbor_mtu_and_master_sm_sl =
        halves(mtu, lower_half(info.neighbor_mtu_and_master_sm_sl));
  }
  const std::uint8_t lanes = upper_half(wanted.operational_lanes_and_enforcement);
  info.operational_lanes_and_enforcement =
      halves(lanes != 0 ? lanes : upper_half(info.operational_lanes_and_enforcement),
             lower_half(wanted.operational_lanes_and_enforcement));
  if (std::exchange(info.vl_high_limit, wanted.vl_high_limit) != wanted.vl_high_limit) {
    ++arbitration_writes_;
  }
  info.stall_count_and_queue_life = wanted.stall_count_and_queue_life;
  info.physical_and_overrun_error_thresholds = wanted.physical_and_overrun_error_thresholds;
  if (is_switch()) {
    // Each port of a switch shows these three as they were set, though only port 0 has a use.
    info.lid = wanted.lid;
    info.master_sm_lid = wanted.master_sm_lid;
    info.key_protection_and_lid_mask_control = wanted.key_protection_and_lid_mask_control & 0x07;
  }
}

// IBTA 14.2.5.6 and table 146: a manager takes a link down, arms it and makes it active. Any other
// change is the link's own.
Status Node::set_link_states(Time now, std::uint8_t number, const wire::PortInfo& wanted) {
  Port& port = ports_[number];
  const auto physical =
      static_cast<wire::PhysicalState>(upper_half(wanted.physical_state_and_down_default));
  const auto wanted_state =
      static_cast<wire::PortState>(lower_half(wanted.speed_supported_and_state));
  const bool restarts =
      physical == wire::PhysicalState::polling || wanted_state == wire::PortState::down;
  const bool disables = physical == wire::PhysicalState::disabled;
  if (physical != wire::PhysicalState::none && !restarts && !disables &&
      physical != wire::PhysicalState::sleep) {
    return Status::invalid_value;
  }
  const std::uint8_t down_default = lower_half(wanted.physical_state_and_down_default);
  if (down_default != 0) {
    port.info.physical_state_and_down_default =
        halves(upper_half(port.info.physical_state_and_down_default), down_default);
  }
  if (disables || restarts) {
    port.is_enabled = !disables;
    port.has_restarted_link = true;
    return Status::ok;
  }
  switch (wanted_state) {
    case wire::PortState::none:
      return Status::ok;
    case wire::PortState::armed:
      if (state(number) != wire::PortState::initialise && state(number) != wire::PortState::armed) {
        return Status::invalid_value;
      }
      break;
    case wire::PortState::active:
      if (state(number) != wire::PortState::armed && state(number) != wire::PortState::active) {
        return Status::invalid_value;
      }
      break;
    default:
      return Status::invalid_value;
  }
  set_state(now, number, wanted_state, physical_state(number));
  return Status::ok;
}

}  // namespace tulle::management::subnet

#include "management/subnet/forwarding_tables.h"

#include "management/subnet/table_block.h"

namespace tulle::management::subnet {

ForwardingTables::ForwardingTables(std::uint8_t ports, std::uint16_t linear_entries,
                                   std::uint16_t multicast_entries)
    : ports_(ports), linear_(linear_entries, no_port) {
  for (auto& masks : multicast_) masks.assign(multicast_entries, 0);
  info_.linear_entries_max = linear_entries;
  info_.multicast_entries_max = multicast_entries;
  info_.lids_per_port = 0;
  info_.default_port = info_.default_multicast_primary_port = info_.default_multicast_other_port =
      no_port;
  info_.pkey_entries_max = wire::pkeys_in_block;
  info_.flags = wire::SwitchInfo::enforces_inbound | wire::SwitchInfo::enforces_outbound;
}

std::uint8_t ForwardingTables::output_port(Lid lid) const {
  if (lid.value > info_.linear_top || lid.value >= linear_.size()) return no_port;
  const std::uint8_t port = linear_[lid.value];
  return port <= ports_ ? port : no_port;
}

bool ForwardingTables::forwards_multicast(Lid lid, std::uint8_t port) const {
  if (lid.value <= wire::unicast_lid_max || lid.value == wire::permissive_lid) return false;
  const std::size_t entry = lid.value - (wire::unicast_lid_max + 1u);
  const auto& masks = multicast_[port / wire::multicast_ports_in_block];
  return entry < masks.size() && (masks[entry] >> port % wire::multicast_ports_in_block & 1) != 0;
}

Status ForwardingTables::set_info(const wire::SwitchInfo& wanted) {
  if (wanted.linear_top >= info_.linear_entries_max) return Status::invalid_value;
  info_.linear_top = wanted.linear_top;
  info_.default_port = wanted.default_port;
  info_.default_multicast_primary_port = wanted.default_multicast_primary_port;
  info_.default_multicast_other_port = wanted.default_multicast_other_port;
  info_.multicast_top = wanted.multicast_top;
  // IBTA 14.2.5.4: writing a one to PortStateChange takes it back.
  constexpr std::uint8_t life_time = 0xF8;
  const std::uint8_t change = info_.life_and_change & wire::SwitchInfo::port_state_change &
                              static_cast<std::uint8_t>(~wanted.life_and_change);
  info_.life_and_change = static_cast<std::uint8_t>((wanted.life_and_change & life_time) | change);
  return Status::ok;
}

std::span<std::byte> ForwardingTables::linear_block(std::uint32_t modifier) {
  return block_of(linear_, modifier, wire::linear_entries_in_block);
}

// IBTA 14.2.5.11: bits 8:0 are the block, and bits 31:28 the group of ports.
std::span<std::byte> ForwardingTables::multicast_block(std::uint32_t modifier) {
  return block_of(multicast_[modifier >> 28], modifier & 0x1FF, wire::multicast_entries_in_block);
}

}  // namespace tulle::management::subnet

#pragma once

// Subnet management packets (IBTA 14.2.1): the common header, a key, the path of a directed route,
// and an attribute of 64 bytes.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"
#include "rdma/wire/lrh.h"

namespace tulle::wire {

// Management classes (IBTA 13.4.4, table 104).
inline constexpr std::uint8_t subnet_class = 0x01;           // routed by LID
inline constexpr std::uint8_t subnet_directed_class = 0x81;  // routed hop by hop
inline constexpr std::uint8_t subnet_class_version = 1;
inline constexpr std::size_t subnet_data_offset = 64;
inline constexpr std::size_t subnet_data_bytes = 64;

// A directed route uses two fields of the common header (IBTA 14.2.1.2): bit 15 of the status gives
// the direction, and the class-specific bytes are the hop pointer and the hop count.
inline constexpr std::uint16_t directed_route_returns = 0x8000;
constexpr std::uint8_t hop_count_of(std::uint16_t class_specific) {
  return static_cast<std::uint8_t>(class_specific);
}
constexpr std::uint8_t hop_pointer_of(std::uint16_t class_specific) {
  return static_cast<std::uint8_t>(class_specific >> 8);
}
inline constexpr std::uint8_t hops_max = 63;  // IBTA 14.2.1.2: the paths have 64 entries

// This header follows the common one in both classes (IBTA 14.2.1.1 and 14.2.1.2). A datagram that
// is routed by LID leaves the fields of the directed route unused.
struct SubnetHeader {
  be64 management_key;
  be16 directed_source;  // DrSLID: the permissive LID unless the route begins by LID
  be16 directed_destination;
  std::array<std::uint8_t, 28> reserved{};
};
inline constexpr std::size_t subnet_header_offset = 24;
static_assert(is_wire_format<SubnetHeader, 40>);

// Output ports of a directed route hop by hop, from entry 1 on, and the ports of its way back.
inline constexpr std::size_t initial_path_offset = 128;
inline constexpr std::size_t return_path_offset = 192;

// Attributes (IBTA 14.2.5, table 115).
inline constexpr std::uint16_t attribute_notice = 0x0002;
inline constexpr std::uint16_t attribute_node_description = 0x0010;
inline constexpr std::uint16_t attribute_node_info = 0x0011;
inline constexpr std::uint16_t attribute_switch_info = 0x0012;
inline constexpr std::uint16_t attribute_guid_info = 0x0014;
inline constexpr std::uint16_t attribute_port_info = 0x0015;
inline constexpr std::uint16_t attribute_pkey_table = 0x0016;
inline constexpr std::uint16_t attribute_sl_to_vl = 0x0017;
inline constexpr std::uint16_t attribute_vl_arbitration = 0x0018;
inline constexpr std::uint16_t attribute_linear_forwarding = 0x0019;
inline constexpr std::uint16_t attribute_multicast_forwarding = 0x001B;
inline constexpr std::uint16_t attribute_sm_info = 0x0020;

// Entries of the tables in one attribute (IBTA 14.2.5.5, 14.2.5.7 to 14.2.5.12).
inline constexpr std::size_t guids_in_block = 8;
inline constexpr std::size_t pkeys_in_block = 32;
inline constexpr std::size_t linear_entries_in_block = 64;
inline constexpr std::size_t multicast_entries_in_block = 32;
inline constexpr std::size_t multicast_ports_in_block = 16;

// Fields that share a byte are in its halves.
constexpr std::uint8_t upper_half(std::uint8_t byte) {
  return static_cast<std::uint8_t>(byte >> 4);
}
constexpr std::uint8_t lower_half(std::uint8_t byte) { return byte & 0xF; }
constexpr std::uint8_t halves(unsigned upper, unsigned lower) {
  return static_cast<std::uint8_t>(upper << 4 | (lower & 0xF));
}

// Values of PortInfo's PortState and PortPhysicalState (IBTA 14.2.5.6). In a Set, 0 changes
// nothing.
enum class PortState : std::uint8_t { none = 0, down = 1, initialise = 2, armed = 3, active = 4 };
enum class PhysicalState : std::uint8_t {
  none = 0,
  sleep = 1,
  polling = 2,
  disabled = 3,
  training = 4,
  link_up = 5,
  error_recovery = 6,
};

// Bits of PortInfo's CapabilityMask (IBTA 14.2.5.6).
inline constexpr std::uint32_t capability_is_sm = 1u << 1;
inline constexpr std::uint32_t capability_trap = 1u << 3;
inline constexpr std::uint32_t capability_automatic_migration = 1u << 5;
inline constexpr std::uint32_t capability_sl_mapping = 1u << 6;
inline constexpr std::uint32_t capability_system_image_guid = 1u << 11;
inline constexpr std::uint32_t capability_extended_speeds = 1u << 14;
inline constexpr std::uint32_t capability_communication_management = 1u << 16;
inline constexpr std::uint32_t capability_client_reregistration = 1u << 25;

// IBTA 14.2.5.3.
struct NodeInfo {
  static constexpr std::uint8_t channel_adapter = 1;
  static constexpr std::uint8_t switch_node = 2;

  std::uint8_t base_version = 1;
  std::uint8_t class_version = 1;
  std::uint8_t node_type = channel_adapter;
  std::uint8_t ports = 1;
  be64 system_image_guid;
  be64 node_guid;
  be64 port_guid;
  be16 partitions;
  be16 device_id;
  be32 revision;
  std::uint8_t local_port = 1;
  be24 vendor_id;
};
static_assert(is_wire_format<NodeInfo, 40>);

// IBTA 14.2.5.6. Fields that share a byte are named from the high bits on.
struct PortInfo {
  // These are bits of `operational_lanes_and_enforcement`.
  static constexpr std::uint8_t enforces_inbound = 0x08;
  static constexpr std::uint8_t enforces_outbound = 0x04;

  be64 management_key;
  be64 gid_prefix;
  be16 lid;
  be16 master_sm_lid;
  be32 capability_mask;
  be16 diagnostic_code;
  be16 key_lease_period;
  std::uint8_t local_port = 1;
  std::uint8_t link_width_enabled = 0;
  std::uint8_t link_width_supported = 0;
  std::uint8_t link_width_active = 0;
  std::uint8_t speed_supported_and_state = 0;            // 4, 4
  std::uint8_t physical_state_and_down_default = 0;      // 4, 4
  std::uint8_t key_protection_and_lid_mask_control = 0;  // 2, 3 reserved, 3
  std::uint8_t speed_active_and_enabled = 0;             // 4, 4
  std::uint8_t neighbor_mtu_and_master_sm_sl = 0;        // 4, 4
  std::uint8_t virtual_lanes_and_init_type = 0;          // 4, 4
  std::uint8_t vl_high_limit = 0;
  std::uint8_t vl_arbitration_high = 0;
  std::uint8_t vl_arbitration_low = 0;
  std::uint8_t init_type_reply_and_mtu = 0;            // 4, 4
  std::uint8_t stall_count_and_queue_life = 0;         // 3, 5
  std::uint8_t operational_lanes_and_enforcement = 0;  // 4, 4 flags: enforces_inbound …
  be16 management_key_violations;
  be16 pkey_violations;
  be16 qkey_violations;
  std::uint8_t guids = 0;
  std::uint8_t subnet_timeout = 0;                         // 3 flags, 5
  std::uint8_t response_time = 0;                          // 3 reserved, 5
  std::uint8_t physical_and_overrun_error_thresholds = 0;  // 4, 4
  be16 credit_hint;
  be32 round_trip_latency;  // 8 reserved, 24
  be16 capability_mask2;
  std::uint8_t extended_speed_active_and_supported = 0;  // 4, 4
  std::uint8_t extended_speed_enabled = 0;               // 3 reserved, 5
};
static_assert(is_wire_format<PortInfo, 64>);

constexpr unsigned lmc_of(const PortInfo& info) {
  return info.key_protection_and_lid_mask_control & 7;
}
// Returns the lanes of a link's active width. The width must not be 0.
constexpr unsigned lanes_of(std::uint8_t width) {
  constexpr std::array<unsigned, 5> lanes_of_bit = {1, 4, 8, 12, 2};
  return lanes_of_bit[static_cast<std::size_t>(std::bit_width(width & 0x1Fu)) - 1];
}
// Returns the rate of a link in units of 100 Mb/s, from its active width and speed; 0: it has none.
constexpr unsigned link_rate_of(const PortInfo& info) {
  constexpr std::array<unsigned, 4> extended = {140, 250, 500, 1'000};
  const auto highest = [](unsigned bits) {
    return static_cast<std::size_t>(std::bit_width(bits)) - 1;
  };
  const unsigned width = info.link_width_active & 0x1Fu;
  const unsigned fast = upper_half(info.extended_speed_active_and_supported);
  const unsigned slow = upper_half(info.speed_active_and_enabled);
  if (width == 0 || (fast == 0 && slow == 0)) return 0;
  const unsigned lane = fast != 0 ? extended[highest(fast)] : 25u << highest(slow);
  return lane * lanes_of(info.link_width_active);
}
// Returns the bits of data that a link carries in a second, without those of its line code (IBTA
// volume 2, 5.6 and 5.10: eight of ten bits up to QDR, then 64 of 66); 0: it has no rate.
constexpr std::int64_t data_bits_per_second_of(const PortInfo& info) {
  constexpr std::int64_t unit = 100'000'000;
  const std::int64_t named = link_rate_of(info) * unit;
  const unsigned extended = upper_half(info.extended_speed_active_and_supported);
  if (extended == 0) return named / 10 * 8;
  // FDR is named after its 14.06 Gb/s with the code, and faster links after their data.
  return extended == 1 ? named / 14'000 * 13'636 : named;
}
constexpr unsigned key_protection_of(const PortInfo& info) {
  return info.key_protection_and_lid_mask_control >> 6;
}

// IBTA 14.2.5.4.
struct SwitchInfo {
  static constexpr std::uint8_t port_state_change = 0x04;  // in `life_and_change`
  static constexpr std::uint8_t enforces_inbound = 0x80;   // in `flags`
  static constexpr std::uint8_t enforces_outbound = 0x40;

  be16 linear_entries_max;
  be16 random_entries_max;
  be16 multicast_entries_max;
  be16 linear_top;  // last LID that the table forwards
  std::uint8_t default_port = 0;
  std::uint8_t default_multicast_primary_port = 0;
  std::uint8_t default_multicast_other_port = 0;
  std::uint8_t life_and_change = 0;  // life time 5, port state change 1, optimised SL to VL 2
  be16 lids_per_port;
  be16 pkey_entries_max;
  std::uint8_t flags = 0;
  std::uint8_t reserved = 0;
  be16 multicast_top;
};
static_assert(is_wire_format<SwitchInfo, 20>);

// IBTA 14.2.5.13.
struct SmInfo {
  be64 guid;  // of the manager's port
  be64 key;
  be32 activity;                        // grows as the manager works
  std::uint8_t priority_and_state = 0;  // 4, 4
};
static_assert(is_wire_format<SmInfo, 21>);

// States of a subnet manager, as SMInfo gives them (IBTA 14.4.1).
enum class ManagerState : std::uint8_t { not_active = 0, discovering = 1, standby = 2, master = 3 };
// Attribute modifiers by which one manager directs another, with a Set of SMInfo (IBTA 14.4.1).
enum class ManagerControl : std::uint32_t {
  handover = 1,
  acknowledge = 2,
  disable = 3,
  standby = 4,
  discover = 5,
};

// A notice of generic type (IBTA 13.4.8.2), as a trap of the subnet carries it.
struct Notice {
  static constexpr std::uint8_t generic = 0x80;  // in `generic_and_type`
  static constexpr std::uint8_t urgent = 1;      // types
  static constexpr std::uint8_t security = 2;
  static constexpr std::uint8_t informational = 4;

  std::uint8_t generic_and_type = 0;  // generic 1, type 7
  be24 producer;                      // a node type of NodeInfo
  be16 trap;
  be16 issuer_lid;
  be16 toggle_and_count;  // toggle 1, count 15
  std::array<std::uint8_t, 54> details{};
};
static_assert(is_wire_format<Notice, 64>);

// Traps of the subnet (IBTA 14.2.5.1, table 131) and the details that their notices have.
inline constexpr std::uint16_t trap_link_state = 128;  // details: the switch's LID
inline constexpr std::uint16_t trap_capability = 144;
inline constexpr std::uint16_t trap_bad_key = 256;

struct CapabilityDetails {
  be16 reserved;
  be16 lid;
  std::uint8_t reserved2 = 0;
  std::uint8_t local_changes = 0;
  be32 capability_mask;
  be16 changes;
};
static_assert(is_wire_format<CapabilityDetails, 12>);

struct BadKeyDetails {
  be16 reserved;
  be16 lid;
  be16 directed_source;
  std::uint8_t method = 0;
  std::uint8_t reserved2 = 0;
  be16 attribute_id;
  be32 attribute_modifier;
  be64 management_key;
  std::uint8_t reserved3 = 0;
  std::uint8_t hops = 0;
  std::array<std::uint8_t, 30> return_path{};
};
static_assert(is_wire_format<BadKeyDetails, 54>);

}  // namespace tulle::wire

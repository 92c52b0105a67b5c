#pragma once

// Subnet management packets (IBTA 14.2.1): the common header, a key, the path of a directed route,
// and an attribute of 64 bytes.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/big_endian.h"
#include "wire/header.h"

namespace tulle::wire {

// Management classes (IBTA 13.4.4, table 104).
inline constexpr std::uint8_t subnet_class = 0x01;           // routed by LID
inline constexpr std::uint8_t subnet_directed_class = 0x81;  // routed hop by hop
inline constexpr std::uint8_t subnet_class_version = 1;
inline constexpr std::size_t subnet_data_offset = 64;
inline constexpr std::size_t subnet_data_bytes = 64;

// A directed route uses two fields of the common header (IBTA 14.2.1.2): bit 15 of the status gives
// the direction, and the class-specific bytes count hops.
inline constexpr std::uint16_t directed_route_returns = 0x8000;
constexpr std::uint8_t hop_count_of(std::uint16_t class_specific) {
  return static_cast<std::uint8_t>(class_specific);
}

// Attributes (IBTA 14.2.5, table 115).
inline constexpr std::uint16_t attribute_node_description = 0x0010;
inline constexpr std::uint16_t attribute_node_info = 0x0011;
inline constexpr std::uint16_t attribute_port_info = 0x0015;

// IBTA 14.2.5.3.
struct NodeInfo {
  static constexpr std::uint8_t channel_adapter = 1;

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
  std::uint8_t operational_lanes_and_enforcement = 0;  // 4, 4 flags
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

}  // namespace tulle::wire

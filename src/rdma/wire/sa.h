#pragma once

// Subnet administration (IBTA 15.2): what follows the common header and the RMPP header in its
// datagrams, and its records.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"
#include "rdma/wire/rmpp.h"
#include "rdma/wire/smp.h"

namespace tulle::wire {

inline constexpr std::uint8_t administration_version = 2;  // of the class

// Methods besides those of all classes (IBTA 15.2.2).
inline constexpr std::uint8_t method_report = 0x06;
inline constexpr std::uint8_t method_get_table = 0x12;
inline constexpr std::uint8_t method_delete = 0x15;

// Statuses of the class, in the upper byte (IBTA 15.2.3).
inline constexpr std::uint16_t administration_no_resources = 0x0100;
inline constexpr std::uint16_t administration_bad_request = 0x0200;
inline constexpr std::uint16_t administration_no_records = 0x0300;
inline constexpr std::uint16_t administration_too_many_records = 0x0400;
inline constexpr std::uint16_t administration_unknown_gid = 0x0500;
inline constexpr std::uint16_t administration_too_little = 0x0600;

struct AdministrationHeader {
  be64 key;               // SM_Key
  be16 attribute_offset;  // distance of two records of a table, in units of 8 bytes
  be16 reserved;
  be64 components;  // bit n: the question has component n of the record
};
static_assert(is_wire_format<AdministrationHeader, 20>);
inline constexpr std::size_t administration_header_offset = rmpp_header_offset + 12;
inline constexpr std::size_t administration_data_offset = 56;
inline constexpr std::size_t administration_data_bytes = mad_bytes - administration_data_offset;

// Attributes (IBTA 15.2.4).
inline constexpr std::uint16_t attribute_inform_info = 0x0003;
inline constexpr std::uint16_t attribute_node_record = 0x0011;
inline constexpr std::uint16_t attribute_port_info_record = 0x0012;
inline constexpr std::uint16_t attribute_switch_info_record = 0x0014;
inline constexpr std::uint16_t attribute_linear_table_record = 0x0015;
inline constexpr std::uint16_t attribute_sm_info_record = 0x0018;
inline constexpr std::uint16_t attribute_link_record = 0x0020;
inline constexpr std::uint16_t attribute_service_record = 0x0031;
inline constexpr std::uint16_t attribute_path_record = 0x0035;
inline constexpr std::uint16_t attribute_member_record = 0x0038;

struct NodeRecord {
  be16 lid;
  be16 reserved;
  NodeInfo info;
  std::array<char, 64> description{};
};
static_assert(is_wire_format<NodeRecord, 108>);

struct PortInfoRecord {
  be16 lid;
  std::uint8_t port = 0;
  std::uint8_t options = 0;
  PortInfo info;
};
static_assert(is_wire_format<PortInfoRecord, 68>);

struct SwitchInfoRecord {
  be16 lid;
  be16 reserved;
  SwitchInfo info;
};
static_assert(is_wire_format<SwitchInfoRecord, 24>);

struct LinearTableRecord {
  be16 lid;
  be16 block;
  be32 reserved;
  std::array<std::uint8_t, linear_entries_in_block> ports{};
};
static_assert(is_wire_format<LinearTableRecord, 72>);

struct SmInfoRecord {
  be16 lid;
  be16 reserved;
  SmInfo info;
  std::array<std::uint8_t, 3> reserved2{};
};
static_assert(is_wire_format<SmInfoRecord, 28>);

struct LinkRecord {
  be16 from_lid;
  std::uint8_t from_port = 0;
  std::uint8_t to_port = 0;
  be16 to_lid;
  be16 reserved;
};
static_assert(is_wire_format<LinkRecord, 8>);

using GidBytes = std::array<std::uint8_t, 16>;

// IBTA 15.2.5.16. MTU, rate and life time have a selector in the two high bits.
struct PathRecord {
  static constexpr std::uint8_t reversible = 0x80;  // in `reversible_and_paths`

  be64 service_id;
  GidBytes destination_gid{};
  GidBytes source_gid{};
  be16 destination_lid;
  be16 source_lid;
  be32 raw_flow_and_hops;  // raw traffic 1, 3 reserved, flow label 20, hop limit 8
  std::uint8_t traffic_class = 0;
  std::uint8_t reversible_and_paths = 0;  // 1, 7
  be16 pkey;
  be16 qos_class_and_sl;  // 12, 4
  std::uint8_t mtu = 0;
  std::uint8_t rate = 0;
  std::uint8_t life_time = 0;
  std::uint8_t preference = 0;
  std::array<std::uint8_t, 6> reserved{};
};
static_assert(is_wire_format<PathRecord, 64>);

// Selectors of a value: the answer's is above it, below it, it, or the best there is (IBTA
// 15.2.5.16).
enum class Selector : std::uint8_t { above = 0, below = 1, exactly = 2, best = 3 };
constexpr std::uint8_t selected(Selector selector, unsigned value) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(selector) << 6 | (value & 0x3F));
}
constexpr Selector selector_of(std::uint8_t byte) { return static_cast<Selector>(byte >> 6); }
constexpr std::uint8_t selected_value(std::uint8_t byte) { return byte & 0x3F; }

// IBTA 15.2.5.14.
struct ServiceRecord {
  static constexpr std::uint32_t for_ever = 0xFFFF'FFFF;

  be64 id;
  GidBytes gid{};
  be16 pkey;
  be16 reserved;
  be32 lease_seconds;
  std::array<std::uint8_t, 16> key{};
  std::array<std::uint8_t, 64> name{};
  std::array<std::uint8_t, 64> data{};
};
static_assert(is_wire_format<ServiceRecord, 176>);

// IBTA 15.2.5.17.
struct MemberRecord {
  static constexpr std::uint8_t full_member = 1;  // join states
  static constexpr std::uint8_t non_member = 2;
  static constexpr std::uint8_t send_only_non_member = 4;
  static constexpr std::uint8_t send_only_full_member = 8;

  GidBytes group_gid{};
  GidBytes port_gid{};
  be32 qkey;
  be16 lid;
  std::uint8_t mtu = 0;
  std::uint8_t traffic_class = 0;
  be16 pkey;
  std::uint8_t rate = 0;
  std::uint8_t life_time = 0;
  be32 sl_flow_and_hops;                  // 4, 20, 8
  std::uint8_t scope_and_join_state = 0;  // 4, 4
  std::uint8_t proxy_join = 0;            // 1, 7 reserved
  be16 reserved;
};
static_assert(is_wire_format<MemberRecord, 52>);

// IBTA 13.4.8.3.
struct InformInfo {
  static constexpr std::uint16_t all = 0xFFFF;  // LIDs, types and traps

  GidBytes gid{};
  be16 first_lid;
  be16 last_lid;
  be16 reserved;
  std::uint8_t is_generic = 0;
  std::uint8_t subscribes = 0;
  be16 type;
  be16 trap;
  be24 qp;
  std::uint8_t response_time = 0;  // 3 reserved, 5
  std::uint8_t reserved2 = 0;
  be24 producer;
};
static_assert(is_wire_format<InformInfo, 36>);

// A notice of subnet administration carries the GID of its issuer (IBTA 13.4.8.2).
struct ReportedNotice {
  Notice notice;
  GidBytes issuer_gid{};
};
static_assert(is_wire_format<ReportedNotice, 80>);

}  // namespace tulle::wire

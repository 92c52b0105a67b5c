#pragma once

// Performance management datagrams (IBTA 16.1) of class 0x04: the common header, 40 reserved bytes,
// and an attribute.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"
#include "rdma/wire/mad.h"

namespace tulle::wire {

inline constexpr std::uint8_t performance_class = 0x04;  // IBTA 13.4.4, table 104
inline constexpr std::uint8_t performance_class_version = 1;
inline constexpr std::size_t performance_data_offset = 64;
inline constexpr std::uint8_t all_ports = 0xFF;  // IBTA 16.1.3.5, PortSelect

// Attributes (IBTA 16.1.2, table 203).
inline constexpr std::uint16_t attribute_port_counters = 0x0012;
inline constexpr std::uint16_t attribute_port_counters_extended = 0x001D;

// Bits of ClassPortInfo's CapabilityMask (IBTA 16.1.3.1).
inline constexpr std::uint16_t performance_all_port_select = 1 << 8;
// Extended counters, except those that count unicast and multicast packets apart.
inline constexpr std::uint16_t performance_extended_width_no_ietf = 1 << 10;

// IBTA 16.1.3.5. Counters stop at their greatest value.
struct PortCounters {
  std::uint8_t reserved = 0;
  std::uint8_t port_select = 0;
  be16 counter_select;
  be16 symbol_errors;
  std::uint8_t link_error_recoveries = 0;
  std::uint8_t link_downed = 0;
  be16 receive_errors;
  be16 receive_remote_physical_errors;
  be16 receive_switch_relay_errors;
  be16 transmit_discards;
  std::uint8_t transmit_constraint_errors = 0;
  std::uint8_t receive_constraint_errors = 0;
  std::uint8_t counter_select2 = 0;
  std::uint8_t link_integrity_and_overrun_errors = 0;  // 4 bits each
  be16 qp1_dropped;
  be16 vl15_dropped;
  be32 transmit_words;  // words of 4 bytes
  be32 receive_words;
  be32 transmit_packets;
  be32 receive_packets;
  be32 transmit_wait_ticks;
};
static_assert(is_wire_format<PortCounters, 44>);

// IBTA 16.1.4.11.
struct PortCountersExtended {
  std::uint8_t reserved = 0;
  std::uint8_t port_select = 0;
  be16 counter_select;
  be32 counter_select2;
  be64 transmit_words;  // words of 4 bytes
  be64 receive_words;
  be64 transmit_packets;
  be64 receive_packets;
  be64 unicast_transmit_packets;
  be64 unicast_receive_packets;
  be64 multicast_transmit_packets;
  be64 multicast_receive_packets;
};
static_assert(is_wire_format<PortCountersExtended, 72>);

}  // namespace tulle::wire

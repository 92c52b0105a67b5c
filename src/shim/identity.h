#pragma once

// Values that the device reports about itself, the same in the verbs calls and in the files of its
// class directory.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tulle::shim {

inline constexpr char firmware_version[] = "tulle-0.1.0";
inline constexpr char board_id[] = "tulle";
inline constexpr char driver_name[] = "tulle";
// This is no vendor's OUI. Linux's own software device reports it, since programs take 0 for a
// mistake.
inline constexpr std::uint32_t vendor_id = 0xFF'FFFF;
inline constexpr std::uint32_t vendor_part_id = 0;
inline constexpr std::uint32_t hardware_version = 0;
inline constexpr int verbs_abi_version = 1;

// A packet engine in software has no inherent rate. The device reports four lanes of EDR, which is
// about what a WRITE moves between two processes of one host. Programs choose by the rate: UCX
// takes a slow device for no better than its own copies, and with one lane it copied messages of up
// to 256 KiB piece by piece (docs/performance.md).
inline constexpr std::uint8_t link_width_4x = 2;  // IBTA 14.2.5.6, LinkWidthActive
inline constexpr std::uint8_t link_speed_edr =
    32;  // LinkSpeedExtActive 2 as the C API numbers it: 25 Gb/s a lane
inline constexpr char link_rate[] = "100 Gb/sec (4X EDR)";
inline constexpr std::uint64_t link_speed_100_megabits = 1'000;

inline constexpr std::uint8_t port_state_down = 1;  // IBTA 14.2.5.6, PortState
inline constexpr std::uint8_t port_state_active = 4;
inline constexpr std::uint8_t port_phys_state_disabled = 3;  // PortPhysicalState
inline constexpr std::uint8_t port_phys_state_link_up = 5;

inline constexpr std::uint32_t port_capabilities = 1u << 26;  // GIDs are IP addresses

// Returns the number of entries that the GID table shows: a power of two of at least 16, so that
// all entries in use fit and the table looks like one.
constexpr std::size_t gid_table_length(std::size_t in_use) {
  return std::bit_ceil(std::max<std::size_t>(in_use, 16));
}

}  // namespace tulle::shim

#pragma once

// Management datagrams (IBTA 13.4): 256 bytes in the payload of a UD SEND to QP0 or QP1. The first
// 24 bytes are the same in all classes.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/big_endian.h"
#include "base/ids.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

inline constexpr std::size_t mad_bytes = 256;
inline constexpr QpNumber general_services_qp{1};          // IBTA 3.9.4: GSI
inline constexpr Qkey general_services_qkey{0x8001'0000};  // IBTA 10.2.5.2

struct MadHeader {
  static constexpr std::uint8_t current_base_version = 1;

  std::uint8_t base_version = current_base_version;
  std::uint8_t management_class = 0;
  std::uint8_t class_version = 0;
  std::uint8_t method = 0;
  be16 status;
  be16 class_specific;
  be64 transaction_id;
  be16 attribute_id;
  be16 reserved;
  be32 attribute_modifier;
};
static_assert(is_wire_format<MadHeader, 24>);

inline constexpr std::uint16_t attribute_class_port_info = 0x0001;  // in all classes

// Describes a management class; the layout is the same in all classes (IBTA 13.4.8.1).
struct ClassPortInfo {
  std::uint8_t base_version = 1;
  std::uint8_t class_version = 1;
  be16 capability_mask;
  // CapabilityMask2 27, RespTimeValue 5: at most 4.096 us * 2^n between request and answer.
  be32 capability_mask2_response_time;
  std::array<std::uint8_t, 32> redirection{};  // zero means none
  std::array<std::uint8_t, 32> trap{};
};
static_assert(is_wire_format<ClassPortInfo, 72>);

}  // namespace tulle::wire

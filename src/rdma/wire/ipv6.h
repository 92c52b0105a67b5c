#pragma once

// IPv6 header (RFC 8200 §3), which is also the layout of the GRH (IBTA 8.3).

#include <array>
#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

struct Ipv6 {
  static constexpr std::uint32_t version = 0x6000'0000;
  static constexpr std::uint32_t version_mask = 0xF000'0000;
  static constexpr unsigned traffic_class_shift = 20;
  static constexpr std::uint32_t flow_label_mask = 0x000F'FFFF;

  be32 version_class_flow;  // version 4, traffic class 8, flow label 20
  be16 payload_length;
  std::uint8_t next_header = 0;
  std::uint8_t hop_limit = 0;
  std::array<std::uint8_t, 16> source{};
  std::array<std::uint8_t, 16> destination{};
};
static_assert(is_wire_format<Ipv6, 40>);

}  // namespace tulle::wire

#pragma once

// InfiniBand's flow control packet (IBTA 7.9.4): what the end of a link says of one virtual lane.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/big_endian.h"
#include "rdma/wire/header.h"
#include "rdma/wire/vcrc.h"

namespace tulle::wire {

struct FlowControlPacket {
  static constexpr std::uint16_t total_mask = 0x0FFF;
  static constexpr unsigned upper_shift = 12;
  static constexpr std::uint16_t normal = 0x0;      // operands
  static constexpr std::uint16_t initialise = 0x1;  // while the link comes up

  be16 operand_and_sent;  // operand 4, FCTBS 12: blocks of 64 bytes that this end has sent
  be16 lane_and_limit;    // VL 4, FCCL 12: blocks that the other end may have sent
};
static_assert(is_wire_format<FlowControlPacket, 4>);

// Both totals are taken modulo 2^12.
constexpr FlowControlPacket flow_control_packet(std::uint8_t lane, std::uint32_t sent,
                                                std::uint32_t limit) {
  FlowControlPacket packet;
  packet.operand_and_sent =
      static_cast<std::uint16_t>(FlowControlPacket::normal << FlowControlPacket::upper_shift |
                                 (sent & FlowControlPacket::total_mask));
  packet.lane_and_limit = static_cast<std::uint16_t>(lane << FlowControlPacket::upper_shift |
                                                     (limit & FlowControlPacket::total_mask));
  return packet;
}

inline constexpr std::size_t flow_control_bytes = sizeof(FlowControlPacket) + vcrc_bytes;

// Returns the packet as it is on the wire, with its CRC (LPCRC). Polynomial and seed are those of
// the VCRC.
inline std::array<std::byte, flow_control_bytes> encode(const FlowControlPacket& packet) {
  std::array<std::byte, flow_control_bytes> out;
  const auto bytes = std::as_bytes(std::span(&packet, 1));
  std::copy(bytes.begin(), bytes.end(), out.begin());
  Vcrc crc;
  crc.update(bytes);
  put_vcrc(crc.value(), std::span(out).last<vcrc_bytes>());
  return out;
}

}  // namespace tulle::wire

#pragma once

// A transport packet, decoded: the headers between the network header and the payload (BTH and its
// extension headers, IBTA 9.2 and 9.3). The transports use this struct; only `encode` and `decode`
// know where a byte is.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "rdma/wire/opcode.h"

namespace tulle::wire {

// AETH syndrome (IBTA 9.7.5.1.1): bits 6:5 are the kind, bits 4:0 its value.
enum class AckKind : std::uint8_t { ack = 0, rnr_nak = 1, reserved = 2, nak = 3 };

// NAK codes (IBTA table 45, 9.7.5.2.1).
enum class NakCode : std::uint8_t {
  psn_sequence_error = 0,
  invalid_request = 1,
  remote_access_error = 2,
  remote_operational_error = 3,
  invalid_rd_request = 4,
};

struct Syndrome {
  AckKind kind = AckKind::ack;
  std::uint8_t value = 0;  // credit code (31: none given), RNR timer code, or NakCode; 5 bits

  constexpr std::uint8_t encoded() const {
    return static_cast<std::uint8_t>(static_cast<unsigned>(kind) << 5 | (value & 0x1Fu));
  }
  static constexpr Syndrome decoded(std::uint8_t byte) {
    return {static_cast<AckKind>(byte >> 5 & 3), static_cast<std::uint8_t>(byte & 0x1F)};
  }
  constexpr bool operator==(const Syndrome&) const = default;
};

// Every field of every header. The table row of the opcode says which fields are on the wire.
struct Packet {
  // BTH
  Opcode opcode{};
  bool solicited_event = false;
  bool migration_state = true;
  std::uint8_t pad_count = 0;  // 0 to 3 bytes that follow the payload
  bool fecn = false;
  bool becn = false;
  bool ack_request = false;
  Pkey pkey = default_pkey;
  QpNumber destination_qp{};
  Psn psn{};
  // RETH, and the addresses of AtomicETH.
  RemoteKey rkey{};
  std::uint64_t virtual_address = 0;
  // AtomicETH: swap (or add) and compare. AtomicAckETH: original.
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  std::uint64_t original = 0;
  std::uint32_t dma_length = 0;  // RETH
  // AETH
  Syndrome syndrome{};
  // FETH
  std::uint8_t flush_placement = 0;    // 4 bits; bit 0: globally visible, bit 1: persistent
  std::uint8_t flush_selectivity = 0;  // 2 bits; 0: the range that RETH names, 1: the whole region
  std::uint32_t msn = 0;               // AETH, 24 bits
  // DETH
  Qkey qkey{};
  QpNumber source_qp{};
  // XRCETH
  std::uint32_t xrc_srq = 0;  // 24 bits
  // ImmDt (the application's bytes, kept in network order) or IETH.
  std::uint32_t immediate = 0;  // the four bytes of the wire, in memory order
  RemoteKey invalidate_rkey{};
  // SAETH: PSN of the packet that came early. SRD: PSN of the packet that is answered.
  Psn early_psn{};
  // SRD (rdma/wire/srd.h). It shares some fields above: Q_Key and source QP of the DETH, DMA
  // length, syndrome.
  std::uint32_t srd_context = 0;
  std::uint32_t srd_message = 0;
  std::uint32_t srd_offset = 0;
  std::uint32_t srd_held_ns = 0;  // 24 bits
  std::uint8_t srd_path = 0;
  std::uint64_t srd_received = 0;  // bit i: early_psn - 63 + i has come

  bool operator==(const Packet&) const = default;
};
static_assert(sizeof(Packet) <= 128);  // compilers clear this many bytes without a loop

// BTH 12, and the largest set of extension headers: XRCETH 4 and AtomicETH 28.
inline constexpr std::size_t header_bytes_max = 12 + 4 + 28;

// Returns the bytes of BTH and extension headers for an opcode; 0 for an opcode that is not in the
// table.
inline std::size_t header_bytes(Opcode opcode) { return info(opcode).header_bytes; }

// Returns the destination queue pair in a packet's headers. These must be at least 12 bytes, which
// is not checked.
QpNumber peek_destination_qp(std::span<const std::byte> headers);

// Returns the partition key in the same way.
Pkey peek_pkey(std::span<const std::byte> headers);

// Sets FECN (IBTA annex A10), as a switch does in a packet on its way. No checksum but the link's
// own covers the bit. Returns false if it was set before.
bool mark_fecn(std::span<std::byte> headers);

// Writes BTH and extension headers into `out`, which is at least header_bytes(packet.opcode) long
// (header_bytes_max always suffices). Returns the bytes written. Reserved bits are sent as zero.
// The opcode must be in the table.
std::size_t encode(const Packet& packet, std::span<std::byte> out);

enum class DecodeStatus : std::uint8_t { ok, truncated, unknown_opcode, bad_version };

struct Decoded {
  DecodeStatus status = DecodeStatus::truncated;
  std::size_t header_bytes = 0;
};

// Reads BTH and extension headers from the front of `in` into `packet`. Fields that the opcode does
// not have get their defaults, and reserved bits are ignored. Unless the status is ok, `packet` is
// left as it was.
[[nodiscard]] Decoded decode(std::span<const std::byte> in, Packet& packet);

}  // namespace tulle::wire

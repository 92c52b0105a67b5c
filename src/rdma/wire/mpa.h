#pragma once

// Marker PDU aligned framing (MPA, RFC 5044): the framing of iWARP's segments in a TCP stream, and
// the two frames by which a connection begins, with RFC 6581's additions.
//
// An FPDU (4.1) is a length, the segment (ULPDU), zeros up to a multiple of four bytes, and a CRC.
// Markers are not sent. Tulle never asks for them when it starts a connection. RFC 5044 obliges an
// end to send markers to a peer that asks for them; Tulle refuses the connection instead (see
// rdma/optional/iwarp/mpa_setup.h).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire::mpa {

inline constexpr std::uint32_t length_bytes = 2;
inline constexpr std::uint32_t crc_bytes = 4;
// Most bytes of the pad and the CRC together.
inline constexpr std::uint32_t trailer_bytes_max = 3 + crc_bytes;

// Returns the length of the pad (RFC 5044 4.1): zero to three bytes, so that length, segment and
// pad together are a multiple of four.
constexpr std::uint32_t pad_bytes(std::uint32_t ulpdu_bytes) {
  return -(length_bytes + ulpdu_bytes) & 3;
}
// Returns the length of the whole FPDU.
constexpr std::uint32_t fpdu_bytes(std::uint32_t ulpdu_bytes) {
  return length_bytes + ulpdu_bytes + pad_bytes(ulpdu_bytes) + crc_bytes;
}
// Returns the longest segment whose FPDU fits a TCP segment of `segment_bytes` and whose length
// fits the length field (RFC 5044 4.5, MULPDU without markers). `segment_bytes` is at least 8.
constexpr std::uint32_t ulpdu_bytes_max(std::uint32_t segment_bytes) {
  const std::uint32_t fits = segment_bytes - segment_bytes % 4 - length_bytes - crc_bytes;
  return fits < 0xFFFF ? fits : 0xFFFF;
}

// CRC32C (Castagnoli, as in iSCSI: RFC 3720 B.4) over length, segment and pad. Its least
// significant byte is the first on the wire.
class Crc {
 public:
  void update(std::span<const std::byte> bytes);
  std::uint32_t value() const { return ~state_; }

 private:
  std::uint32_t state_ = 0xFFFF'FFFF;
};
void put_crc(std::uint32_t value, std::span<std::byte, crc_bytes> out);
std::uint32_t take_crc(std::span<const std::byte, crc_bytes> in);

// --- connection set-up ---

// The byte of flags (RFC 5044 7.1.1, RFC 6581 6). Reserved bits are kept as they came.
struct StartFlags {
  bool markers = false;       // M: the sender wants to receive markers
  bool crc = false;           // C: the sender wants CRCs
  bool rejected = false;      // R, in a reply: the connection is refused
  bool enhanced = false;      // S: the private data begin with RFC 6581's enhanced set-up
  std::uint8_t reserved = 0;  // 4 bits

  bool operator==(const StartFlags&) const = default;
};

// The first four bytes of the private data (RFC 6581 9). Depths are 14 bits, where all ones means
// not negotiated.
struct EnhancedSetup {
  static constexpr std::uint16_t depth_max = 0x3FFF;

  bool peer_to_peer = false;   // A: the first message of the starting end says "ready to receive"
  bool ready_by_send = false;  // B: by an FPDU without data
  std::uint16_t inbound_reads = 0;   // IRD
  bool ready_by_write = false;       // C: by a WRITE of no bytes
  bool ready_by_read = false;        // D: by a READ of no bytes
  std::uint16_t outbound_reads = 0;  // ORD

  bool operator==(const EnhancedSetup&) const = default;
};
inline constexpr std::size_t enhanced_setup_bytes = 4;

struct StartFrame {
  bool is_reply = false;
  StartFlags flags;
  std::uint8_t revision = 0;             // 1: RFC 5044; 2: RFC 6581
  std::uint16_t private_data_bytes = 0;  // bytes that follow, the enhanced set-up included

  bool operator==(const StartFrame&) const = default;
};
inline constexpr std::size_t start_frame_bytes = 20;
inline constexpr std::uint16_t private_data_bytes_max = 512;  // RFC 5044 7.1.1

void encode(const StartFrame& frame, std::span<std::byte, start_frame_bytes> out);
// Returns nothing if the bytes hold neither key.
std::optional<StartFrame> decode_start(std::span<const std::byte, start_frame_bytes> in);

void encode(const EnhancedSetup& setup, std::span<std::byte, enhanced_setup_bytes> out);
EnhancedSetup decode_enhanced(std::span<const std::byte, enhanced_setup_bytes> in);

}  // namespace tulle::wire::mpa

#pragma once

// The remote direct memory access protocol (RDMAP, RFC 5040): the messages of iWARP.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "rdma/wire/ddp.h"

namespace tulle::wire::rdmap {

inline constexpr std::uint8_t version = 1;  // RFC 5040 4.1

// Message types (RFC 5040 4.1).
enum class Opcode : std::uint8_t {
  write = 0,
  read_request = 1,
  read_response = 2,
  send = 3,
  send_with_invalidate = 4,
  send_with_solicited_event = 5,
  send_with_solicited_event_and_invalidate = 6,
  terminate = 7,
};
inline constexpr std::size_t opcodes = 8;  // RFC 5040 does not define the opcodes from there to 15

// Queues of untagged messages.
inline constexpr std::uint32_t send_queue = 0;
inline constexpr std::uint32_t read_request_queue = 1;
inline constexpr std::uint32_t terminate_queue = 2;

// The table of messages (RFC 5040 4.2).
struct OpcodeInfo {
  std::string_view name;
  bool tagged = false;
  std::uint8_t queue = 0;  // if untagged
  bool is_send = false;
  bool invalidate = false;  // the DDP header's word is an STag
  bool solicited = false;
};
// Returns null if the opcode is not defined.
const OpcodeInfo* info(Opcode opcode);

// The control byte (4.1), which DDP carries for its upper layer.
struct Control {
  std::uint8_t version = rdmap::version;  // 2 bits
  std::uint8_t reserved = 0;              // 2 bits
  Opcode opcode{};                        // 4 bits

  constexpr std::uint8_t encoded() const {
    return static_cast<std::uint8_t>((version & 3u) << 6 | (reserved & 3u) << 4 |
                                     (static_cast<unsigned>(opcode) & 0xFu));
  }
  static constexpr Control decoded(std::uint8_t byte) {
    return {static_cast<std::uint8_t>(byte >> 6), static_cast<std::uint8_t>(byte >> 4 & 3),
            static_cast<Opcode>(byte & 0xF)};
  }
  bool operator==(const Control&) const = default;
};

// The header that follows the DDP header of a READ request (4.4).
struct ReadRequest {
  RemoteKey sink_stag{};  // where the answer's data are placed
  std::uint64_t sink_offset = 0;
  std::uint32_t bytes = 0;
  RemoteKey source_stag{};  // the memory that is read
  std::uint64_t source_offset = 0;

  bool operator==(const ReadRequest&) const = default;
};
inline constexpr std::uint32_t read_request_bytes = 28;
void encode(const ReadRequest& request, std::span<std::byte, read_request_bytes> out);
ReadRequest decode_read_request(std::span<const std::byte, read_request_bytes> in);

// --- TERMINATE ---

// Layer, type and code of an error (4.8; RFC 5041 7.2; RFC 5044 8; RFC 6581 for codes 5 to 7 of
// MPA). All of them are in IANA's registry "RDDP".
enum class Layer : std::uint8_t { rdmap = 0, ddp = 1, mpa = 2 };

struct TerminateCode {
  Layer layer{};
  std::uint8_t type = 0;
  std::uint8_t code = 0;

  bool operator==(const TerminateCode&) const = default;
};
// Returns an empty view if the code is not in the registry.
std::string_view name(TerminateCode code);

namespace error {
inline constexpr TerminateCode local_catastrophic{Layer::rdmap, 0, 0};
inline constexpr TerminateCode invalid_stag{Layer::rdmap, 1, 0x00};
inline constexpr TerminateCode bounds{Layer::rdmap, 1, 0x01};
inline constexpr TerminateCode access_rights{Layer::rdmap, 1, 0x02};
inline constexpr TerminateCode stag_not_associated{Layer::rdmap, 1, 0x03};
inline constexpr TerminateCode offset_wraps{Layer::rdmap, 1, 0x04};
inline constexpr TerminateCode rdmap_version{Layer::rdmap, 2, 0x05};
inline constexpr TerminateCode unexpected_opcode{Layer::rdmap, 2, 0x06};
inline constexpr TerminateCode stream_catastrophic{Layer::rdmap, 2, 0x07};
inline constexpr TerminateCode cannot_invalidate{Layer::rdmap, 1, 0x09};
inline constexpr TerminateCode tagged_invalid_stag{Layer::ddp, 1, 0x00};
inline constexpr TerminateCode tagged_bounds{Layer::ddp, 1, 0x01};
inline constexpr TerminateCode tagged_stag_not_associated{Layer::ddp, 1, 0x02};
inline constexpr TerminateCode tagged_offset_wraps{Layer::ddp, 1, 0x03};
inline constexpr TerminateCode tagged_ddp_version{Layer::ddp, 1, 0x04};
inline constexpr TerminateCode untagged_queue{Layer::ddp, 2, 0x01};
inline constexpr TerminateCode untagged_no_buffer{Layer::ddp, 2, 0x02};
inline constexpr TerminateCode untagged_sequence{Layer::ddp, 2, 0x03};
inline constexpr TerminateCode untagged_offset{Layer::ddp, 2, 0x04};
inline constexpr TerminateCode untagged_too_long{Layer::ddp, 2, 0x05};
inline constexpr TerminateCode untagged_ddp_version{Layer::ddp, 2, 0x06};
inline constexpr TerminateCode connection_lost{Layer::mpa, 0, 0x01};
inline constexpr TerminateCode crc{Layer::mpa, 0, 0x02};
inline constexpr TerminateCode marker_and_length{Layer::mpa, 0, 0x03};
inline constexpr TerminateCode invalid_start_frame{Layer::mpa, 0, 0x04};
inline constexpr TerminateCode setup_catastrophic{Layer::mpa, 0, 0x05};
inline constexpr TerminateCode insufficient_reads{Layer::mpa, 0, 0x06};
inline constexpr TerminateCode no_matching_ready{Layer::mpa, 0, 0x07};
}  // namespace error

// The data that follow the DDP header of a TERMINATE (4.8): the error, and those headers of the
// offending segment that the error calls for.
//
// Linux's siw (6.1, little-endian) writes the halves of the first byte, and the bits of the third,
// in the wrong order. Its layer 0, type 1 arrives as layer 1, type 0, and its flags as reserved
// bits.
struct Terminate {
  TerminateCode code;
  std::uint16_t reserved = 0;                  // 13 bits, as they came
  std::optional<std::uint16_t> segment_bytes;  // M: the DDP segment's length
  std::optional<ddp::Header> ddp_header;       // D
  std::optional<ReadRequest> read_request;     // R

  bool operator==(const Terminate&) const = default;
};
inline constexpr std::uint32_t terminate_bytes_max =
    4 + 2 + ddp::untagged_header_bytes + read_request_bytes;

// Writes at most terminate_bytes_max bytes and returns their number.
std::size_t encode(const Terminate& terminate, std::span<std::byte> out);
// Returns nothing if the data are shorter than their own flags say. `used` receives the number of
// bytes read; the bytes behind them are not understood.
std::optional<Terminate> decode_terminate(std::span<const std::byte> in, std::size_t& used);

}  // namespace tulle::wire::rdmap

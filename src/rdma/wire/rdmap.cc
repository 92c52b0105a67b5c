#include "rdma/wire/rdmap.h"

#include <array>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire::rdmap {
namespace {

constexpr std::array<OpcodeInfo, opcodes> table = {{
    {.name = "RDMA Write", .tagged = true},
    {.name = "RDMA Read Request", .queue = read_request_queue},
    {.name = "RDMA Read Response", .tagged = true},
    {.name = "Send", .queue = send_queue, .is_send = true},
    {.name = "Send with Invalidate", .queue = send_queue, .is_send = true, .invalidate = true},
    {.name = "Send with SE", .queue = send_queue, .is_send = true, .solicited = true},
    {.name = "Send with SE and Invalidate",
     .queue = send_queue,
     .is_send = true,
     .invalidate = true,
     .solicited = true},
    {.name = "Terminate", .queue = terminate_queue},
}};

struct ReadRequestHeader {
  be32 sink_stag;
  be64 sink_offset;
  be32 bytes;
  be32 source_stag;
  be64 source_offset;
};
static_assert(is_wire_format<ReadRequestHeader, read_request_bytes>);

struct TerminateControl {
  static constexpr unsigned has_length = 0x8000;  // in `flags`
  static constexpr unsigned has_ddp_header = 0x4000;
  static constexpr unsigned has_read_request = 0x2000;
  static constexpr unsigned reserved_mask = 0x1FFF;

  std::uint8_t layer_and_type = 0;
  std::uint8_t code = 0;
  be16 flags;
};
static_assert(is_wire_format<TerminateControl, 4>);

struct NamedCode {
  TerminateCode code;
  std::string_view name;
};
constexpr auto named_codes = std::to_array<NamedCode>({
    {error::local_catastrophic, "RDMAP: local catastrophic error"},
    {error::invalid_stag, "RDMAP: invalid STag"},
    {error::bounds, "RDMAP: base or bounds violation"},
    {error::access_rights, "RDMAP: access rights violation"},
    {error::stag_not_associated, "RDMAP: STag not associated with the stream"},
    {error::offset_wraps, "RDMAP: tagged offset wrap"},
    {error::cannot_invalidate, "RDMAP: STag cannot be invalidated"},
    {{Layer::rdmap, 1, 0xFF}, "RDMAP: unspecified protection error"},
    {error::rdmap_version, "RDMAP: invalid version"},
    {error::unexpected_opcode, "RDMAP: unexpected opcode"},
    {error::stream_catastrophic, "RDMAP: catastrophic error of the stream"},
    {{Layer::rdmap, 2, 0x08}, "RDMAP: catastrophic error, global"},
    {{Layer::rdmap, 2, 0x09}, "RDMAP: STag cannot be invalidated"},
    {{Layer::rdmap, 2, 0xFF}, "RDMAP: unspecified operation error"},
    {{Layer::ddp, 0, 0x00}, "DDP: local catastrophic error"},
    {error::tagged_invalid_stag, "DDP: invalid STag"},
    {error::tagged_bounds, "DDP: base or bounds violation"},
    {error::tagged_stag_not_associated, "DDP: STag not associated with the stream"},
    {error::tagged_offset_wraps, "DDP: tagged offset wrap"},
    {error::tagged_ddp_version, "DDP: invalid version, tagged"},
    {error::untagged_queue, "DDP: invalid queue number"},
    {error::untagged_no_buffer, "DDP: invalid MSN, no buffer available"},
    {error::untagged_sequence, "DDP: invalid MSN, range not valid"},
    {error::untagged_offset, "DDP: invalid message offset"},
    {error::untagged_too_long, "DDP: message too long for its buffer"},
    {error::untagged_ddp_version, "DDP: invalid version, untagged"},
    {error::connection_lost, "MPA: connection lost"},
    {error::crc, "MPA: CRC error"},
    {error::marker_and_length, "MPA: marker and length do not match"},
    {error::invalid_start_frame, "MPA: invalid request or reply frame"},
    {error::setup_catastrophic, "MPA: local catastrophic error"},
    {error::insufficient_reads, "MPA: insufficient IRD resources"},
    {error::no_matching_ready, "MPA: no matching RTR option"},
});

}  // namespace

const OpcodeInfo* info(Opcode opcode) {
  const auto index = static_cast<std::size_t>(opcode);
  return index < table.size() ? &table[index] : nullptr;
}

std::string_view name(TerminateCode code) {
  for (const NamedCode& named : named_codes) {
    if (named.code == code) return named.name;
  }
  return {};
}

void encode(const ReadRequest& request, std::span<std::byte, read_request_bytes> out) {
  std::span<std::byte> to = out;
  put(ReadRequestHeader{request.sink_stag.value, request.sink_offset, request.bytes,
                        request.source_stag.value, request.source_offset},
      to);
}

ReadRequest decode_read_request(std::span<const std::byte, read_request_bytes> in) {
  std::span<const std::byte> from = in;
  const auto header = take<ReadRequestHeader>(from);
  return {RemoteKey(header.sink_stag), header.sink_offset, header.bytes,
          RemoteKey(header.source_stag), header.source_offset};
}

std::size_t encode(const Terminate& terminate, std::span<std::byte> out) {
  const std::size_t room = out.size();
  TerminateControl control;
  control.layer_and_type = static_cast<std::uint8_t>(
      static_cast<unsigned>(terminate.code.layer) << 4 | (terminate.code.type & 0xFu));
  control.code = terminate.code.code;
  control.flags =
      static_cast<std::uint16_t>((terminate.segment_bytes ? TerminateControl::has_length : 0) |
                                 (terminate.ddp_header ? TerminateControl::has_ddp_header : 0) |
                                 (terminate.read_request ? TerminateControl::has_read_request : 0) |
                                 (terminate.reserved & TerminateControl::reserved_mask));
  put(control, out);
  if (terminate.segment_bytes) put(be16(*terminate.segment_bytes), out);
  if (terminate.ddp_header) {
    ddp::encode(*terminate.ddp_header, out);
    out = out.subspan(terminate.ddp_header->bytes());
  }
  if (terminate.read_request) {
    encode(*terminate.read_request, out.first<read_request_bytes>());
    out = out.subspan(read_request_bytes);
  }
  return room - out.size();
}

std::optional<Terminate> decode_terminate(std::span<const std::byte> in, std::size_t& used) {
  const std::size_t whole = in.size();
  if (in.size() < sizeof(TerminateControl)) return std::nullopt;
  const auto control = take<TerminateControl>(in);
  const std::uint16_t flags = control.flags;
  Terminate terminate;
  terminate.code = {static_cast<Layer>(control.layer_and_type >> 4),
                    static_cast<std::uint8_t>(control.layer_and_type & 0xF), control.code};
  terminate.reserved = flags & TerminateControl::reserved_mask;
  if ((flags & TerminateControl::has_length) != 0) {
    if (in.size() < sizeof(be16)) return std::nullopt;
    terminate.segment_bytes = take<be16>(in);
  }
  if ((flags & TerminateControl::has_ddp_header) != 0) {
    ddp::Header header;
    if (!ddp::decode(in, header)) return std::nullopt;
    terminate.ddp_header = header;
    in = in.subspan(header.bytes());
  }
  if ((flags & TerminateControl::has_read_request) != 0) {
    if (in.size() < read_request_bytes) return std::nullopt;
    terminate.read_request = decode_read_request(in.first<read_request_bytes>());
    in = in.subspan(read_request_bytes);
  }
  used = whole - in.size();
  return terminate;
}

}  // namespace tulle::wire::rdmap

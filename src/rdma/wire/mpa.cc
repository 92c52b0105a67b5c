#include "rdma/wire/mpa.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace tulle::wire::mpa {
namespace {

// Keys of the start frames (RFC 5044 7.1.1).
constexpr std::string_view request_key = "MPA ID Req Frame";
constexpr std::string_view reply_key = "MPA ID Rep Frame";

struct StartHeader {
  static constexpr unsigned markers = 0x80;  // in `flags`
  static constexpr unsigned crc = 0x40;
  static constexpr unsigned rejected = 0x20;
  static constexpr unsigned enhanced = 0x10;
  static constexpr unsigned reserved = 0x0F;

  std::array<char, 16> key;
  std::uint8_t flags = 0;
  std::uint8_t revision = 0;
  be16 private_data_bytes;
};
static_assert(is_wire_format<StartHeader, start_frame_bytes>);

struct EnhancedHeader {
  static constexpr unsigned first_flag = 0x8000;   // A, and C
  static constexpr unsigned second_flag = 0x4000;  // B, and D

  be16 inbound_reads;
  be16 outbound_reads;
};
static_assert(is_wire_format<EnhancedHeader, enhanced_setup_bytes>);

std::uint16_t flagged(std::uint16_t depth, bool first, bool second) {
  return static_cast<std::uint16_t>((depth & EnhancedSetup::depth_max) |
                                    (first ? EnhancedHeader::first_flag : 0) |
                                    (second ? EnhancedHeader::second_flag : 0));
}

}  // namespace

void Crc::update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  // The library's parameter is not const, though the function only reads.
  auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  state_ = crc32_iscsi(data, static_cast<int>(bytes.size()), state_);
}

void put_crc(std::uint32_t value, std::span<std::byte, crc_bytes> out) {
  for (std::size_t i = 0; i < crc_bytes; ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
}

std::uint32_t take_crc(std::span<const std::byte, crc_bytes> in) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < crc_bytes; ++i) {
    value |= std::to_integer<std::uint32_t>(in[i]) << (8 * i);
  }
  return value;
}

void encode(const StartFrame& frame, std::span<std::byte, start_frame_bytes> out) {
  StartHeader header;
  const std::string_view key = frame.is_reply ? reply_key : request_key;
  std::copy(key.begin(), key.end(), header.key.begin());
  header.flags = static_cast<std::uint8_t>((frame.flags.markers ? StartHeader::markers : 0) |
                                           (frame.flags.crc ? StartHeader::crc : 0) |
                                           (frame.flags.rejected ? StartHeader::rejected : 0) |
                                           (frame.flags.enhanced ? StartHeader::enhanced : 0) |
                                           (frame.flags.reserved & StartHeader::reserved));
  header.revision = frame.revision;
  header.private_data_bytes = frame.private_data_bytes;
  std::span<std::byte> to = out;
  put(header, to);
}

std::optional<StartFrame> decode_start(std::span<const std::byte, start_frame_bytes> in) {
  std::span<const std::byte> from = in;
  const auto header = take<StartHeader>(from);
  const std::string_view key(header.key.data(), header.key.size());
  if (key != request_key && key != reply_key) return std::nullopt;
  StartFrame frame;
  frame.is_reply = key == reply_key;
  frame.flags.markers = (header.flags & StartHeader::markers) != 0;
  frame.flags.crc = (header.flags & StartHeader::crc) != 0;
  frame.flags.rejected = (header.flags & StartHeader::rejected) != 0;
  frame.flags.enhanced = (header.flags & StartHeader::enhanced) != 0;
  frame.flags.reserved = header.flags & StartHeader::reserved;
  frame.revision = header.revision;
  frame.private_data_bytes = header.private_data_bytes;
  return frame;
}

void encode(const EnhancedSetup& setup, std::span<std::byte, enhanced_setup_bytes> out) {
  std::span<std::byte> to = out;
  put(EnhancedHeader{flagged(setup.inbound_reads, setup.peer_to_peer, setup.ready_by_send),
                     flagged(setup.outbound_reads, setup.ready_by_write, setup.ready_by_read)},
      to);
}

EnhancedSetup decode_enhanced(std::span<const std::byte, enhanced_setup_bytes> in) {
  std::span<const std::byte> from = in;
  const auto header = take<EnhancedHeader>(from);
  const std::uint16_t inbound = header.inbound_reads, outbound = header.outbound_reads;
  EnhancedSetup setup;
  setup.peer_to_peer = (inbound & EnhancedHeader::first_flag) != 0;
  setup.ready_by_send = (inbound & EnhancedHeader::second_flag) != 0;
  setup.inbound_reads = inbound & EnhancedSetup::depth_max;
  setup.ready_by_write = (outbound & EnhancedHeader::first_flag) != 0;
  setup.ready_by_read = (outbound & EnhancedHeader::second_flag) != 0;
  setup.outbound_reads = outbound & EnhancedSetup::depth_max;
  return setup;
}

}  // namespace tulle::wire::mpa

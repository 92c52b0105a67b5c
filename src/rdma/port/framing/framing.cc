#include "rdma/port/framing/framing.h"

namespace tulle::port {
namespace {

Verdict verdict_of(wire::DecodeStatus status) {
  switch (status) {
    case wire::DecodeStatus::ok:
      return Verdict::ok;
    case wire::DecodeStatus::truncated:
      return Verdict::truncated;
    case wire::DecodeStatus::unknown_opcode:
      return Verdict::unknown_opcode;
    case wire::DecodeStatus::bad_version:
      return Verdict::bad_version;
  }
  return Verdict::truncated;
}

}  // namespace

std::size_t bytes_of(Pieces pieces) {
  std::size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  return bytes;
}

Verdict decode_transport(std::span<const std::byte> bytes, wire::Packet& packet,
                         std::span<const std::byte>& payload) {
  return decode_transport(bytes, bytes, packet, payload);
}

Verdict decode_transport(std::span<const std::byte> head, std::span<const std::byte> bytes,
                         wire::Packet& packet, std::span<const std::byte>& payload) {
  const wire::Decoded headers = wire::decode(head, packet);
  if (headers.status != wire::DecodeStatus::ok) return verdict_of(headers.status);
  const auto rest = bytes.subspan(headers.header_bytes);
  if (rest.size() < packet.pad_count) return Verdict::truncated;
  payload = rest.first(rest.size() - packet.pad_count);
  return Verdict::ok;
}

}  // namespace tulle::port

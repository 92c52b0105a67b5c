#pragma once

// InfiniBand's framing of a transport packet: LRH, BTH … payload, pad, ICRC, VCRC (IBTA 7.7, 7.8).
// It has no GRH, since packets stay in their subnet.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/ip_udp.h"
#include "wire/lrh.h"
#include "wire/packet.h"
#include "wire/vcrc.h"

namespace tulle::port {

// The bytes around the payload on the wire: `head` before it, and `tail` (pad, ICRC and VCRC) after
// it.
struct InfinibandFrame {
  std::array<std::byte, wire::lrh_bytes + wire::header_bytes_max> head;
  std::uint8_t head_bytes = 0;
  std::array<std::byte, 3 + wire::icrc_bytes + wire::vcrc_bytes> tail;
  std::uint8_t tail_bytes = 0;
};

// Frames a packet whose payload lies in `pieces`, in order. The LRH's next header and length are
// computed, and their values in `route` are ignored.
void encode(const wire::LocalRoute& route, const wire::Packet& packet,
            std::span<const std::span<const std::byte>> pieces, InfinibandFrame& frame);

enum class InfinibandVerdict : std::uint8_t {
  ok,
  truncated,         // shorter than its headers, pad, ICRC and VCRC
  bad_vcrc,          // damaged on the link
  bad_link_version,  // LVer is not 0
  bad_length,        // length in the LRH differs from the bytes received
  no_transport,      // raw, or with a GRH; neither is supported
  bad_icrc,
  unknown_opcode,         // reserved by IBTA
  bad_transport_version,  // version in the BTH is not 0
};

// Decodes a packet from LRH to VCRC. On ok, `payload` is a part of `bytes`.
[[nodiscard]] InfinibandVerdict decode(std::span<const std::byte> bytes, wire::LocalRoute& route,
                                       wire::Packet& packet, std::span<const std::byte>& payload);

}  // namespace tulle::port

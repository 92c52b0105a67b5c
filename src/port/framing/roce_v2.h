#pragma once

// RoCE v2's framing of a transport packet: a UDP datagram to port 4791 whose payload is BTH …
// payload, pad, ICRC. The kernel writes the IP and UDP headers of a live datagram. This code knows
// them well enough to compute the ICRC.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/ip_udp.h"
#include "wire/packet.h"

namespace tulle::port {

// Returns the UDP source port that IBTA A17.9.1 suggests and Linux uses: from 0xC000 up, one for
// each pair of queue pairs, so that equal-cost paths spread flows.
std::uint16_t source_port(QpNumber local, QpNumber remote);
// Returns the same for a given flow label (20 bits). 0 derives the label from the queue pairs.
std::uint16_t source_port(std::uint32_t flow_label, QpNumber local, QpNumber remote);

// The longest UDP payload: headers, 4096 bytes of payload, pad, ICRC.
inline constexpr std::size_t udp_payload_bytes_max =
    wire::header_bytes_max + 4096 + 3 + wire::icrc_bytes;

// The bytes around the payload on the wire: `head` before it, and `tail` (pad and ICRC) after it.
struct FrameBytes {
  std::array<std::byte, wire::header_bytes_max> head;
  std::uint8_t head_bytes = 0;
  std::array<std::byte, 8> tail;
  std::uint8_t tail_bytes = 0;
};

// Frames a packet whose payload lies in `pieces`, in order; their sum is the payload's length.
// packet.pad_count gives the pad.
void encode(const wire::IpUdp& ip, const wire::Packet& packet,
            std::span<const std::span<const std::byte>> pieces, FrameBytes& frame);

enum class Verdict : std::uint8_t {
  ok,
  truncated,       // shorter than its headers, pad and ICRC
  unknown_opcode,  // reserved by IBTA
  bad_version,     // BTH transport version is not 0
  bad_icrc,
};
inline constexpr std::size_t verdicts = 5;

// Decodes a UDP payload (BTH … ICRC). `ip` is as the socket reported it. For IPv4,
// `identification_known` says whether ip.identification and dont_fragment were read from the header
// itself. If they are a guess, a difference that some identification explains is accepted. On ok,
// `payload` is a part of `datagram`.
[[nodiscard]] Verdict decode(const wire::IpUdp& ip, bool identification_known,
                             std::span<const std::byte> datagram, wire::Packet& packet,
                             std::span<const std::byte>& payload);

}  // namespace tulle::port

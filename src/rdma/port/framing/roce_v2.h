#pragma once

// RoCE v2's framing of a transport packet: a UDP datagram to port 4791 whose payload is BTH …
// payload, pad, ICRC. The kernel writes the IP and UDP headers of a live datagram. This code knows
// them well enough to compute the ICRC.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/port/framing/framing.h"
#include "rdma/wire/ip_udp.h"
#include "rdma/wire/packet.h"

namespace tulle::port {

// Returns the UDP source port that IBTA A17.9.1 suggests and Linux uses: from 0xC000 up, one for
// each pair of queue pairs, so that equal-cost paths spread flows.
std::uint16_t source_port(QpNumber local, QpNumber remote);
// Returns the same for a given flow label (20 bits). 0 derives the label from the queue pairs.
std::uint16_t source_port(std::uint32_t flow_label, QpNumber local, QpNumber remote);

// The longest UDP payload: headers, 4096 bytes of payload, pad, ICRC.
inline constexpr std::size_t udp_payload_bytes_max =
    wire::header_bytes_max + 4096 + 3 + wire::icrc_bytes;

// Frames a packet whose payload is in `pieces`, in order; their sum is the payload's length.
// packet.pad_count gives the pad.
void encode(const wire::IpUdp& ip, const wire::Packet& packet, Pieces pieces, FrameBytes& frame);

// Decodes a UDP payload (BTH … ICRC). `ip` is as the socket reported it. For IPv4,
// `identification_known` says whether ip.identification and dont_fragment were read from the header
// itself. If they are a guess, a difference that some identification explains is accepted. On ok,
// `payload` is a part of `datagram`.
[[nodiscard]] Verdict decode(const wire::IpUdp& ip, bool identification_known,
                             std::span<const std::byte> datagram, wire::Packet& packet,
                             std::span<const std::byte>& payload);

// The path is an IpUdp, and the bytes of a frame are the UDP payload.
extern const Framing roce_v2;

}  // namespace tulle::port

#pragma once

// The bytes that a link layer adds around BTH … ICRC, for a driver that carries packets without
// writing those headers.

#include <algorithm>
#include <cstdint>

namespace tulle::port {

struct Overhead {
  std::uint32_t header_bytes = 0;  // stored with the packet wherever it waits
  std::uint32_t gap_bytes = 0;     // takes time on the link, but no room
  std::uint32_t least_bytes = 0;   // a shorter packet is padded to this, without the gap

  std::uint32_t stored_bytes(std::uint32_t bth_to_icrc_bytes) const {
    return std::max(bth_to_icrc_bytes + header_bytes, least_bytes);
  }
  // Returns the bytes that a link of this kind counts for a packet besides BTH … payload, including
  // the four of the ICRC.
  std::uint32_t around_transport_bytes() const { return header_bytes + gap_bytes + 4; }
};

// RoCE v2 over IPv4: Ethernet's header 14 and FCS 4, preamble 8 and gap 12 (IEEE 802.3), IPv4 20,
// UDP 8.
inline constexpr Overhead roce_v2_overhead{14 + 4 + 20 + 8, 8 + 12, 64};
// RoCE v1: Ethernet's header, FCS, preamble and gap as above, and a GRH of 40 bytes.
inline constexpr Overhead roce_v1_overhead{14 + 4 + 40, 8 + 12, 64};
// TCP over IPv4: the same as RoCE v2 without UDP and ICRC. The packet then consists of TCP's header
// and payload.
inline constexpr Overhead tcp_overhead{14 + 4 + 20, 8 + 12, 64};
// InfiniBand: LRH 8 and VCRC 2 (IBTA 7.7, 7.8), and two symbols that delimit a packet (IBTA volume
// 2, 5.3).
inline constexpr Overhead infiniband_overhead{8 + 2, 2, 0};

}  // namespace tulle::port

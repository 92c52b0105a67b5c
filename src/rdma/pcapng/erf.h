#pragma once

// The header that Endace's capture cards put before a packet (ERF, the extensible record format),
// of link type 197. ibdump writes InfiniBand packets in this form. Wireshark reads them in no other
// form, since it does not know their own link type, 247.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace tulle::pcapng {

inline constexpr std::size_t erf_header_bytes = 16;

enum class ErfType : std::uint8_t {
  infiniband = 21,
  infiniband_link = 25,  // flow control packets
};
// Wireshark 4 looks for the addresses of an LRH and a GRH in a flow control packet, which has six
// bytes and neither, and calls it malformed if it ends before. Zeros fill it up.
inline constexpr std::size_t erf_link_bytes = 48;

// Returns the header of a packet whose `packet_bytes` bytes follow it, all that were on the wire.
// `damaged` says that the packet failed the link layer's check.
std::array<std::byte, erf_header_bytes> erf_header(Time when, ErfType type,
                                                   std::uint32_t packet_bytes, bool damaged);

}  // namespace tulle::pcapng

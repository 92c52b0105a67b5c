#pragma once

// IPv4 header without options (RFC 791 §3.1).

#include <cstddef>
#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

struct Ipv4 {
  static constexpr std::uint8_t version_4_no_options = 0x45;
  static constexpr std::uint16_t dont_fragment = 0x4000;

  std::uint8_t version_and_length = version_4_no_options;
  std::uint8_t type_of_service = 0;
  be16 total_length;
  be16 identification;
  be16 flags_and_offset;  // reserved 1, DF 1, MF 1, fragment offset 13
  std::uint8_t time_to_live = 0;
  std::uint8_t protocol = 0;
  be16 checksum;
  be32 source;
  be32 destination;
};
static_assert(is_wire_format<Ipv4, 20>);

struct IpUdp;
// Returns the header for `bytes` bytes of `protocol`, with its checksum left 0.
Ipv4 ipv4_without_checksum(const IpUdp& headers, std::uint8_t protocol, std::size_t bytes);
std::uint16_t header_checksum(const Ipv4& ip);

}  // namespace tulle::wire

#pragma once

// The fields of a frame that flow steering reads, and their comparison with a rule. All fields are
// bytes of one struct, so that a rule is a value and a mask of the whole struct. A field that a
// frame does not have is zero. The set of headers that the frame has is a field too.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/big_endian.h"
#include "rdma/wire/ethernet.h"

namespace tulle::device {

// The headers that a frame may have, one bit each.
enum class FlowHeader : std::uint16_t {
  vlan = 1,
  ipv4 = 2,
  ipv6 = 4,
  tcp = 8,
  udp = 16,
  vxlan = 32,
  gre = 64,
  esp = 128,
};

struct FlowFields {
  wire::MacAddress destination_mac{};
  wire::MacAddress source_mac{};
  be16 ether_type;                        // after the last VLAN tag
  be16 vlan;                              // control field of the outermost tag
  std::array<std::uint8_t, 16> source{};  // IPv4: the first four bytes
  std::array<std::uint8_t, 16> destination{};
  std::uint8_t protocol = 0;  // IPv6: after the extension headers
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t fragment_flags = 0;  // IPv4
  be32 flow_label;                  // IPv6
  be16 source_port;                 // TCP, UDP
  be16 destination_port;
  be32 tunnel;          // VXLAN's network identifier, or GRE's key
  be32 security_index;  // ESP
  be32 security_sequence;
  be16 tunnel_flags;  // GRE's first 16 bits
  be16 tunnel_protocol;
  be16 headers;
  be16 unused;  // always zero

  // The bits have the values of the verbs (Linux, include/rdma/ib_verbs.h: ib_ipv4_flags).
  static constexpr std::uint8_t dont_fragment = 2;
  static constexpr std::uint8_t more_fragments = 4;

  bool has(FlowHeader header) const { return (headers & static_cast<unsigned>(header)) != 0; }
  void add(FlowHeader header) {
    headers = static_cast<std::uint16_t>(headers | static_cast<unsigned>(header));
  }
};
static_assert(sizeof(FlowFields) == 80 && alignof(FlowFields) == 1);

// Reads the fields of a frame. Headers that are cut off or unknown count as absent, and nothing is
// read past the end. A frame shorter than an Ethernet header gives all zeros. Only the first
// fragment of a packet has ports (RFC 791 §3.2, RFC 8200 §4.5).
FlowFields read_flow_fields(std::span<const std::byte> frame);

// A frame matches if it has the value's bits wherever the mask has ones.
struct FlowMatch {
  FlowFields value;
  FlowFields mask;
};
bool matches(const FlowFields& frame, const FlowMatch& match);

}  // namespace tulle::device

#pragma once

// The invariant CRC (IBTA 7.8.1; RoCE v2: A17.3.3.5): CRC-32 (Ethernet's, reflected) over the
// packet, where the fields that may change on the way count as ones. ISA-L computes it over pieces,
// so that the payload is never copied.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "rdma/wire/lrh.h"

namespace tulle::wire {

class Icrc {
 public:
  // The CRC starts behind the eight 0xFF bytes that replace the LRH.
  Icrc() = default;
  // Starts the ICRC of a packet that has an LRH and no GRH. The ICRC covers that LRH except for its
  // VL (IBTA 7.8.1).
  explicit Icrc(std::span<const std::byte, lrh_bytes> lrh);
  // Adds masked header bytes or payload, in the order of the packet.
  void update(std::span<const std::byte> bytes);
  // The CRC as a number. Its least significant byte is the first on the wire: see `put_icrc` and
  // `take_icrc`.
  std::uint32_t value() const { return state_; }

 private:
  // CRC-32 of the eight 0xFF bytes; a test computes it again.
  std::uint32_t state_ = 0x2144'DF1C;
};

// Write and read the ICRC as the last bytes of a packet, least significant byte first.
void put_icrc(std::uint32_t value, std::span<std::byte, 4> out);
std::uint32_t take_icrc(std::span<const std::byte, 4> in);

// Turns a copy of a packet's front (BTH …, at least 12 bytes) into the bytes that the ICRC covers:
// the byte of FECN, BECN and six reserved bits becomes ones.
void mask_bth(std::span<std::byte> head);

struct Ipv4Identification {
  std::uint16_t identification = 0;
  bool dont_fragment = true;

  bool operator==(const Ipv4Identification&) const = default;
};

// The longest packet: TTL … UDP checksum 20, BTH and extension headers 44, payload 4096, pad 3.
inline constexpr std::size_t explained_bytes_after_max = 20 + 44 + 4096 + 3;

// The ICRC covers IPv4's identification and DF flag, which a UDP socket does not see. A CRC is
// linear: the difference between the received ICRC and the one computed for identification 0 with
// DF set must be the image of some identification (and of DF). The function solves for it instead
// of searching, at about the cost of the CRC over a kilobyte.
//   difference: received ICRC xor computed ICRC
//   bytes_after: bytes covered by the ICRC that follow the two bytes of flags and fragment offset
//     (TTL … pad), up to explained_bytes_after_max
// Returns the identification and DF that explain the difference, or nothing if none do. In that
// case the packet is damaged.
//
// The price is that seventeen of the 32 bits of the check are spent on the search. A packet damaged
// at random passes with probability 2^-15 (2^-32 where the header is known). Of the errors of a
// single bit behind the fragment offset, ICRC included, just two are explained away at any length:
// those 1,548 and 14,839 bits after it. In a packet of a kilobyte, one bit in some 8,500 may thus
// flip unseen. Both errors look as if DF were clear. A driver that knows that a peer sets DF may
// refuse explanations without DF. It then faces a probability of 2^-16, and misses no error of a
// single bit in a packet of up to 4 KiB. UDP's checksum still refuses damage that it covers (though
// some peers send none over IPv4), and so does the frame check of the network below.
std::optional<Ipv4Identification> explain_identification(std::uint32_t difference,
                                                         std::size_t bytes_after);

}  // namespace tulle::wire

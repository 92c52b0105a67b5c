#pragma once

// The invariant CRC (IBTA 7.8.1; RoCE v2: A17.3.3.5): CRC-32 (Ethernet's, reflected) over the
// packet with the fields that may change on the way taken as ones. Computed with ISA-L over pieces,
// so that payload is never copied.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/lrh.h"

namespace tulle::wire {

class Icrc {
 public:
  // The eight 0xFF bytes in place of the LRH are already taken in.
  Icrc() = default;
  // Of a packet that has an LRH and no GRH: the LRH is covered, but for its VL (IBTA 7.8.1).
  explicit Icrc(std::span<const std::byte, lrh_bytes> lrh);
  // Over masked header bytes or payload, in the order of the packet.
  void update(std::span<const std::byte> bytes);
  // The CRC as a number. On the wire its least significant byte comes first: `put_icrc`,
  // `take_icrc`.
  std::uint32_t value() const { return state_; }

 private:
  // CRC-32 of the eight 0xFF bytes; a test computes it anew.
  std::uint32_t state_ = 0x2144'DF1C;
};

// The ICRC as the last bytes of a packet, least significant first.
void put_icrc(std::uint32_t value, std::span<std::byte, 4> out);
std::uint32_t take_icrc(std::span<const std::byte, 4> in);

// Turns a copy of a packet's front (BTH …, at least 12 bytes) into what the ICRC sees: the byte of
// FECN, BECN and six reserved bits as ones.
void mask_bth(std::span<std::byte> head);

struct Ipv4Identification {
  std::uint16_t identification = 0;
  bool dont_fragment = true;

  bool operator==(const Ipv4Identification&) const = default;
};

// TTL … UDP checksum 20, BTH and extension headers 44, payload 4096, pad 3.
inline constexpr std::size_t explained_bytes_after_max = 20 + 44 + 4096 + 3;

// IPv4's identification and DF flag are covered by the ICRC, and a UDP socket does not see them. A
// CRC is linear: the difference between the received ICRC and the one computed for identification 0
// with DF set must be the image of some identification (and of DF). Solved, not searched: about the
// cost of the CRC over a kilobyte.
//   difference: received ICRC xor computed ICRC
//   bytes_after: bytes covered by the ICRC that follow the two bytes of flags and fragment offset
//     (TTL … pad), up to explained_bytes_after_max: the longest packet's
// Returns the identification and DF that explain the difference; nothing if none does: the packet
// is damaged.
//
// The price: seventeen of the 32 bits of the check are spent on finding out. A packet damaged at
// random passes with probability 2^-15 (2^-32 where the header is known). Of the errors of a single
// bit behind the fragment offset, ICRC included, just two are explained away, at any length: those
// 1,548 and 14,839 bits after it, so that of a packet of a kilobyte one bit in some 8,500 may flip
// unseen. Both look as if DF were clear: who knows that a peer sets DF may refuse explanations
// without it, is left with 2^-16, and misses no error of a single bit in a packet of up to 4 KiB.
// What UDP's checksum covers it still refuses (though some peers send none over IPv4), and so does
// the frame check of the network below.
std::optional<Ipv4Identification> explain_identification(std::uint32_t difference,
                                                         std::size_t bytes_after);

}  // namespace tulle::wire

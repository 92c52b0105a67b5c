#pragma once

// The TCP header (RFC 9293 §3.1) with the only option that connections use here once they are
// established: selective acknowledgements (RFC 2018). The decoder skips other options. There are no
// timestamps (RFC 7323): a frame of a simulated network carries 40 bytes of headers, which hold
// TCP's 20 and two blocks of SACK.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/wire/ip_udp.h"

namespace tulle::wire {

inline constexpr std::uint8_t ip_protocol_tcp = 6;
inline constexpr std::size_t tcp_header_bytes = 20;  // without options
inline constexpr std::size_t tcp_header_bytes_max = 60;

// A place in TCP's sequence space: 32 bits that wrap. Sequence numbers are ordered only within half
// the space (RFC 9293 §3.4), so there is no operator<. `distance_from` returns how far this one is
// behind (< 0) or ahead (> 0) of another.
class TcpSequence {
 public:
  constexpr TcpSequence() = default;
  constexpr explicit TcpSequence(std::uint32_t value) : value_(value) {}

  constexpr std::uint32_t value() const { return value_; }
  constexpr bool operator==(const TcpSequence&) const = default;
  constexpr TcpSequence operator+(std::uint32_t n) const { return TcpSequence(value_ + n); }
  // Returns a value in [-2^31, 2^31).
  constexpr std::int32_t distance_from(TcpSequence other) const {
    return static_cast<std::int32_t>(value_ - other.value_);
  }

 private:
  std::uint32_t value_ = 0;
};

struct Tcp {
  // A block of bytes that have arrived, [first, end) (RFC 2018 §3).
  struct Block {
    TcpSequence first;
    TcpSequence end;
    bool operator==(const Block&) const = default;
  };
  static constexpr std::size_t blocks_max = 4;  // the 40 bytes of options hold no more

  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  TcpSequence sequence;
  TcpSequence acknowledgement;
  bool cwr = false;  // RFC 3168 §6.1
  bool ece = false;
  bool urg = false;
  bool ack = false;
  bool psh = false;
  bool rst = false;
  bool syn = false;
  bool fin = false;
  std::uint16_t window = 0;    // not yet scaled (RFC 7323 §2)
  std::uint16_t checksum = 0;  // as on the wire; encode() writes it unchanged
  std::uint16_t urgent_pointer = 0;
  std::uint8_t block_count = 0;
  std::array<Block, blocks_max> blocks;

  std::span<const Block> sack() const { return std::span(blocks).first(block_count); }
  bool operator==(const Tcp&) const = default;
};

// Returns the bytes of the header with its options: 20, plus 4 and 8 for each block where there are
// any.
std::size_t header_bytes(const Tcp& tcp);

// Writes the header into `out`, which holds at least header_bytes(tcp). Returns the bytes written.
// Two NOPs precede the blocks, as in all stacks, so that the blocks are aligned.
std::size_t encode(const Tcp& tcp, std::span<std::byte> out);

struct DecodedTcp {
  bool ok = false;  // false: cut short, a data offset below 5, or an option of a wrong length
  std::size_t header_bytes = 0;
};
// Reads a header from the front of `in`. Unless ok, `tcp` is unspecified. The checksum is read but
// not verified.
[[nodiscard]] DecodedTcp decode(std::span<const std::byte> in, Tcp& tcp);

// Returns the checksum (RFC 9293 §3.1) over the pseudo-header of `ip`'s addresses, the header as
// encode() would write it (except its checksum, which counts as 0) and the payload in `pieces`, in
// order.
std::uint16_t tcp_checksum(const IpUdp& ip, const Tcp& tcp,
                           std::span<const std::span<const std::byte>> pieces);
// Returns the checksum of a received segment, header and payload: 0 if the segment is undamaged.
std::uint16_t tcp_checksum(const IpUdp& ip, std::span<const std::byte> segment);

// Writes the IPv4 header, 20 bytes, around a segment of `segment_bytes`. The ports of `ip` are not
// used.
std::size_t encode_ipv4_tcp(const IpUdp& ip, std::size_t segment_bytes, std::span<std::byte> out);

}  // namespace tulle::wire

#include "rdma/wire/tcp.h"

#include "base/big_endian.h"
#include "base/check.h"
#include "rdma/wire/header.h"
#include "rdma/wire/internet_checksum.h"
#include "rdma/wire/ipv4.h"

namespace tulle::wire {
namespace {

// The header without options (RFC 9293 §3.1).
struct Fixed {
  be16 source_port;
  be16 destination_port;
  be32 sequence;
  be32 acknowledgement;
  be16 offset_and_flags;  // data offset 4 (in 32-bit words), reserved 4, flags 8
  be16 window;
  be16 checksum;
  be16 urgent_pointer;
};
static_assert(is_wire_format<Fixed, tcp_header_bytes>);

struct WireBlock {
  be32 first;
  be32 end;
};
static_assert(is_wire_format<WireBlock, 8>);

// Kinds of option (RFC 9293 §3.2, RFC 2018 §3).
constexpr std::byte option_end{0};
constexpr std::byte option_nop{1};
constexpr std::byte option_sack{5};

constexpr std::uint16_t bit(bool set, unsigned position) {
  return static_cast<std::uint16_t>(set ? 1u << position : 0u);
}

Fixed fixed_of(const Tcp& tcp) {
  Fixed fixed;
  fixed.source_port = tcp.source_port;
  fixed.destination_port = tcp.destination_port;
  fixed.sequence = tcp.sequence.value();
  fixed.acknowledgement = tcp.acknowledgement.value();
  fixed.offset_and_flags = static_cast<std::uint16_t>(
      header_bytes(tcp) / 4 << 12 | bit(tcp.cwr, 7) | bit(tcp.ece, 6) | bit(tcp.urg, 5) |
      bit(tcp.ack, 4) | bit(tcp.psh, 3) | bit(tcp.rst, 2) | bit(tcp.syn, 1) | bit(tcp.fin, 0));
  fixed.window = tcp.window;
  fixed.checksum = tcp.checksum;
  fixed.urgent_pointer = tcp.urgent_pointer;
  return fixed;
}

// Returns false if an option's length does not fit.
bool decode_options(std::span<const std::byte> in, Tcp& tcp) {
  while (!in.empty()) {
    const std::byte kind = in[0];
    if (kind == option_end) return true;
    if (kind == option_nop) {
      in = in.subspan(1);
      continue;
    }
    if (in.size() < 2) return false;
    const auto bytes = std::to_integer<std::size_t>(in[1]);
    if (bytes < 2 || bytes > in.size()) return false;
    if (kind == option_sack) {
      if ((bytes - 2) % sizeof(WireBlock) != 0) return false;
      tcp.block_count = 0;
      tcp.blocks = {};  // another option of this kind may have come before
      for (auto blocks = in.subspan(2, bytes - 2); !blocks.empty();) {
        const auto block = take<WireBlock>(blocks);
        tcp.blocks[tcp.block_count++] = {TcpSequence(block.first), TcpSequence(block.end)};
      }
    }
    in = in.subspan(bytes);
  }
  return true;
}

void add_pseudo_header(InternetChecksum& checksum, const IpUdp& ip, std::size_t segment_bytes) {
  // The prefixes of mapped addresses add two words of ones, which count as zero, so that IPv4 needs
  // no case apart from IPv6.
  checksum.add(std::as_bytes(std::span(ip.source.bytes)));
  checksum.add(std::as_bytes(std::span(ip.destination.bytes)));
  checksum.add(ip_protocol_tcp);
  checksum.add(static_cast<std::uint16_t>(segment_bytes));
}

}  // namespace

std::size_t header_bytes(const Tcp& tcp) {
  if (tcp.block_count == 0) return sizeof(Fixed);
  return sizeof(Fixed) + 4 + sizeof(WireBlock) * tcp.block_count;
}

std::size_t encode(const Tcp& tcp, std::span<std::byte> out) {
  const std::size_t bytes = header_bytes(tcp);
  TULLE_CHECK(out.size() >= bytes && tcp.block_count <= Tcp::blocks_max);
  put(fixed_of(tcp), out);
  if (tcp.block_count == 0) return bytes;
  out[0] = out[1] = option_nop;
  out[2] = option_sack;
  out[3] = static_cast<std::byte>(2 + sizeof(WireBlock) * tcp.block_count);
  out = out.subspan(4);
  for (const Tcp::Block& block : tcp.sack()) {
    put(WireBlock{block.first.value(), block.end.value()}, out);
  }
  return bytes;
}

DecodedTcp decode(std::span<const std::byte> in, Tcp& tcp) {
  if (in.size() < sizeof(Fixed)) return {};
  const std::size_t whole = in.size();
  const auto fixed = take<Fixed>(in);
  const std::uint16_t flags = fixed.offset_and_flags;
  const std::size_t bytes = (flags >> 12) * std::size_t{4};
  if (bytes < sizeof(Fixed) || bytes > whole) return {};
  const auto has = [flags](unsigned position) { return (flags >> position & 1) != 0; };
  tcp = {};
  tcp.source_port = fixed.source_port;
  tcp.destination_port = fixed.destination_port;
  tcp.sequence = TcpSequence(fixed.sequence);
  tcp.acknowledgement = TcpSequence(fixed.acknowledgement);
  tcp.cwr = has(7);
  tcp.ece = has(6);
  tcp.urg = has(5);
  tcp.ack = has(4);
  tcp.psh = has(3);
  tcp.rst = has(2);
  tcp.syn = has(1);
  tcp.fin = has(0);
  tcp.window = fixed.window;
  tcp.checksum = fixed.checksum;
  tcp.urgent_pointer = fixed.urgent_pointer;
  if (!decode_options(in.first(bytes - sizeof(Fixed)), tcp)) return {};
  return {true, bytes};
}

std::uint16_t tcp_checksum(const IpUdp& ip, const Tcp& tcp,
                           std::span<const std::span<const std::byte>> pieces) {
  std::array<std::byte, tcp_header_bytes_max> header;
  Tcp without = tcp;
  without.checksum = 0;
  std::size_t bytes = encode(without, header);
  InternetChecksum checksum;
  checksum.add(std::span<const std::byte>(header).first(bytes));
  for (const auto& piece : pieces) {
    checksum.add(piece);
    bytes += piece.size();
  }
  // The pseudo-header is added last. Words of 16 bits may come in any order, bytes may not.
  InternetChecksum whole;
  add_pseudo_header(whole, ip, bytes);
  whole.add(static_cast<std::uint16_t>(~checksum.value()));
  return whole.value();
}

std::uint16_t tcp_checksum(const IpUdp& ip, std::span<const std::byte> segment) {
  InternetChecksum checksum;
  add_pseudo_header(checksum, ip, segment.size());
  checksum.add(segment);
  return checksum.value();
}

std::size_t encode_ipv4_tcp(const IpUdp& ip, std::size_t segment_bytes, std::span<std::byte> out) {
  Ipv4 header = ipv4_without_checksum(ip, ip_protocol_tcp, segment_bytes);
  header.checksum = header_checksum(header);
  put(header, out);
  return sizeof(Ipv4);
}

}  // namespace tulle::wire

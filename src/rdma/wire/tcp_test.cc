#include "rdma/wire/tcp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/random.h"
#include "places.h"
#include "rdma/wire/vectors_test.h"

namespace tulle::wire {
namespace {

struct CapturedSegment {
  IpUdp ip;
  std::vector<std::byte> bytes;  // header and payload
};

// Returns the TCP segments of a classic pcap file of Ethernet frames. It reads IPv4 without options
// and IPv6 without extensions.
std::vector<CapturedSegment> segments_of(const std::string& name) {
  std::ifstream file(TULLE_TEST_DATA "/captures/" + name, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(text.at(i)); };
  std::vector<CapturedSegment> segments;
  for (std::size_t record = 24; record + 16 < text.size();) {
    std::uint32_t captured = 0;
    std::memcpy(&captured, text.data() + record + 8, sizeof captured);
    const std::size_t ip = record + 16 + 14;
    record += 16 + captured;
    const bool v4 = at(ip) == 0x45 && at(ip + 9) == ip_protocol_tcp;
    const bool v6 = at(ip) >> 4 == 6 && at(ip + 6) == ip_protocol_tcp;
    if (!v4 && !v6) continue;
    CapturedSegment segment;
    std::size_t begin = ip + 20, end = ip + at(ip + 2) * 256u + at(ip + 3);
    if (v6) {
      begin = ip + 40;
      end = begin + at(ip + 4) * 256u + at(ip + 5);
    }
    for (std::size_t i = 0; i < 16; ++i) {
      segment.ip.source.bytes[i] = v6 ? at(ip + 8 + i) : 0;
      segment.ip.destination.bytes[i] = v6 ? at(ip + 24 + i) : 0;
    }
    if (v4) {
      const auto address = [&](std::size_t i) {
        return std::uint32_t{at(i)} << 24 | at(i + 1) << 16 | at(i + 2) << 8 | at(i + 3);
      };
      segment.ip.source = Gid::from_ipv4(address(ip + 12));
      segment.ip.destination = Gid::from_ipv4(address(ip + 16));
    }
    for (std::size_t i = begin; i < end; ++i) segment.bytes.push_back(std::byte{at(i)});
    segments.push_back(std::move(segment));
  }
  return segments;
}

TEST(TcpCaptures, ChecksumsOfLinuxAreRight) {
  for (const char* name : {"iwarp_loss_tcp_segment.pcap", "iwarp_ipv6.pcap"}) {
    const auto segments = segments_of(name);
    EXPECT_GT(segments.size(), 20u) << name;
    for (const CapturedSegment& segment : segments) {
      EXPECT_EQ(tcp_checksum(segment.ip, segment.bytes), 0);
      auto damaged = segment.bytes;
      damaged[7] ^= std::byte{4};
      EXPECT_NE(tcp_checksum(segment.ip, damaged), 0);
    }
  }
}

// The expected values are those that tshark prints for these frames.
TEST(TcpCaptures, HeadersOfLinuxAreReadAsTsharkReadsThem) {
  const auto segments = segments_of("iwarp_loss_tcp_segment.pcap");
  ASSERT_EQ(segments.size(), 29u);
  Tcp tcp;
  DecodedTcp decoded = decode(segments[0].bytes, tcp);
  ASSERT_TRUE(decoded.ok);
  EXPECT_EQ(decoded.header_bytes, 40u);
  EXPECT_TRUE(tcp.syn && !tcp.ack);
  EXPECT_EQ(tcp.source_port, 40'305);
  EXPECT_EQ(tcp.destination_port, 7'471);
  EXPECT_EQ(tcp.sequence.value(), 3'738'530'701u);
  EXPECT_EQ(tcp.window, 64'240);
  EXPECT_EQ(tcp.checksum, 0xDF17);
  EXPECT_EQ(tcp.block_count, 0);

  decoded = decode(segments[16].bytes, tcp);
  ASSERT_TRUE(decoded.ok);
  EXPECT_EQ(decoded.header_bytes, 44u);
  EXPECT_EQ(tcp.acknowledgement.value(), 3'738'539'429u);
  EXPECT_EQ(tcp.window, 883);
  ASSERT_EQ(tcp.block_count, 1);
  EXPECT_EQ(tcp.blocks[0].first.value(), 3'738'540'877u);
  EXPECT_EQ(tcp.blocks[0].end.value(), 3'738'545'221u);

  decoded = decode(segments[24].bytes, tcp);
  ASSERT_TRUE(decoded.ok);
  EXPECT_TRUE(tcp.psh && tcp.ack && !tcp.fin);
  EXPECT_EQ(segments[24].bytes.size() - decoded.header_bytes, 1'448u);
  decoded = decode(segments[26].bytes, tcp);
  EXPECT_TRUE(tcp.fin && tcp.ack && !tcp.psh);
}

Tcp with_blocks() {
  Tcp tcp;
  tcp.source_port = 257;
  tcp.destination_port = 770;
  tcp.sequence = TcpSequence(0xFFFF'FFF0);
  tcp.acknowledgement = TcpSequence(0x0102'0304);
  tcp.cwr = tcp.ece = tcp.ack = tcp.psh = true;
  tcp.window = 0xABCD;
  tcp.block_count = 2;
  tcp.blocks[0] = {TcpSequence(0x10), TcpSequence(0x20)};
  tcp.blocks[1] = {TcpSequence(0xFFFF'FF00), TcpSequence(0xFFFF'FF80)};
  return tcp;
}

IpUdp addresses(std::uint8_t traffic_class) {
  IpUdp ip;
  ip.source = Gid::from_ipv4(0x0A00'0001);
  ip.destination = Gid::from_ipv4(0x0A00'0002);
  ip.traffic_class = traffic_class;
  return ip;
}

std::vector<std::byte> encoded(const IpUdp& ip, Tcp tcp, std::span<const std::byte> payload) {
  tcp.checksum = tcp_checksum(ip, tcp, {&payload, 1});
  std::vector<std::byte> bytes(20 + tcp_header_bytes_max);
  std::size_t at = encode_ipv4_tcp(ip, header_bytes(tcp) + payload.size(), bytes);
  at += encode(tcp, std::span(bytes).subspan(at));
  bytes.resize(at);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

// Scapy 2.5 wrote the expected bytes with IP()/TCP() from the same fields.
TEST(Tcp, WrittenAsScapyWritesIt) {
  const auto odd = bytes_from_hex("6f6464");
  EXPECT_EQ(
      encoded(addresses(2), with_blocks(), odd),
      bytes_from_hex("4502003f00004000400626b50a0000010a00000201010302fffffff001020304a0d8abcdbf0"
                     "10000010105120000001000000020ffffff00ffffff806f6464"));
  Tcp flags;
  flags.source_port = 5'001;
  flags.destination_port = 40'000;
  flags.sequence = TcpSequence(1);
  flags.acknowledgement = TcpSequence(2);
  flags.syn = flags.fin = flags.rst = flags.urg = flags.ack = true;
  flags.window = 1;
  flags.urgent_pointer = 7;
  EXPECT_EQ(
      encoded(addresses(0), flags, {}),
      bytes_from_hex(
          "4500002800004000400626ce0a0000010a00000213899c40000000010000000250370001ebd60007"));
}

TEST(Tcp, AHeaderWithoutBlocksHasNoOptions) {
  std::array<std::byte, 60> out;
  out.fill(std::byte{0xEE});
  ASSERT_EQ(encode(Tcp{}, out), 20u);
  for (std::size_t i = 20; i < out.size(); ++i) EXPECT_EQ(out[i], std::byte{0xEE}) << i;
}

// RFC 9293 §3.2: nothing behind the end of the options is one.
TEST(Tcp, WhatFollowsTheEndOfTheOptionsIsPadding) {
  std::array<std::byte, 28> bytes{};
  ASSERT_EQ(encode(Tcp{}, bytes), 20u);
  bytes[12] = std::byte{7 << 4};  // seven words
  bytes[20] = std::byte{1};       // no operation
  bytes[21] = std::byte{0};       // the end
  bytes[22] = std::byte{5};       // would be SACK, of a length that cannot be
  bytes[23] = std::byte{99};
  Tcp tcp;
  const DecodedTcp decoded = decode(bytes, tcp);
  EXPECT_TRUE(decoded.ok);
  EXPECT_EQ(decoded.header_bytes, 28u);
  EXPECT_EQ(tcp.block_count, 0);
  bytes[21] = std::byte{1};  // no end: the option is read
  EXPECT_FALSE(decode(bytes, tcp).ok);
}

TEST(Tcp, RoundTrip) {
  Random random(9);
  for (int i = 0; i < 1'000; ++i) {
    Tcp tcp;
    const std::uint64_t bits = random.next();
    tcp.source_port = static_cast<std::uint16_t>(random.next());
    tcp.destination_port = static_cast<std::uint16_t>(random.next());
    tcp.sequence = TcpSequence(static_cast<std::uint32_t>(random.next()));
    tcp.acknowledgement = TcpSequence(static_cast<std::uint32_t>(random.next()));
    bool* flags[] = {&tcp.cwr, &tcp.ece, &tcp.urg, &tcp.ack,
                     &tcp.psh, &tcp.rst, &tcp.syn, &tcp.fin};
    for (std::size_t f = 0; f < 8; ++f) *flags[f] = (bits >> f & 1) != 0;
    tcp.window = static_cast<std::uint16_t>(random.next());
    tcp.checksum = static_cast<std::uint16_t>(random.next());
    tcp.urgent_pointer = static_cast<std::uint16_t>(random.next());
    tcp.block_count = static_cast<std::uint8_t>(random.below(Tcp::blocks_max + 1));
    for (std::size_t b = 0; b < tcp.block_count; ++b) {
      tcp.blocks[b] = {TcpSequence(static_cast<std::uint32_t>(random.next())),
                       TcpSequence(static_cast<std::uint32_t>(random.next()))};
    }
    std::array<std::byte, tcp_header_bytes_max> bytes{};
    const std::size_t written = encode(tcp, bytes);
    EXPECT_EQ(written, header_bytes(tcp));
    Tcp read;
    const DecodedTcp decoded = decode(std::span(bytes).first(written), read);
    ASSERT_TRUE(decoded.ok);
    EXPECT_EQ(decoded.header_bytes, written);
    EXPECT_EQ(read, tcp);
    for (std::size_t less = 0; less < written; ++less) {
      EXPECT_FALSE(decode(std::span(bytes).first(less), read).ok);
    }
  }
}

// The last of several options of one kind counts, and nothing of the others is left.
TEST(Tcp, TheLastOfSeveralSelectiveAcknowledgementsCounts) {
  Tcp sent;
  sent.block_count = 1;
  sent.blocks[0] = {TcpSequence(5), TcpSequence(9)};
  std::array<std::byte, tcp_header_bytes_max> bytes{};
  const std::size_t written = encode(sent, bytes);
  // Another such option follows, without a block: kind 5, two bytes, and two NOPs.
  const std::array more = {std::byte{5}, std::byte{2}, std::byte{1}, std::byte{1}};
  std::copy(more.begin(), more.end(), bytes.begin() + written);
  bytes[12] = static_cast<std::byte>((written + more.size()) / 4 << 4);
  Tcp read;
  ASSERT_TRUE(decode(std::span(bytes).first(written + more.size()), read).ok);
  EXPECT_EQ(read.block_count, 0u);
  EXPECT_EQ(read, Tcp());
}

TEST(Tcp, MalformedOptions) {
  std::array<std::byte, tcp_header_bytes_max> bytes{};
  const std::size_t written = encode(with_blocks(), bytes);
  Tcp tcp;
  for (const int length : {0, 1, 3, 9, 17, 19, 255}) {
    auto bad = bytes;
    bad[23] = static_cast<std::byte>(length);
    EXPECT_FALSE(decode(std::span(bad).first(written), tcp).ok) << length;
  }
  auto short_offset = bytes;
  short_offset[12] = std::byte{0x40};
  EXPECT_FALSE(decode(short_offset, tcp).ok);
}

TEST(TcpSequence, WrapsAndIsOrderedWithinHalfItsSpace) {
  const TcpSequence last(0xFFFF'FFFF);
  EXPECT_EQ(last + 1, TcpSequence(0));
  EXPECT_EQ((last + 5).distance_from(last), 5);
  EXPECT_EQ(last.distance_from(last + 5), -5);
  EXPECT_EQ((last + 0x7FFF'FFFF).distance_from(last), 0x7FFF'FFFF);
}

}  // namespace
}  // namespace tulle::wire

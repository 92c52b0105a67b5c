#include "rdma/port/framing/roce_v1.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "rdma/wire/bth.h"

namespace tulle::port {
namespace {

using Bytes = std::vector<std::byte>;

// The link-local GID of 02:00:00:00:00:05, whose interface ID is 00:00:00:ff:fe:00:00:05 (RFC 4291
// appendix A).
Gid link_local(std::uint8_t last) {
  Gid gid;
  gid.bytes = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFE, 0, 0, last};
  return gid;
}

wire::Path path_to(std::uint8_t service_level = 0) {
  Route route;
  route.source_gid = link_local(5);
  route.destination = link_local(6);
  route.service_level = service_level;
  route.traffic_class = 0x62;
  route.flow_label = 0x12345;
  wire::Path path;
  roce_v1.set_path(route, path);
  return path;
}

wire::Packet send_packet(std::uint8_t pad_count = 0) {
  wire::Packet packet;
  packet.opcode = wire::opcode(wire::TransportClass::rc, wire::Operation::send_only);
  packet.destination_qp = QpNumber{0x123456};
  packet.psn = Psn{77};
  packet.pad_count = pad_count;
  return packet;
}

Bytes framed(const wire::Path& path, const wire::Packet& packet, const Bytes& payload) {
  FrameBytes frame;
  roce_v1.encode(path, packet, std::array{std::span<const std::byte>(payload)}, frame);
  Bytes bytes(frame.head.begin(), frame.head.begin() + frame.head_bytes);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.insert(bytes.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
  return bytes;
}

struct Unframed {
  Verdict verdict{};
  Arrival arrival;
  wire::Packet packet;
  std::span<const std::byte> payload;
};
Unframed unframed(const Bytes& bytes) {
  Unframed result;
  result.verdict = roce_v1.decode(bytes, result.arrival, result.packet, result.payload);
  return result;
}

const Bytes hello = {std::byte{'h'}, std::byte{'e'}, std::byte{'l'}, std::byte{'l'},
                     std::byte{'o'}};

TEST(RoceV1, MacAddressesComeFromGids) {
  EXPECT_EQ(mac_of(link_local(5)), (wire::MacAddress{2, 0, 0, 0, 0, 5}));
  Gid distinct;
  distinct.bytes = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0xFF, 0xFE, 0x78, 0x9A, 0xBC};
  EXPECT_EQ(mac_of(distinct), (wire::MacAddress{0x10, 0x34, 0x56, 0x78, 0x9A, 0xBC}));
  Gid group;
  group.bytes = {0xFF, 0x0E, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4};
  EXPECT_EQ(mac_of(group), (wire::MacAddress{0x33, 0x33, 1, 2, 3, 4}));
  EXPECT_EQ(mac_of(Gid::from_ipv4(0x0A000001)), wire::MacAddress{}) << "needs address resolution";
}

TEST(RoceV1, AGroupOfIpv4HasTheMacAddressOfRfc1112) {
  EXPECT_EQ(mac_of(Gid::from_ipv4(0xEF81'0203)), (wire::MacAddress{1, 0, 0x5E, 1, 2, 3}));
}

TEST(RoceV1, TheHeadersAreWhereAnnexA16PutsThem) {
  const Bytes bytes = framed(path_to(), send_packet(3), hello);
  ASSERT_EQ(bytes.size(), 14u + 40 + 12 + 5 + 3 + 4);
  EXPECT_EQ(bytes[5], std::byte{6}) << "destination first";
  EXPECT_EQ(bytes[11], std::byte{5});
  EXPECT_EQ(bytes[12], std::byte{0x89});
  EXPECT_EQ(bytes[13], std::byte{0x15});
  EXPECT_EQ(bytes[14], std::byte{0x66}) << "IP version 6 and the traffic class";
  EXPECT_EQ(bytes[18], std::byte{0});
  EXPECT_EQ(bytes[19], std::byte{12 + 5 + 3 + 4}) << "PayLen counts the ICRC";
  EXPECT_EQ(bytes[20], std::byte{0x1B}) << "next header";
}

// IEEE 802.1Q clause 9.6: the upper three bits of the tag are the priority.
TEST(RoceV1, ATagHasTheServiceLevelAsItsPriority) {
  const Bytes bytes = framed(path_to(5), send_packet(3), hello);
  EXPECT_EQ(bytes[12], std::byte{0x81});
  EXPECT_EQ(bytes[13], std::byte{0x00});
  EXPECT_EQ(bytes[14], std::byte{0xA0});
  EXPECT_EQ(bytes[15], std::byte{0x00});
  EXPECT_EQ(bytes[16], std::byte{0x89});
  EXPECT_EQ(bytes[17], std::byte{0x15});
}

TEST(RoceV1, WhatIsFramedComesBack) {
  for (const std::uint8_t service_level : {std::uint8_t{0}, std::uint8_t{5}}) {
    const wire::Path path = path_to(service_level);
    const Bytes bytes = framed(path, send_packet(3), hello);
    const Unframed back = unframed(bytes);
    ASSERT_EQ(back.verdict, Verdict::ok);
    EXPECT_EQ(back.arrival.path, path);
    EXPECT_EQ(back.packet, send_packet(3));
    EXPECT_TRUE(std::ranges::equal(back.payload, hello));
  }
}

TEST(RoceV1, APaddedFrameIsReadUpToWhatItsHeaderCounts) {
  Bytes bytes = framed(path_to(), send_packet(), {});
  bytes.resize(bytes.size() + 20);
  const Unframed back = unframed(bytes);
  EXPECT_EQ(back.verdict, Verdict::ok);
  EXPECT_TRUE(back.payload.empty());
}

TEST(RoceV1, EveryFlippedBitThatTheIcrcCoversIsSeen) {
  const Bytes good = framed(path_to(), send_packet(3), hello);
  constexpr std::size_t gids_at = 14 + 8;
  for (std::size_t at = gids_at; at < good.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      Bytes bytes = good;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      const bool may_change = at == 14 + 40 + 4;  // FECN, BECN and reserved bits
      EXPECT_EQ(unframed(bytes).verdict == Verdict::ok, may_change) << at << "." << bit;
    }
  }
}

TEST(RoceV1, SwitchesMayChangeTrafficClassAndHopLimit) {
  Bytes bytes = framed(path_to(), send_packet(), {});
  bytes[15] ^= std::byte{0x10};
  bytes[21] = std::byte{3};
  EXPECT_EQ(unframed(bytes).verdict, Verdict::ok);
}

TEST(RoceV1, ShortAndForeignFramesAreRefused) {
  const Bytes good = framed(path_to(), send_packet(), hello);
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes));
    const bool has_headers = bytes >= 14 + 40 + 12 + 4;
    EXPECT_EQ(unframed(cut).verdict, has_headers ? Verdict::bad_length : Verdict::truncated)
        << bytes;
  }
  Bytes other = good;
  other[12] = std::byte{0x08};
  other[13] = std::byte{0x00};
  EXPECT_EQ(unframed(other).verdict, Verdict::no_transport);
  Bytes no_grh = good;
  no_grh[20] = std::byte{17};
  EXPECT_EQ(unframed(no_grh).verdict, Verdict::bad_link_header);
  Bytes longer = good;
  longer[19] = std::byte{0xFF};
  EXPECT_EQ(unframed(longer).verdict, Verdict::bad_length);
}

}  // namespace
}  // namespace tulle::port

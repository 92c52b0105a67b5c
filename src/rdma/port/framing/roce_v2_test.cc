#include "rdma/port/framing/roce_v2.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/random.h"
#include "rdma/wire/icrc.h"

namespace tulle::port {
namespace {

using Bytes = std::vector<std::byte>;

wire::IpUdp ipv4() {
  wire::IpUdp ip;
  ip.source = Gid::from_ipv4(0x0A00'0001);
  ip.destination = Gid::from_ipv4(0x0A00'0002);
  ip.source_port = 0xC123;
  return ip;
}

wire::IpUdp ipv6() {
  wire::IpUdp ip;
  ip.source.bytes = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  ip.destination.bytes = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  ip.source_port = 0xC123;
  return ip;
}

constexpr auto rc(wire::Operation operation) {
  return wire::opcode(wire::TransportClass::rc, operation);
}

Bytes datagram_of(const wire::IpUdp& ip, const wire::Packet& packet,
                  std::span<const std::span<const std::byte>> pieces) {
  FrameBytes frame;
  encode(ip, packet, pieces, frame);
  Bytes bytes(frame.head.begin(), frame.head.begin() + frame.head_bytes);
  for (const auto& piece : pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
  bytes.insert(bytes.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
  return bytes;
}

// Makes the last four bytes the ICRC of the rest, whatever they cover.
void repair_icrc(const wire::IpUdp& ip, Bytes& datagram) {
  Bytes covered(48 + datagram.size());
  const std::size_t headers = wire::encode_for_icrc(ip, datagram.size(), covered);
  std::copy(datagram.begin(), datagram.end(), covered.begin() + headers);
  wire::mask_bth(std::span(covered).subspan(headers));
  wire::Icrc icrc;
  icrc.update(std::span(covered).first(headers + datagram.size() - 4));
  wire::put_icrc(icrc.value(), std::span(datagram).last<4>());
}

struct Unframed {
  Verdict verdict;
  wire::Packet packet;
  std::span<const std::byte> payload;
};
Unframed unframe(const wire::IpUdp& ip, const Bytes& datagram, bool identification_known = true) {
  Unframed result;
  result.verdict = decode(ip, identification_known, datagram, result.packet, result.payload);
  return result;
}

TEST(RoceV2Test, payload_in_any_pieces_survives_framing) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  Bytes payload(4096);
  for (auto& byte : payload) byte = static_cast<std::byte>(random.next());

  for (int round = 0; round < 500; ++round) {
    const auto ip = random.chance(0.5) ? ipv4() : ipv6();
    const std::size_t size = round == 0 ? 4096 : random.below(4097);
    const std::size_t first = random.below(size + 1);
    const auto whole = std::span<const std::byte>(payload).first(size);
    const std::array pieces{whole.first(first), whole.subspan(first)};
    const wire::Packet packet{.opcode = rc(wire::Operation::write_only_with_immediate),
                              .pad_count = static_cast<std::uint8_t>(-size & 3),
                              .psn = Psn(static_cast<std::uint32_t>(random.next()))};
    const Bytes datagram = datagram_of(ip, packet, pieces);
    EXPECT_LE(datagram.size(), udp_payload_bytes_max);
    EXPECT_EQ(datagram.size() % 4, 0u);
    EXPECT_EQ(datagram, datagram_of(ip, packet, std::array{whole}));

    const Unframed result = unframe(ip, datagram);
    ASSERT_EQ(result.verdict, Verdict::ok);
    EXPECT_EQ(result.packet, packet);
    EXPECT_EQ(result.payload.data(), datagram.data() + wire::header_bytes(packet.opcode));
    EXPECT_TRUE(
        std::equal(result.payload.begin(), result.payload.end(), whole.begin(), whole.end()));
  }
}

TEST(RoceV2Test, what_routers_may_change_is_not_covered) {
  const wire::Packet packet{.opcode = rc(wire::Operation::send_only)};
  for (wire::IpUdp ip : {ipv4(), ipv6()}) {
    Bytes datagram = datagram_of(ip, packet, {});
    datagram[4] = std::byte{0x80};  // FECN
    ip.traffic_class = 3;           // congestion experienced
    ip.hop_limit = 7;
    ip.udp_checksum = 0x1234;
    if (!wire::is_ipv4(ip)) ip.flow_label = 0x12345;
    const Unframed result = unframe(ip, datagram);
    EXPECT_EQ(result.verdict, Verdict::ok);
    EXPECT_TRUE(result.packet.fecn);
  }
}

TEST(RoceV2Test, what_they_may_not_change_is_covered) {
  const Bytes datagram = datagram_of(ipv4(), {.opcode = rc(wire::Operation::send_only)}, {});
  wire::IpUdp ip = ipv4();
  ip.source = Gid::from_ipv4(0x0A00'0003);
  EXPECT_EQ(unframe(ip, datagram).verdict, Verdict::bad_icrc);
  EXPECT_EQ(unframe(ip, datagram, false).verdict, Verdict::bad_icrc);
  ip = ipv4();
  ip.source_port ^= 1;
  EXPECT_EQ(unframe(ip, datagram).verdict, Verdict::bad_icrc);
  ip = ipv4();
  ip.identification = 5;
  EXPECT_EQ(unframe(ip, datagram).verdict, Verdict::bad_icrc);
  EXPECT_EQ(unframe(ip, datagram, false).verdict, Verdict::ok);
}

TEST(RoceV2Test, ipv6_has_no_identification_to_excuse_a_difference) {
  Bytes datagram = datagram_of(ipv6(), {.opcode = rc(wire::Operation::send_only)}, {});
  // This is the difference that identification 1 would make in IPv4.
  wire::IpUdp other = ipv4();
  other.identification = 1;
  const Bytes a = datagram_of(ipv4(), {.opcode = rc(wire::Operation::send_only)}, {});
  const Bytes b = datagram_of(other, {.opcode = rc(wire::Operation::send_only)}, {});
  for (std::size_t i = 12; i < 16; ++i) datagram[i] ^= a[i] ^ b[i];
  EXPECT_EQ(unframe(ipv6(), datagram, false).verdict, Verdict::bad_icrc);
  EXPECT_EQ(unframe(ipv4(), b, false).verdict, Verdict::ok);
}

TEST(RoceV2Test, verdicts_on_malformed_datagrams) {
  const auto verdict_of = [](Bytes datagram) {
    repair_icrc(ipv4(), datagram);
    return unframe(ipv4(), datagram).verdict;
  };
  const Bytes good = datagram_of(ipv4(), {.opcode = rc(wire::Operation::read_request)}, {});
  ASSERT_EQ(verdict_of(good), Verdict::ok);

  for (std::size_t length = 0; length < 16; ++length) {
    EXPECT_EQ(unframe(ipv4(), Bytes(length)).verdict, Verdict::truncated);
  }
  for (std::size_t length = 16; length < good.size(); ++length) {  // the RETH is cut short
    EXPECT_EQ(verdict_of(Bytes(good.begin(), good.begin() + length)), Verdict::truncated);
  }
  Bytes changed = good;
  changed[0] = std::byte{0x15};
  EXPECT_EQ(verdict_of(changed), Verdict::unknown_opcode);
  EXPECT_EQ(unframe(ipv4(), changed).verdict, Verdict::bad_icrc);  // the ICRC comes first
  changed = good;
  changed[1] |= std::byte{0x01};
  EXPECT_EQ(verdict_of(changed), Verdict::bad_version);
  changed = good;
  changed[1] |= std::byte{0x10};  // one byte of pad, but no room for it
  EXPECT_EQ(verdict_of(changed), Verdict::truncated);
}

TEST(RoceV2Test, source_ports_are_the_kernels) {
  // v = local · remote; v ^= v >> 20; v ^= v >> 40. The lower twenty bits are folded to fourteen.
  EXPECT_EQ(source_port(QpNumber(0), QpNumber(0)), 0xC000);
  EXPECT_EQ(source_port(QpNumber(1), QpNumber(17)), 0xC011);
  EXPECT_EQ(source_port(QpNumber(0x12'3456), QpNumber(0xAB'CDEF)), 0xC3C8);
  EXPECT_EQ(source_port(QpNumber(0xAB'CDEF), QpNumber(0x12'3456)), 0xC3C8);
  EXPECT_EQ(source_port(0xAC3E3, QpNumber(5), QpNumber(6)), 0xC3C8);
  EXPECT_EQ(source_port(0, QpNumber(1), QpNumber(17)), 0xC011);
  EXPECT_EQ(source_port(0xF'FFFF, QpNumber(1), QpNumber(2)), 0xC000 | (0x3FFF ^ 0x3F));
}

TEST(RoceV2, TwoUnicastAddressesOfDifferentFamiliesAreNoPair) {
  const wire::IpUdp four = ipv4();
  const wire::IpUdp six = ipv6();
  EXPECT_TRUE(roce_v2.is_pair(four.source, four.destination));
  EXPECT_TRUE(roce_v2.is_pair(six.source, six.destination));
  EXPECT_FALSE(roce_v2.is_pair(four.source, six.destination));
  EXPECT_FALSE(roce_v2.is_pair(six.source, four.destination));
  Gid group;
  group.bytes = {0xFF, 0x0E, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 1, 2, 3};
  EXPECT_TRUE(roce_v2.is_pair(four.source, group)) << "an IPv4 group by its GID of RoCE v1";
  EXPECT_TRUE(roce_v2.is_pair(six.source, group));
}

}  // namespace
}  // namespace tulle::port

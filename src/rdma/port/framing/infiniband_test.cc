#include "rdma/port/framing/infiniband.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "rdma/wire/bth.h"
#include "rdma/wire/icrc.h"

namespace tulle::port {
namespace {

using Bytes = std::vector<std::byte>;

wire::LocalRoute route() {
  wire::LocalRoute route;
  route.vl = 2;
  route.service_level = 3;
  route.destination = Lid(5);
  route.source = Lid(9);
  return route;
}

constexpr auto rc(wire::Operation operation) {
  return wire::opcode(wire::TransportClass::rc, operation);
}

Bytes packet_of(const wire::LocalPath& path, const wire::Packet& packet,
                std::span<const std::span<const std::byte>> pieces) {
  FrameBytes frame;
  encode(path, packet, pieces, frame);
  Bytes bytes(frame.head.begin(), frame.head.begin() + frame.head_bytes);
  for (const auto& piece : pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
  bytes.insert(bytes.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
  return bytes;
}

Bytes packet_of(const wire::LocalRoute& route, const wire::Packet& packet,
                std::span<const std::span<const std::byte>> pieces) {
  wire::LocalPath path;
  path.local = route;
  return packet_of(path, packet, pieces);
}

struct Unframed {
  Verdict verdict;
  wire::LocalPath path;
  wire::LocalRoute route;  // of the path
  wire::Packet packet;
  std::span<const std::byte> payload;
};
Unframed unframe(const Bytes& bytes) {
  Unframed result;
  result.verdict = decode(bytes, result.path, result.packet, result.payload);
  result.route = result.path.local;
  return result;
}

// Makes the last two bytes the VCRC of the rest, whatever they cover.
Bytes with_vcrc(Bytes bytes) {
  wire::Vcrc vcrc;
  vcrc.update(std::span(bytes).first(bytes.size() - wire::vcrc_bytes));
  wire::put_vcrc(vcrc.value(), std::span(bytes).last<wire::vcrc_bytes>());
  return bytes;
}

// Also makes the four bytes before them the ICRC.
Bytes with_crcs(Bytes bytes) {
  const std::span<std::byte> all(bytes);
  const auto covered = all.first(bytes.size() - wire::icrc_bytes - wire::vcrc_bytes);
  Bytes masked(covered.begin(), covered.end());
  wire::mask_bth(std::span(masked).subspan(wire::lrh_bytes));
  wire::Icrc icrc(std::span<const std::byte>(masked).first<wire::lrh_bytes>());
  icrc.update(std::span(masked).subspan(wire::lrh_bytes));
  wire::put_icrc(icrc.value(), all.subspan(covered.size()).first<wire::icrc_bytes>());
  return with_vcrc(std::move(bytes));
}

Bytes from_hex(std::string_view hex) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

// The sample packet by which IBTA 7.8 shows how its CRCs are computed: an RDMA WRITE of fourteen
// bytes.
TEST(InfinibandTest, is_the_specifications_sample_packet_to_the_last_byte) {
  const Bytes sample = from_hex(
      "7012375C000E17D2"                  // LRH
      "0A2024870087B1B3000DEC2A"          // BTH
      "01710A1C015D400238F27A050000000E"  // RETH
      "BB884D85FD5CFBA4728BC0690ED4"      // payload
      "0000"                              // pad
      "9625B75A"                          // ICRC
      "45FA");                            // VCRC
  const Unframed read = unframe(sample);
  ASSERT_EQ(read.verdict, Verdict::ok);
  EXPECT_EQ(read.route.vl, 7);
  EXPECT_EQ(read.route.service_level, 1);
  EXPECT_EQ(read.route.destination, Lid(0x375C));
  EXPECT_EQ(read.route.source, Lid(0x17D2));
  EXPECT_EQ(read.route.packet_words * 4u, sample.size() - wire::vcrc_bytes);
  EXPECT_EQ(read.packet.opcode, rc(wire::Operation::write_only));
  EXPECT_EQ(read.packet.dma_length, 14u);
  EXPECT_EQ(read.payload.size(), 14u);
  EXPECT_EQ(packet_of(read.route, read.packet, std::array{read.payload}), sample);
}

TEST(InfinibandTest, payload_in_any_pieces_survives_framing) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  Bytes payload(4096);
  for (auto& byte : payload) byte = static_cast<std::byte>(random.next());

  for (int round = 0; round < 300; ++round) {
    const std::size_t size = round == 0 ? 4096 : random.below(4097);
    const std::size_t first = random.below(size + 1);
    const auto whole = std::span<const std::byte>(payload).first(size);
    const std::array pieces{whole.first(first), whole.subspan(first)};
    const wire::Packet packet{.opcode = rc(wire::Operation::write_only_with_immediate),
                              .pad_count = static_cast<std::uint8_t>(-size & 3),
                              .psn = Psn(static_cast<std::uint32_t>(random.next()))};
    const Bytes bytes = packet_of(route(), packet, pieces);
    EXPECT_EQ(bytes, packet_of(route(), packet, std::array{whole}));
    EXPECT_EQ(bytes, with_crcs(bytes));

    const Unframed result = unframe(bytes);
    ASSERT_EQ(result.verdict, Verdict::ok);
    EXPECT_EQ(result.packet, packet);
    EXPECT_TRUE(
        std::equal(result.payload.begin(), result.payload.end(), whole.begin(), whole.end()));
  }
}

TEST(InfinibandTest, a_port_frames_by_the_row_as_by_the_functions) {
  wire::Packet packet;
  packet.opcode = rc(wire::Operation::send_only);
  packet.psn = Psn(7);
  const Bytes payload(8, std::byte{3});
  const std::array pieces{std::span<const std::byte>(payload)};
  wire::Path path;
  path.emplace<wire::LocalPath>().local = route();
  FrameBytes frame;
  infiniband.encode(path, packet, pieces, frame);
  Bytes bytes(frame.head.begin(), frame.head.begin() + frame.head_bytes);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.insert(bytes.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
  EXPECT_EQ(bytes, packet_of(route(), packet, pieces));
  Arrival arrival;
  wire::Packet back;
  std::span<const std::byte> rest;
  EXPECT_EQ(infiniband.decode(bytes, arrival, back, rest), Verdict::ok);
  EXPECT_EQ(back, packet);
  EXPECT_TRUE(std::ranges::equal(rest, payload));
  EXPECT_EQ(std::get<wire::LocalPath>(arrival.path).local.destination, route().destination);
}

TEST(InfinibandTest, switches_may_change_the_lane_and_marks) {
  Bytes bytes = packet_of(route(), {.opcode = rc(wire::Operation::send_only)}, {});
  bytes[0] = std::byte{0xE0};                    // VL
  bytes[wire::lrh_bytes + 4] = std::byte{0x80};  // FECN
  EXPECT_EQ(unframe(bytes).verdict, Verdict::bad_vcrc);
  const Bytes forwarded = with_vcrc(bytes);
  const Unframed result = unframe(forwarded);
  EXPECT_EQ(result.verdict, Verdict::ok);
  EXPECT_EQ(result.route.vl, 14);
  EXPECT_TRUE(result.packet.fecn);
}

TEST(InfinibandTest, every_bit_else_is_covered_from_end_to_end) {
  const Bytes good = packet_of(route(), {.opcode = rc(wire::Operation::read_request)}, {});
  for (std::size_t bit = 0; bit < 8 * (good.size() - wire::vcrc_bytes); ++bit) {
    const std::size_t byte = bit / 8;
    Bytes bad = good;
    bad[byte] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_EQ(unframe(bad).verdict, Verdict::bad_vcrc) << bit;
    const bool is_free = (byte == 0 && bit % 8 >= 4) || byte == wire::lrh_bytes + 4;
    if (is_free) continue;
    EXPECT_NE(unframe(with_vcrc(bad)).verdict, Verdict::ok) << bit;
  }
}

TEST(InfinibandTest, verdicts_on_malformed_packets) {
  const auto changed = [](std::size_t at, unsigned bits) {
    Bytes bytes = packet_of(route(), {.opcode = rc(wire::Operation::read_request)}, {});
    bytes[at] ^= static_cast<std::byte>(bits);
    return bytes;
  };
  EXPECT_EQ(unframe(with_crcs(changed(0, 0x01))).verdict, Verdict::bad_link_header);
  EXPECT_EQ(unframe(with_crcs(changed(5, 0x01))).verdict, Verdict::bad_length);
  EXPECT_EQ(unframe(with_crcs(changed(1, 0x01))).verdict, Verdict::truncated);  // no room for a GRH
  EXPECT_EQ(unframe(with_crcs(changed(1, 0x02))).verdict, Verdict::no_transport);  // raw
  EXPECT_EQ(unframe(with_vcrc(changed(30, 0x01))).verdict, Verdict::bad_icrc);
  EXPECT_EQ(unframe(with_crcs(changed(8, 0x19))).verdict, Verdict::unknown_opcode);
  EXPECT_EQ(unframe(with_crcs(changed(9, 0x01))).verdict, Verdict::bad_version);
  EXPECT_EQ(unframe(with_crcs(changed(9, 0x10))).verdict, Verdict::truncated);  // pad

  const Bytes good = changed(0, 0);
  constexpr std::size_t least = wire::lrh_bytes + 12 + wire::icrc_bytes + wire::vcrc_bytes;
  for (std::size_t length = 0; length < good.size(); ++length) {
    Bytes shorter(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length));
    if (length >= least) {
      shorter[5] = static_cast<std::byte>((length - wire::vcrc_bytes) / 4);
      shorter = with_crcs(shorter);
    }
    const auto expected =
        length < least || length % 4 == 2 ? Verdict::truncated : Verdict::bad_length;
    EXPECT_EQ(unframe(shorter).verdict, expected) << length;
  }
}

wire::LocalPath global_path() {
  wire::LocalPath path;
  path.local = route();
  path.has_global = true;
  path.global.source = Gid::from_ipv4(0x0A00'0001);
  path.global.destination = Gid::from_ipv4(0x0A00'0002);
  path.global.traffic_class = 0x42;
  path.global.flow_label = 0x12345;
  path.global.hop_limit = 9;
  return path;
}

TEST(InfinibandFraming, APacketMayHaveAGlobalRoute) {
  const Bytes data(5, std::byte{0xA5});
  const std::array<std::span<const std::byte>, 1> pieces = {data};
  const wire::Packet packet{.opcode = rc(wire::Operation::send_only), .pad_count = 3};
  const Bytes bytes = packet_of(global_path(), packet, pieces);
  EXPECT_EQ(bytes.size(), 8u + 40 + 12 + 5 + 3 + 4 + 2);
  EXPECT_EQ(std::to_integer<int>(bytes[1]) & 3, 3) << "LNH: a GRH follows (IBTA 7.7.5)";
  const Unframed read = unframe(bytes);
  ASSERT_EQ(read.verdict, Verdict::ok);
  EXPECT_EQ(read.path.global, global_path().global);
  EXPECT_TRUE(std::equal(read.payload.begin(), read.payload.end(), data.begin(), data.end()));
}

TEST(InfinibandFraming, RoutersMayChangeWhatTheInvariantCheckLeavesOut) {
  const Bytes good = packet_of(global_path(), {.opcode = rc(wire::Operation::read_request)}, {});
  // LRH, the GRH's traffic class, flow label and hop limit, and BTH's reserved byte are left out
  // (IBTA 7.8.1).
  for (const std::size_t at : {0u, 2u, 7u, 9u, 11u, 15u, 52u}) {
    Bytes changed = good;
    const unsigned bit = at == 0 ? 0x80 : 0x01;
    changed[at] ^= static_cast<std::byte>(bit);
    EXPECT_EQ(unframe(with_vcrc(changed)).verdict, Verdict::ok) << at;
  }
  for (const std::size_t at : {16u, 47u, 48u, 50u}) {
    Bytes changed = good;
    changed[at] ^= std::byte{0x01};
    EXPECT_EQ(unframe(with_vcrc(changed)).verdict, Verdict::bad_icrc) << at;
  }
}

TEST(InfinibandFraming, ChecksAreThoseOfTheWholePacket) {
  for (const bool has_global : {false, true}) {
    wire::LocalPath path = global_path();
    path.has_global = has_global;
    const Bytes bytes = packet_of(path, {.opcode = rc(wire::Operation::read_request)}, {});
    const auto checks = checks_of(std::span(bytes).first(bytes.size() - 6));
    EXPECT_TRUE(std::equal(checks.begin(), checks.end(), bytes.end() - 6));
  }
}

TEST(InfinibandFraming, AGlobalRouteOfAnotherLengthIsRefused) {
  Bytes bytes = packet_of(global_path(), {.opcode = rc(wire::Operation::read_request)}, {});
  bytes[13] ^= std::byte{0x04};
  EXPECT_EQ(unframe(with_vcrc(bytes)).verdict, Verdict::bad_length);
}

}  // namespace
}  // namespace tulle::port

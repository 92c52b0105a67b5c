#include "rdma/wire/packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "base/random.h"
#include "rdma/wire/bth.h"
#include "rdma/wire/ip_udp.h"
#include "rdma/wire/vectors_test.h"

namespace tulle::wire {
namespace {

std::vector<Opcode> all_opcodes() {
  std::vector<Opcode> opcodes;
  for (unsigned code = 0; code < 256; ++code) {
    if (info(Opcode(code)).kind != Kind::none) opcodes.push_back(Opcode(code));
  }
  return opcodes;
}

// Returns a packet with random values in the fields that its opcode has, and defaults in the
// others.
Packet random_packet(Opcode code, Random& random) {
  const auto bits = [&random](unsigned count) { return random.next() >> (64 - count); };
  const auto bits8 = [&](unsigned count) { return static_cast<std::uint8_t>(bits(count)); };
  const auto bits32 = [&](unsigned count) { return static_cast<std::uint32_t>(bits(count)); };
  const OpcodeInfo& row = info(code);
  Packet packet;
  packet.opcode = code;
  packet.solicited_event = bits(1) != 0;
  packet.migration_state = bits(1) != 0;
  packet.pad_count = bits8(2);
  packet.fecn = bits(1) != 0;
  packet.becn = bits(1) != 0;
  packet.ack_request = bits(1) != 0;
  packet.pkey = Pkey(static_cast<std::uint16_t>(bits(16)));
  packet.destination_qp = QpNumber(bits32(24));
  packet.psn = Psn(bits32(24));
  if (row.reth || row.atomic_eth) {
    packet.virtual_address = random.next();
    packet.rkey = RemoteKey(bits32(32));
  }
  if (row.reth) packet.dma_length = bits32(32);
  if (row.atomic_eth) {
    packet.swap_or_add = random.next();
    packet.compare = random.next();
  }
  if (row.aeth) {
    packet.syndrome = Syndrome::decoded(bits8(7));
    packet.msn = bits32(24);
  }
  if (row.atomic_ack_eth) packet.original = random.next();
  if (row.deth) {
    packet.qkey = Qkey(bits32(32));
    packet.source_qp = QpNumber(bits32(24));
  }
  if (row.xrceth) packet.xrc_srq = bits32(24);
  if (row.feth) {
    packet.flush_placement = bits8(4);
    packet.flush_selectivity = bits8(2);
  }
  if (row.immediate) packet.immediate = bits32(32);
  if (row.invalidate) packet.invalidate_rkey = RemoteKey(bits32(32));
  if (row.saeth || row.srd_ack) packet.early_psn = Psn(bits32(24));
  if (row.srdeth || row.srd_ack) {
    packet.srd_context = bits32(32);
    packet.srd_path = bits8(8);
  }
  if (row.srdeth) {
    packet.source_qp = QpNumber(bits32(24));
    packet.srd_message = bits32(32);
  }
  if (row.srd_qkey) packet.qkey = Qkey(bits32(32));
  if (row.srd_segment) {
    packet.srd_offset = bits32(32);
    packet.dma_length = bits32(32);
  }
  if (row.srd_ack) {
    packet.syndrome = Syndrome::decoded(bits8(7));
    packet.srd_held_ns = bits32(24);
    packet.srd_received = random.next();
  }
  return packet;
}

using Head = std::array<std::byte, header_bytes_max>;

TEST(PacketTest, random_headers_of_every_opcode_survive_encoding_and_decoding) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (const Opcode code : all_opcodes()) {
    SCOPED_TRACE(testing::Message() << name(code));
    for (int round = 0; round < 100; ++round) {
      const Packet packet = random_packet(code, random);
      Head head;
      const std::size_t bytes = encode(packet, head);
      EXPECT_EQ(bytes, header_bytes(code));

      Packet read = random_packet(Opcode(0xB3), random);  // must be overwritten
      const Decoded decoded = decode(std::span(head).first(bytes), read);
      ASSERT_EQ(decoded.status, DecodeStatus::ok);
      EXPECT_EQ(decoded.header_bytes, bytes);
      EXPECT_EQ(read, packet);
    }
  }
}

// The expected bytes are written by hand from docs/decisions/009, since no other implementation
// makes these headers.
TEST(PacketTest, headers_of_srd_lie_where_their_description_says) {
  Packet write;
  write.opcode = Opcode(0xE7);
  write.destination_qp = QpNumber(0x112233);
  write.psn = Psn(0x445566);
  write.srd_context = 0x01020304;
  write.srd_path = 0x05;
  write.source_qp = QpNumber(0x060708);
  write.srd_message = 0x090A0B0C;
  write.virtual_address = 0x1112131415161718;
  write.rkey = RemoteKey(0x191A1B1C);
  write.dma_length = 0x1D1E1F20;
  Head head;
  ASSERT_EQ(encode(write, head), 40u);
  constexpr std::array<std::uint8_t, 40> expected = {
      0xE7, 0x40, 0xFF, 0xFF, 0x00, 0x11, 0x22, 0x33, 0x00, 0x44, 0x55, 0x66, 0x01, 0x02,
      0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x11, 0x12, 0x13, 0x14,
      0x15, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x1B, 0x1C, 0x1D, 0x1E, 0x1F, 0x20};
  EXPECT_EQ(std::memcmp(head.data(), expected.data(), expected.size()), 0);

  Packet answer;
  answer.opcode = Opcode(0xF1);
  answer.psn = Psn(7);
  answer.srd_context = 0x01020304;
  answer.srd_path = 0x05;
  answer.early_psn = Psn(0x060708);
  answer.syndrome = {AckKind::nak, 2};
  answer.srd_held_ns = 0x0A0B0C;
  answer.srd_received = 0x1112131415161718;
  ASSERT_EQ(encode(answer, head), 32u);
  constexpr std::array<std::uint8_t, 20> behind = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07,
                                                   0x08, 0x62, 0x0A, 0x0B, 0x0C, 0x11, 0x12,
                                                   0x13, 0x14, 0x15, 0x16, 0x17, 0x18};
  EXPECT_EQ(std::memcmp(head.data() + 12, behind.data(), behind.size()), 0);
}

TEST(PacketTest, encode_touches_nothing_behind_the_headers) {
  for (const Opcode code : all_opcodes()) {
    Head head;
    head.fill(std::byte{0xA5});
    const std::size_t bytes = encode(Packet{.opcode = code}, head);
    EXPECT_TRUE(std::all_of(head.begin() + bytes, head.end(),
                            [](std::byte byte) { return byte == std::byte{0xA5}; }));
  }
}

TEST(PacketTest, headers_cut_short_are_truncated_and_leave_the_packet_alone) {
  const Packet untouched{.opcode = Opcode(0x11), .msn = 77};
  for (const Opcode code : all_opcodes()) {
    Head head;
    const std::size_t bytes = encode(Packet{.opcode = code}, head);
    for (std::size_t length = 0; length < bytes; ++length) {
      Packet packet = untouched;
      EXPECT_EQ(decode(std::span(head).first(length), packet).status, DecodeStatus::truncated);
      EXPECT_EQ(packet, untouched);
    }
  }
}

TEST(PacketTest, reserved_opcodes_and_other_versions_are_refused) {
  Head head{};
  Packet packet;
  for (unsigned code = 0; code < 256; ++code) {
    head[0] = static_cast<std::byte>(code);
    head[1] = std::byte{0};
    const bool reserved = info(Opcode(code)).kind == Kind::none;
    const Decoded decoded = decode(head, packet);
    EXPECT_EQ(decoded.status, reserved ? DecodeStatus::unknown_opcode : DecodeStatus::ok);
    EXPECT_EQ(decoded.header_bytes, reserved ? 0u : info(Opcode(code)).header_bytes);
    for (unsigned version = 1; version < 16; ++version) {
      head[1] = static_cast<std::byte>(version);
      EXPECT_EQ(decode(head, packet).status, DecodeStatus::bad_version);
    }
  }
}

TEST(PacketTest, reserved_bits_are_sent_as_zero_and_ignored) {
  for (const Opcode code : all_opcodes()) {
    SCOPED_TRACE(testing::Message() << name(code));
    Head zero, ones;
    zero.fill(std::byte{0});
    ones.fill(std::byte{0xFF});
    zero[0] = ones[0] = static_cast<std::byte>(code);
    ones[1] = std::byte{0xF0};
    Packet packet;
    ASSERT_EQ(decode(ones, packet).status, DecodeStatus::ok);
    Head written;
    const std::size_t bytes = encode(packet, written);
    EXPECT_EQ(written[4], std::byte{0xC0});  // FECN and BECN
    EXPECT_EQ(written[8], std::byte{0x80});  // acknowledge request
    Packet again;
    ASSERT_EQ(decode(std::span(written).first(bytes), again).status, DecodeStatus::ok);
    EXPECT_EQ(again, packet);
    ASSERT_EQ(decode(zero, packet).status, DecodeStatus::ok);
    encode(packet, written);
    EXPECT_TRUE(std::equal(written.begin(), written.begin() + bytes, zero.begin()));
  }
}

// Wide values are cut to the width of their field; none spills into its neighbour.
TEST(PacketTest, values_wider_than_their_field_are_cut) {
  Packet packet{.opcode = Opcode(0x64)};
  packet.pad_count = 0xFF;
  packet.solicited_event = packet.migration_state = false;
  packet.destination_qp = QpNumber(0xFFFF'FFFF);
  packet.source_qp = QpNumber(0xAB12'3456);
  Head head;
  encode(packet, head);
  EXPECT_EQ(head[1], std::byte{0x30});
  EXPECT_EQ(head[4], std::byte{0});
  EXPECT_EQ(head[8], std::byte{0});
  EXPECT_EQ(head[16], std::byte{0});
  EXPECT_EQ(head[17], std::byte{0x12});

  packet = Packet{.opcode = Opcode(0x1C), .flush_placement = 0xF0, .flush_selectivity = 0xFD};
  encode(packet, head);
  EXPECT_EQ(head[15], std::byte{0x10});
}

TEST(PacketTest, immediate_data_keeps_the_order_of_its_bytes) {
  Packet packet{.opcode = Opcode(0x05)};
  std::memcpy(&packet.immediate, "abcd", 4);
  Head head;
  encode(packet, head);
  EXPECT_EQ(std::memcmp(head.data() + 12, "abcd", 4), 0);
}

TEST(PacketTest, syndromes_are_as_table_9_7_5_1_has_them) {
  EXPECT_EQ((Syndrome{AckKind::ack, 31}).encoded(), 0x1F);
  EXPECT_EQ((Syndrome{AckKind::rnr_nak, 14}).encoded(), 0x2E);
  EXPECT_EQ((Syndrome{AckKind::nak, 2}).encoded(), 0x62);  // remote access error
  for (unsigned byte = 0; byte < 128; ++byte) {
    EXPECT_EQ(Syndrome::decoded(static_cast<std::uint8_t>(byte)).encoded(), byte);
  }
}

// Scapy and a script filled in the fields. The test reads them back.
TEST(PacketTest, fields_of_packets_built_by_scapy) {
  const std::vector<Vector> vectors = scapy_vectors();
  ASSERT_GT(vectors.size(), 300u);
  for (const Vector& vector : vectors) {
    SCOPED_TRACE(vector.name);
    IpUdp ip;
    const DecodedIpUdp outer = decode(vector.packet, ip);
    ASSERT_TRUE(outer.ok);
    Packet packet;
    const auto body = std::span<const std::byte>(vector.packet).subspan(outer.header_bytes);
    ASSERT_EQ(decode(body, packet).status, DecodeStatus::ok);

    EXPECT_EQ(static_cast<unsigned>(packet.opcode), vector.field("opcode"));
    EXPECT_EQ(packet.solicited_event, vector.field("solicited"));
    EXPECT_EQ(packet.migration_state, vector.field("migration"));
    EXPECT_EQ(packet.pad_count, vector.field("pad"));
    EXPECT_EQ(packet.pkey.value, vector.field("pkey"));
    EXPECT_EQ(packet.fecn, vector.field("fecn"));
    EXPECT_EQ(packet.becn, vector.field("becn"));
    EXPECT_EQ(packet.destination_qp.value, vector.field("qp"));
    EXPECT_EQ(packet.ack_request, vector.field("ack_request"));
    EXPECT_EQ(packet.psn.value(), vector.field("psn"));
    EXPECT_EQ(packet.virtual_address, vector.field("address"));
    EXPECT_EQ(packet.rkey.value, vector.field("rkey"));
    EXPECT_EQ(packet.dma_length, vector.field("length"));
    EXPECT_EQ(packet.swap_or_add, vector.field("swap_or_add"));
    EXPECT_EQ(packet.compare, vector.field("compare"));
    EXPECT_EQ(packet.original, vector.field("original"));
    EXPECT_EQ(packet.syndrome.encoded(), vector.field("syndrome"));
    EXPECT_EQ(packet.msn, vector.field("msn"));
    EXPECT_EQ(packet.qkey.value, vector.field("qkey"));
    EXPECT_EQ(packet.source_qp.value, vector.field("source_qp"));
    EXPECT_EQ(packet.xrc_srq, vector.field("srq"));
    EXPECT_EQ(packet.flush_placement, vector.field("placement"));
    EXPECT_EQ(packet.flush_selectivity, vector.field("selectivity"));
    EXPECT_EQ(packet.invalidate_rkey.value, vector.field("invalidate"));
    std::uint32_t immediate = 0;
    for (int i = 0; i < 4; ++i) {
      std::uint8_t byte;
      std::memcpy(&byte, reinterpret_cast<const char*>(&packet.immediate) + i, 1);
      immediate = immediate << 8 | byte;
    }
    EXPECT_EQ(immediate, vector.field("immediate"));

    Head head;
    const std::size_t bytes = encode(packet, head);
    EXPECT_TRUE(std::equal(head.begin(), head.begin() + bytes, body.begin()));
    EXPECT_EQ(body.size(), bytes + vector.field("payload") + packet.pad_count + icrc_bytes);
  }
}

}  // namespace
}  // namespace tulle::wire

// Tests MPA, DDP and RDMAP by themselves; iwarp_captures_test.cc tests them on streams of another
// implementation.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "base/random.h"
#include "rdma/wire/ddp.h"
#include "rdma/wire/mpa.h"
#include "rdma/wire/rdmap.h"

namespace tulle::wire {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

TEST(MpaTest, lengths_of_fpdus) {
  for (std::uint32_t ulpdu = 0; ulpdu < 20; ++ulpdu) {
    EXPECT_LT(mpa::pad_bytes(ulpdu), 4u);
    EXPECT_EQ((mpa::length_bytes + ulpdu + mpa::pad_bytes(ulpdu)) % 4, 0u);
    EXPECT_EQ(mpa::fpdu_bytes(ulpdu) % 4, 0u);
  }
  EXPECT_EQ(mpa::fpdu_bytes(18), 24u);
  for (std::uint32_t segment = 40; segment < 10'000; segment += 7) {
    const std::uint32_t most = mpa::ulpdu_bytes_max(segment);
    EXPECT_LE(mpa::fpdu_bytes(most), segment);
    EXPECT_GT(mpa::fpdu_bytes(most + 1), segment);
  }
  EXPECT_EQ(mpa::ulpdu_bytes_max(1u << 20), 0xFFFFu);
}

// RFC 3720 B.4: CRC32C of 32 bytes of zeros, of ones, and counting up.
TEST(MpaTest, crc_of_known_bytes) {
  const auto crc = [](const Bytes& bytes) {
    mpa::Crc sum;
    sum.update(std::span(bytes).first(7));
    sum.update(std::span(bytes).subspan(7));
    std::array<std::byte, mpa::crc_bytes> out;
    mpa::put_crc(sum.value(), out);
    EXPECT_EQ(mpa::take_crc(out), sum.value());
    return Bytes(out.begin(), out.end());
  };
  EXPECT_EQ(crc(Bytes(32, std::byte{0})), bytes_of({0xAA, 0x36, 0x91, 0x8A}));
  EXPECT_EQ(crc(Bytes(32, std::byte{0xFF})), bytes_of({0x43, 0xAB, 0xA8, 0x62}));
  Bytes counting(32);
  for (int i = 0; i < 32; ++i) counting[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc(counting), bytes_of({0x4E, 0x79, 0xDD, 0x46}));
}

TEST(MpaTest, start_frames) {
  Random random(1);
  for (int i = 0; i < 1'000; ++i) {
    mpa::StartFrame frame;
    frame.is_reply = random.below(2) == 0;
    frame.flags = {random.below(2) == 0, random.below(2) == 0, random.below(2) == 0,
                   random.below(2) == 0, static_cast<std::uint8_t>(random.below(16))};
    frame.revision = static_cast<std::uint8_t>(random.below(4));
    frame.private_data_bytes = static_cast<std::uint16_t>(random.next());
    std::array<std::byte, mpa::start_frame_bytes> out;
    mpa::encode(frame, out);
    EXPECT_EQ(mpa::decode_start(out), frame);
    out[random.below(16)] ^= std::byte{0x80};
    EXPECT_FALSE(mpa::decode_start(out).has_value());

    mpa::EnhancedSetup setup{random.below(2) == 0,
                             random.below(2) == 0,
                             static_cast<std::uint16_t>(random.below(0x4000)),
                             random.below(2) == 0,
                             random.below(2) == 0,
                             static_cast<std::uint16_t>(random.below(0x4000))};
    std::array<std::byte, mpa::enhanced_setup_bytes> four;
    mpa::encode(setup, four);
    EXPECT_EQ(mpa::decode_enhanced(four), setup);
  }
}

TEST(DdpTest, headers_have_their_places) {
  ddp::Header tagged;
  tagged.tagged = true;
  tagged.ulp_control = 0x40;
  tagged.stag = RemoteKey(0x0102'0304);
  tagged.tagged_offset = 0x1112'1314'1516'1718;
  Bytes out(ddp::tagged_header_bytes);
  ddp::encode(tagged, out);
  EXPECT_EQ(out,
            bytes_of({0xC1, 0x40, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18}));
  ddp::Header untagged;
  untagged.last = false;
  untagged.ulp_control = 0x43;
  untagged.ulp_word = 0x0102'0304;
  untagged.queue = 2;
  untagged.sequence = 0x0A0B'0C0D;
  untagged.message_offset = 0x2122'2324;
  out.resize(ddp::untagged_header_bytes);
  ddp::encode(untagged, out);
  EXPECT_EQ(out, bytes_of({0x01, 0x43, 1, 2, 3, 4, 0, 0, 0, 2, 0x0A, 0x0B, 0x0C, 0x0D, 0x21, 0x22,
                           0x23, 0x24}));
  for (const ddp::Header& header : {tagged, untagged}) {
    Bytes bytes(header.bytes());
    ddp::encode(header, bytes);
    ddp::Header again;
    ASSERT_TRUE(ddp::decode(bytes, again));
    EXPECT_EQ(again, header);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(ddp::decode(std::span(bytes).first(length), again));
    }
  }
}

TEST(RdmapTest, the_table_of_messages) {
  using enum rdmap::Opcode;
  struct Row {
    rdmap::Opcode opcode;
    bool tagged;
    std::uint32_t queue;
    bool invalidate, solicited;
  };
  const std::array<Row, rdmap::opcodes> rows = {
      {{write, true, 0, false, false},
       {read_request, false, 1, false, false},
       {read_response, true, 0, false, false},
       {send, false, 0, false, false},
       {send_with_invalidate, false, 0, true, false},
       {send_with_solicited_event, false, 0, false, true},
       {send_with_solicited_event_and_invalidate, false, 0, true, true},
       {terminate, false, 2, false, false}}};
  for (const Row& row : rows) {
    const rdmap::OpcodeInfo* info = rdmap::info(row.opcode);
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->tagged, row.tagged);
    EXPECT_EQ(info->queue, row.queue);
    EXPECT_EQ(info->invalidate, row.invalidate);
    EXPECT_EQ(info->solicited, row.solicited);
    EXPECT_EQ(info->is_send, info->name.starts_with("Send"));
  }
  for (unsigned opcode = rdmap::opcodes; opcode < 16; ++opcode) {
    EXPECT_EQ(rdmap::info(static_cast<rdmap::Opcode>(opcode)), nullptr);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(rdmap::Control::decoded(static_cast<std::uint8_t>(byte)).encoded(), byte);
  }
}

TEST(RdmapTest, terminates_carry_what_their_flags_say) {
  for (unsigned flags = 0; flags < 16; ++flags) {
    rdmap::Terminate terminate;
    terminate.code = rdmap::error::untagged_too_long;
    if ((flags & 1) != 0) terminate.segment_bytes = 1'234;
    if ((flags & 6) != 0) {
      terminate.ddp_header.emplace();
      terminate.ddp_header->tagged = (flags & 2) != 0;
    }
    if ((flags & 8) != 0)
      terminate.read_request = rdmap::ReadRequest{RemoteKey(1), 2, 3, RemoteKey(4), 5};
    Bytes bytes(rdmap::terminate_bytes_max);
    bytes.resize(rdmap::encode(terminate, bytes));
    std::size_t used = 0;
    EXPECT_EQ(rdmap::decode_terminate(bytes, used), terminate);
    EXPECT_EQ(used, bytes.size());
    EXPECT_EQ(bytes[0], std::byte{0x12}) << "layer 1, type 2";
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(rdmap::decode_terminate(std::span(bytes).first(length), used).has_value());
    }
  }
}

TEST(RdmapTest, errors_have_names) {
  EXPECT_EQ(rdmap::name(rdmap::error::crc), "MPA: CRC error");
  EXPECT_EQ(rdmap::name({rdmap::Layer::mpa, 3, 9}), "");
  EXPECT_EQ(rdmap::name(rdmap::error::no_matching_ready), "MPA: no matching RTR option");
  // RFC 5040 section 4.8, figure 13.
  using enum rdmap::Layer;
  EXPECT_EQ(rdmap::name({rdmap, 1, 0xFF}), "RDMAP: unspecified protection error");
  EXPECT_EQ(rdmap::name({rdmap, 2, 0x08}), "RDMAP: catastrophic error, global");
  EXPECT_EQ(rdmap::name({rdmap, 2, 0xFF}), "RDMAP: unspecified operation error");
  EXPECT_EQ(rdmap::name({ddp, 0, 0x00}), "DDP: local catastrophic error");
}

}  // namespace
}  // namespace tulle::wire

#include "rdma/pcapng/pcapng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace tulle::pcapng {
namespace {

using Buffer = Writer::Buffer;

template <typename Integer>
Integer number_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    value |= std::to_integer<std::uint64_t>(bytes[at + i]) << (8 * i);
  }
  return static_cast<Integer>(value);
}

struct Option {
  std::uint16_t code;
  std::span<const std::byte> value;
  std::string text() const { return {reinterpret_cast<const char*>(value.data()), value.size()}; }
};

struct ReadBlock {
  std::uint32_t type;
  std::span<const std::byte> body;

  // Returns the options from `at` in the body on. The list must close with an end of options, at
  // the end of the body.
  std::vector<Option> options(std::size_t at) const {
    std::vector<Option> found;
    while (true) {
      const auto code = number_at<std::uint16_t>(body, at);
      const auto length = number_at<std::uint16_t>(body, at + 2);
      at += 4;
      if (code == 0) break;
      found.push_back({code, body.subspan(at, length)});
      at += (length + 3u) & ~3u;
    }
    EXPECT_EQ(at, body.size());
    return found;
  }
};

std::vector<ReadBlock> read(const Buffer& buffer) {
  std::vector<ReadBlock> blocks;
  std::span<const std::byte> rest(buffer);
  while (!rest.empty()) {
    const auto length = number_at<std::uint32_t>(rest, 4);
    EXPECT_EQ(length % 4, 0u);
    EXPECT_EQ(number_at<std::uint32_t>(rest, length - 4), length);
    blocks.push_back({number_at<std::uint32_t>(rest, 0), rest.subspan(8, length - 12)});
    rest = rest.subspan(length);
  }
  return blocks;
}

TEST(PcapngTest, section_header) {
  Buffer out;
  Writer().section_header(out, "tulle");
  const auto blocks = read(out);
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].type, 0x0A0D0D0Au);
  EXPECT_EQ(number_at<std::uint32_t>(blocks[0].body, 0), 0x1A2B3C4Du);
  EXPECT_EQ(number_at<std::uint16_t>(blocks[0].body, 4), 1u);
  EXPECT_EQ(number_at<std::uint16_t>(blocks[0].body, 6), 0u);
  EXPECT_EQ(number_at<std::int64_t>(blocks[0].body, 8), -1);
  const auto options = blocks[0].options(16);
  ASSERT_EQ(options.size(), 1u);
  EXPECT_EQ(options[0].code, 4u);
  EXPECT_EQ(options[0].text(), "tulle");
}

TEST(PcapngTest, interfaces_are_numbered_and_described) {
  Buffer out;
  Writer capture;
  EXPECT_EQ(capture.interface(out, {.name = "port0"}), 0u);
  EXPECT_EQ(capture.interface(out, {.name = "port1",
                                    .description = "a leaf",
                                    .link_type = LinkType::erf,
                                    .snap_length = 128,
                                    .bits_per_second = 400'000'000'000}),
            1u);
  const auto blocks = read(out);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].type, 1u);
  EXPECT_EQ(number_at<std::uint16_t>(blocks[0].body, 0), 101u);
  EXPECT_EQ(number_at<std::uint32_t>(blocks[0].body, 4), 0u);
  auto options = blocks[0].options(8);
  ASSERT_EQ(options.size(), 2u);
  EXPECT_EQ(options[0].text(), "port0");
  EXPECT_EQ(options[1].code, 9u);
  EXPECT_EQ(options[1].value[0], std::byte{9});

  EXPECT_EQ(number_at<std::uint16_t>(blocks[1].body, 0), 197u);
  EXPECT_EQ(number_at<std::uint32_t>(blocks[1].body, 4), 128u);
  options = blocks[1].options(8);
  ASSERT_EQ(options.size(), 4u);
  EXPECT_EQ(options[1].text(), "a leaf");
  EXPECT_EQ(number_at<std::uint64_t>(options[2].value, 0), 400'000'000'000u);
}

TEST(PcapngTest, packets_of_every_length_keep_their_bytes) {
  std::array<std::byte, 9> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i + 1);
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    Buffer out;
    Writer capture(0x1'0000'0000);
    capture.interface(out, {.name = "port0"});
    out.clear();
    const auto whole = std::span<const std::byte>(bytes).first(length);
    const std::array pieces{whole.first(length / 2), whole.subspan(length / 2)};
    capture.packet(out, Time::nanoseconds(0x2345'6789), Direction::outbound, 0, pieces, 4200);
    const auto blocks = read(out);
    ASSERT_EQ(blocks.size(), 1u);
    const auto body = blocks[0].body;
    EXPECT_EQ(blocks[0].type, 6u);
    EXPECT_EQ(number_at<std::uint32_t>(body, 0), 0u);
    EXPECT_EQ(number_at<std::uint32_t>(body, 4), 1u);  // the upper half of the time comes first
    EXPECT_EQ(number_at<std::uint32_t>(body, 8), 0x2345'6789u);
    EXPECT_EQ(number_at<std::uint32_t>(body, 12), length);
    EXPECT_EQ(number_at<std::uint32_t>(body, 16), 4200u);
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), body.begin() + 20));
    const auto options = blocks[0].options(20 + ((length + 3) & ~std::size_t{3}));
    ASSERT_EQ(options.size(), 1u);
    EXPECT_EQ(options[0].code, 2u);
    EXPECT_EQ(number_at<std::uint32_t>(options[0].value, 0), 2u);
  }
}

TEST(PcapngTest, a_damaged_packet_is_marked) {
  Writer pcapng;
  Buffer buffer;
  pcapng.section_header(buffer, "test");
  pcapng.interface(buffer, {});
  const Buffer packet(8, std::byte{7});
  const std::span<const std::byte> piece(packet);
  for (const bool damaged : {false, true}) {
    buffer.clear();
    pcapng.packet(buffer, Time::zero(), Direction::inbound, 0, {&piece, 1}, 8, damaged);
    const std::vector<Option> options = read(buffer)[0].options(20 + 8);
    ASSERT_EQ(options.size(), 1u);
    EXPECT_EQ(options[0].code, 2);  // epb_flags
    EXPECT_EQ(number_at<std::uint32_t>(options[0].value, 0), damaged ? 0x0100'0001u : 1u);
  }
}

TEST(PcapngTest, statistics_tell_what_was_dropped) {
  Buffer out;
  Writer capture;
  capture.interface(out, {.name = "port0"});
  out.clear();
  capture.statistics(out, Time::seconds(1), 0, 1000, 7);
  const auto blocks = read(out);
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].type, 5u);
  const auto options = blocks[0].options(12);
  ASSERT_EQ(options.size(), 2u);
  EXPECT_EQ(options[0].code, 4u);
  EXPECT_EQ(number_at<std::uint64_t>(options[0].value, 0), 1000u);
  EXPECT_EQ(options[1].code, 5u);
  EXPECT_EQ(number_at<std::uint64_t>(options[1].value, 0), 7u);
}

TEST(PcapngTest, a_buffer_that_is_cleared_does_not_grow) {
  const std::array<std::byte, 1024> bytes{};
  Buffer out;
  Writer capture;
  capture.interface(out, {.name = "port0"});
  capture.packet(out, Time::zero(), Direction::inbound, 0, bytes);
  const std::size_t capacity = out.capacity();
  for (int i = 0; i < 100; ++i) {
    out.clear();
    capture.packet(out, Time::nanoseconds(i), Direction::inbound, 0, bytes);
  }
  EXPECT_EQ(out.capacity(), capacity);
}

}  // namespace
}  // namespace tulle::pcapng

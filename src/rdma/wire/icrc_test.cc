#include "rdma/wire/icrc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "base/random.h"
#include "rdma/wire/ip_udp.h"
#include "rdma/wire/vectors_test.h"

namespace tulle::wire {
namespace {

using Bytes = std::vector<std::byte>;

// Computes CRC-32 one bit at a time, as it is defined.
std::uint32_t slow_crc(std::span<const std::byte> bytes) {
  std::uint32_t state = 0xFFFF'FFFF;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0xEDB8'8320 : 0);
  }
  return ~state;
}

Bytes random_bytes(std::size_t count, Random& random) {
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

TEST(IcrcTest, starts_behind_eight_bytes_of_ones) {
  const Bytes ones(8, std::byte{0xFF});
  EXPECT_EQ(Icrc().value(), slow_crc(ones));
}

TEST(IcrcTest, pieces_of_any_length_give_the_crc_of_the_whole) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (int round = 0; round < 300; ++round) {
    Bytes bytes(8, std::byte{0xFF});
    Icrc icrc;
    for (std::uint64_t pieces = random.below(5); pieces > 0; --pieces) {
      const Bytes piece = random_bytes(random.below(700), random);
      icrc.update(piece);
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(icrc.value(), slow_crc(bytes));
  }
}

// Computes the ICRC of an IP packet that ends with the four bytes of its ICRC.
std::uint32_t icrc_of(std::span<const std::byte> packet, const IpUdp& ip, DecodedIpUdp outer) {
  std::array<std::byte, 48> headers;
  encode_for_icrc(ip, outer.udp_payload_bytes, headers);
  const auto body = packet.subspan(outer.header_bytes, outer.udp_payload_bytes - icrc_bytes);
  Bytes masked(body.begin(), body.end());
  mask_bth(masked);
  Icrc icrc;
  icrc.update(std::span(headers).first(outer.header_bytes));
  icrc.update(masked);
  return icrc.value();
}

TEST(IcrcTest, equals_the_icrc_of_every_packet_built_by_scapy) {
  for (const Vector& vector : scapy_vectors()) {
    SCOPED_TRACE(vector.name);
    const std::span<const std::byte> packet(vector.packet);
    IpUdp ip;
    const DecodedIpUdp outer = decode(packet, ip);
    ASSERT_TRUE(outer.ok);
    EXPECT_EQ(icrc_of(packet, ip, outer), take_icrc(packet.last<4>()));
  }
}

TEST(IcrcTest, is_sent_least_significant_byte_first) {
  std::array<std::byte, 4> bytes;
  put_icrc(0x1122'3344, bytes);
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(bytes[i], std::byte(0x44 - 0x11 * i));
  EXPECT_EQ(take_icrc(bytes), 0x1122'3344u);
}

// Returns the CRC of the four bytes of identification, flags and offset, followed by the bytes of
// `after`.
std::uint32_t crc_with(unsigned identification, unsigned flags, const Bytes& after) {
  Bytes bytes{static_cast<std::byte>(identification >> 8), static_cast<std::byte>(identification),
              static_cast<std::byte>(flags >> 8), static_cast<std::byte>(flags)};
  bytes.insert(bytes.end(), after.begin(), after.end());
  Icrc icrc;
  icrc.update(bytes);
  return icrc.value();
}

TEST(IcrcTest, every_identification_is_found) {
  Random random(1);
  const Bytes after = random_bytes(60, random);
  const std::uint32_t guess = crc_with(0, 0x4000, after);
  for (unsigned identification = 0; identification <= 0xFFFF; ++identification) {
    for (const bool dont_fragment : {true, false}) {
      const std::uint32_t received = crc_with(identification, dont_fragment ? 0x4000 : 0, after);
      const auto found = explain_identification(received ^ guess, after.size());
      ASSERT_TRUE(found.has_value());
      ASSERT_EQ(*found,
                (Ipv4Identification{static_cast<std::uint16_t>(identification), dont_fragment}));
    }
  }
}

TEST(IcrcTest, identifications_are_found_at_every_length) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  const Bytes source = random_bytes(5000, random);
  for (std::size_t length = 0; length < source.size(); ++length) {
    const Bytes after(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(length));
    const auto identification = static_cast<std::uint16_t>(random.next());
    const std::uint32_t difference =
        crc_with(identification, 0x4000, after) ^ crc_with(0, 0x4000, after);
    const auto found = explain_identification(difference, length);
    if (length > explained_bytes_after_max) {
      EXPECT_FALSE(found.has_value());
    } else {
      ASSERT_TRUE(found.has_value()) << length;
      EXPECT_EQ(*found, (Ipv4Identification{identification, true})) << length;
    }
  }
}

TEST(IcrcTest, other_flags_and_fragment_offsets_explain_nothing) {
  Random random(2);
  const Bytes after = random_bytes(100, random);
  const std::uint32_t guess = crc_with(0, 0x4000, after);
  for (unsigned flags = 0; flags <= 0xFFFF; ++flags) {
    const bool explained =
        explain_identification(crc_with(0x1234, flags, after) ^ guess, after.size()).has_value();
    EXPECT_EQ(explained, flags == 0 || flags == 0x4000) << flags;
  }
}

// Exactly 2^17 of the 2^32 differences have an explanation at any length, since each of them stands
// for one error of four bytes. The sample shows it.
TEST(IcrcTest, a_random_difference_is_explained_once_in_32768) {
  Random random(3);  // fixed: the bounds are four standard deviations wide
  constexpr int samples = 4'000'000;
  int explained = 0;
  for (int i = 0; i < samples; ++i) {
    const auto difference = static_cast<std::uint32_t>(random.next());
    explained += explain_identification(difference, random.below(4000)).has_value();
  }
  EXPECT_NEAR(explained, samples / 32768.0, 4 * 11);
}

// icrc.h claims that of all errors of one bit behind the fragment offset, two are explained away.
TEST(IcrcTest, single_bit_errors_that_are_explained_away) {
  constexpr std::size_t bytes_after = explained_bytes_after_max;
  const Bytes zero(bytes_after, std::byte{0});
  const std::uint32_t good = crc_with(0, 0x4000, zero);
  std::vector<std::size_t> explained;
  // Moving the image of the last bit forward one bit at a time gives the image of every other bit.
  Bytes damaged = zero;
  damaged.back() = std::byte{0x80};
  std::uint32_t image = crc_with(0, 0x4000, damaged) ^ good;
  for (std::size_t bit = 8 * bytes_after; bit > 0; --bit) {
    if (explain_identification(image, bytes_after)) explained.push_back(bit);
    image = (image >> 1) ^ ((image & 1) != 0 ? 0xEDB8'8320 : 0);
  }
  EXPECT_EQ(explained, (std::vector<std::size_t>{14'839, 1'548}));
}

}  // namespace
}  // namespace tulle::wire

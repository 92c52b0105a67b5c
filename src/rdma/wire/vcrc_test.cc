#include "rdma/wire/vcrc.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "base/random.h"

namespace tulle::wire {
namespace {

using Bytes = std::vector<std::byte>;

// IBTA 7.8.2 as polynomials: take the message's bits, least significant first, with the first
// sixteen inverted, times x^16, modulo 0x100B, and invert the result. The register holds x^15 in
// its upper bit.
std::uint16_t slow_vcrc(const Bytes& bytes) {
  std::uint32_t state = 0xFFFF;
  for (const std::byte byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const std::uint32_t in = std::to_integer<std::uint32_t>(byte) >> bit & 1;
      const std::uint32_t out = state >> 15 & 1;
      state = (state << 1 & 0xFFFF) ^ (in != out ? 0x100Bu : 0u);
    }
  }
  std::uint32_t reversed = 0;  // the coefficient of x^15 is sent first
  for (int bit = 0; bit < 16; ++bit) reversed |= (state >> bit & 1) << (15 - bit);
  return static_cast<std::uint16_t>(~reversed);
}

TEST(VcrcTest, equals_its_definition_in_pieces_of_any_length) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (int round = 0; round < 300; ++round) {
    Bytes bytes;
    Vcrc vcrc;
    for (std::uint64_t pieces = random.below(5); pieces > 0; --pieces) {
      Bytes piece(random.below(300));
      for (auto& byte : piece) byte = static_cast<std::byte>(random.next());
      vcrc.update(piece);
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(vcrc.value(), slow_vcrc(bytes));
  }
}

TEST(VcrcTest, is_sent_least_significant_byte_first) {
  std::array<std::byte, vcrc_bytes> bytes;
  put_vcrc(0x1122, bytes);
  EXPECT_EQ(bytes[0], std::byte{0x22});
  EXPECT_EQ(bytes[1], std::byte{0x11});
  EXPECT_EQ(take_vcrc(bytes), 0x1122);
}

}  // namespace
}  // namespace tulle::wire

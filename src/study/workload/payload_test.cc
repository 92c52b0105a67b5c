#include "study/workload/payload.h"

#include <gtest/gtest.h>

#include <vector>

namespace tulle::workload {
namespace {

using Bytes = std::vector<std::byte>;

Bytes filled(std::uint64_t seed, std::uint32_t flow, std::size_t count) {
  Bytes bytes(count);
  fill_payload(seed, flow, bytes);
  return bytes;
}

TEST(Payload, IsAFunctionOfSeedFlowAndPlace) {
  const Bytes bytes = filled(1, 2, 100);
  EXPECT_EQ(filled(1, 2, 100), bytes);
  EXPECT_NE(filled(2, 2, 100), bytes);
  EXPECT_NE(filled(1, 3, 100), bytes);
  for (std::size_t count = 0; count < 20; ++count) {  // a shorter payload is a prefix
    EXPECT_EQ(filled(1, 2, count),
              Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)));
  }
}

TEST(Payload, EveryByteThatDiffersIsFound) {
  for (std::size_t at = 0; at < 21; ++at) {
    Bytes bytes = filled(7, 0, 21);
    EXPECT_FALSE(check_payload(7, 0, bytes));
    const std::byte was = bytes[at];
    bytes[at] ^= std::byte{0x10};
    const auto difference = check_payload(7, 0, bytes);
    ASSERT_TRUE(difference);
    EXPECT_EQ(difference->offset, at);
    EXPECT_EQ(difference->expected, was);
    EXPECT_EQ(difference->found, bytes[at]);
  }
  EXPECT_FALSE(check_payload(7, 0, {}));
}

// Bytes that belong to another place in the same message, or to another message, are detected.
TEST(Payload, OtherBytesAreOther) {
  const Bytes sent = filled(1, 0, 8'192), other = filled(1, 1, 4'096);
  EXPECT_TRUE(check_payload(1, 0, std::span(sent).subspan(4'096)));
  EXPECT_TRUE(check_payload(1, 0, other));
  EXPECT_TRUE(check_payload(1, 0, Bytes(4'096))) << "nothing has come";
}

}  // namespace
}  // namespace tulle::workload

#include "ranks/endpoint.h"

#include <gtest/gtest.h>

namespace tulle::ranks {
namespace {

using std::chrono::milliseconds;

TEST(Endpoint, EightAttemptsLastAsLongAsTheTimeOut) {
  EXPECT_EQ(ack_timeout_of(milliseconds(0)), 14);
  // 8 times 4.096 us times 2^14 are 536.8 ms.
  EXPECT_EQ(ack_timeout_of(milliseconds(536)), 14);
  EXPECT_EQ(ack_timeout_of(milliseconds(537)), 15);
  EXPECT_EQ(ack_timeout_of(milliseconds(10'000)), 19);
  EXPECT_EQ(ack_timeout_of(milliseconds(274'877)), 23);
  EXPECT_EQ(ack_timeout_of(milliseconds(274'878)), 24);
  EXPECT_EQ(ack_timeout_of(std::chrono::hours(24)), 24);
}

TEST(Memory, IsFreshAndOfItsSize) {
  auto memory = Memory::of(1u << 20);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->bytes().size(), 1u << 20);
  EXPECT_EQ(memory->bytes().back(), std::byte{0});
  memory->bytes().back() = std::byte{7};
  const auto nothing = Memory::of(std::uint64_t{1} << 60);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().message, "there is no memory for 1152921504606846976 bytes");
}

}  // namespace
}  // namespace tulle::ranks

#include "fabric/multicast_numbers.h"

#include <gtest/gtest.h>

namespace tulle::fabric {
namespace {

TEST(MulticastNumbersTest, ASwitchRecognizesAPacket) {
  MulticastNumbers numbers(2);
  port::Frame first, second;
  numbers.number(first);
  numbers.number(second);
  EXPECT_NE(numbers.number_of(first), numbers.number_of(second));
  EXPECT_FALSE(numbers.comes_again(0, first));
  EXPECT_FALSE(numbers.comes_again(0, second));
  EXPECT_FALSE(numbers.comes_again(1, first)) << "another switch has not forwarded it";
  EXPECT_TRUE(numbers.comes_again(0, first));
  EXPECT_TRUE(numbers.comes_again(0, second));
}

TEST(MulticastNumbersTest, ASwitchForgetsWhatIsLongAgo) {
  MulticastNumbers numbers(1);
  port::Frame frame;
  numbers.number(frame);
  EXPECT_FALSE(numbers.comes_again(0, frame));
  port::Frame later;
  MulticastNumbers::set_number(
      later, numbers.number_of(frame) + std::uint32_t{MulticastNumbers::forwarded_max});
  EXPECT_FALSE(numbers.comes_again(0, later));
  EXPECT_FALSE(numbers.comes_again(0, frame));
}

TEST(MulticastNumbersTest, AMachineKeepsItsUpperBits) {
  MulticastNumbers numbers(1);
  numbers.begin_at(0x05FF'FFFF);
  port::Frame frame;
  numbers.number(frame);
  EXPECT_EQ(numbers.number_of(frame), 0x05FF'FFFFu);
  numbers.number(frame);
  EXPECT_EQ(numbers.number_of(frame), 0x0500'0000u);
}

}  // namespace
}  // namespace tulle::fabric

#include "sim/intake.h"

#include <gtest/gtest.h>

namespace tulle::sim {
namespace {

constexpr Time us(std::int64_t n) { return Time::microseconds(n); }

class IntakeTest : public testing::Test {
 protected:
  port::FrameRef frame(std::uint16_t bytes) {
    const port::FrameRef ref = frames.take();
    frames[ref].buffer_bytes = bytes;
    return ref;
  }
  void push(std::uint16_t bytes) { intake.push(frames, frame(bytes)); }
  std::uint32_t pop() {
    const port::FrameRef ref = intake.pop(frames);
    frames.give(ref);
    return frames[ref].buffer_bytes;
  }

  port::FramePool frames;
  Intake intake{10'000};
};

TEST_F(IntakeTest, FirstInFirstOutAtItsRate) {
  intake.slow_down(8'000'000'000);  // one nanosecond per byte
  push(1'000);
  push(2'000);
  push(3'000);
  EXPECT_EQ(intake.time_of_first(frames), us(1));
  EXPECT_EQ(pop(), 1'000u);
  EXPECT_EQ(intake.time_of_first(frames), us(2));
  EXPECT_EQ(pop(), 2'000u);
  intake.recover();
  EXPECT_EQ(intake.time_of_first(frames), Time::zero());
  EXPECT_EQ(pop(), 3'000u);
  EXPECT_TRUE(intake.empty());
}

TEST_F(IntakeTest, AsksAboveItsBufferUntilHalfOfIt) {
  intake.slow_down(1'000'000'000);
  push(5'000);
  push(5'000);
  EXPECT_FALSE(intake.update(us(1))) << "it is just full";
  EXPECT_FALSE(intake.has_room(1));
  push(100);
  EXPECT_TRUE(intake.update(us(2)));
  EXPECT_TRUE(intake.is_asking());
  EXPECT_EQ(intake.asking_since(), us(2));
  EXPECT_FALSE(intake.update(us(3)));
  pop();
  EXPECT_FALSE(intake.update(us(4))) << "5,100 are more than half";
  pop();
  EXPECT_TRUE(intake.update(us(5)));
  EXPECT_FALSE(intake.is_asking());
}

TEST_F(IntakeTest, AStuckOneAsksAtOnceAndGivesUpUntilItRecovers) {
  intake.slow_down(0);
  EXPECT_TRUE(intake.is_stuck());
  EXPECT_TRUE(intake.update(us(1)));
  intake.give_up();
  EXPECT_FALSE(intake.is_asking());
  push(20'000);
  EXPECT_FALSE(intake.update(us(2))) << "it asks no more";
  EXPECT_TRUE(intake.has_given_up());
  intake.recover();
  pop();
  EXPECT_FALSE(intake.update(us(3)));
  EXPECT_FALSE(intake.has_given_up());
  intake.slow_down(0);
  EXPECT_TRUE(intake.update(us(4))) << "stuck again";
}

}  // namespace
}  // namespace tulle::sim

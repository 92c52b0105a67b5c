#include "live/process/doorbell.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>
#include <utility>

#include "live/bell.h"
#include "live/process/socket_pace.h"

namespace tulle::live {
namespace {

TEST(DoorbellTest, RingsAreTakenInOneCall) {
  auto bell = create_bell();
  ASSERT_TRUE(bell);
  Doorbell doorbell(std::move(*bell));
  EXPECT_EQ(doorbell.answer(), 0u);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(send(doorbell.button(), "x", 1, MSG_DONTWAIT), 1);
  EXPECT_GE(doorbell.answer(), 1u);
  EXPECT_EQ(doorbell.answer(), 0u);
}

TEST(DoorbellTest, OneThreadHasIt) {
  auto bell = create_bell();
  ASSERT_TRUE(bell);
  Doorbell doorbell(std::move(*bell));
  EXPECT_TRUE(doorbell.may_be_taken());
  EXPECT_FALSE(doorbell.is_own());
  doorbell.take();
  EXPECT_TRUE(doorbell.is_own());
  EXPECT_FALSE(doorbell.may_be_taken());
  std::thread([&] { EXPECT_FALSE(doorbell.is_own()); }).join();
  doorbell.leave();
  EXPECT_TRUE(doorbell.may_be_taken());
  doorbell.note_broken();
  EXPECT_FALSE(doorbell.may_be_taken());
}

TEST(SocketPaceTest, SocketsAreLeftOutMoreAndMore) {
  SocketPace pace;
  EXPECT_FALSE(pace.leaves_out());
  std::uint32_t left_out = 0;
  for (std::uint32_t expected : {1u, 3u, 7u, 15u, 31u, 63u, 63u}) {
    pace.note_memory(true);
    EXPECT_FALSE(pace.leaves_out());
    for (left_out = 0; pace.leaves_out(); ++left_out) {
    }
    EXPECT_EQ(left_out, expected);
    pace.look_now();
  }
  pace.note_memory(false);
  pace.look_now();
  EXPECT_FALSE(pace.leaves_out());
  EXPECT_FALSE(pace.leaves_out()) << "nobody else polls the sockets";
  pace.note_memory(true);
  EXPECT_FALSE(pace.leaves_out());
  pace.reset();
  EXPECT_FALSE(pace.leaves_out());
}

}  // namespace
}  // namespace tulle::live

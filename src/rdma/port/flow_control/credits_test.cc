#include "rdma/port/flow_control/credits.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/random.h"

namespace tulle::port {
namespace {

TEST(Credits, BlocksAreOfSixtyFourBytesRoundedUp) {
  EXPECT_EQ(blocks_of(0), 0u);
  EXPECT_EQ(blocks_of(1), 1u);
  EXPECT_EQ(blocks_of(64), 1u);
  EXPECT_EQ(blocks_of(65), 2u);
  EXPECT_EQ(blocks_of(4'122), 65u);  // 4096 + BTH 12 + ICRC 4 + LRH 8 + VCRC 2; 64.4 blocks
}

TEST(Credits, NothingMayGoBeforeTheFirstUpdate) {
  CreditSender sender;
  EXPECT_FALSE(sender.may_send(1));
  sender.update(2);
  EXPECT_TRUE(sender.may_send(128));
  EXPECT_FALSE(sender.may_send(129));
}

TEST(Credits, APacketThatFitsExactlyMayGoAndThenNoOther) {
  CreditSender sender;
  sender.update(10);
  sender.sent(9 * 64);
  EXPECT_TRUE(sender.may_send(64));
  sender.sent(64);
  EXPECT_FALSE(sender.may_send(1));
  EXPECT_EQ(sender.total_sent(), 10u);
}

// IBTA 7.9.4.2: a packet may be sent if (limit - (sent + packet)) mod 4096 lies in the lower half
// of the circle.
TEST(Credits, TheRuleHoldsAllRoundTheCircle) {
  for (std::uint32_t sent = 0; sent < 4'096; ++sent) {
    CreditSender sender;
    sender.sent(sent * 64);
    for (const std::uint32_t room : {0u, 1u, 65u, 2'046u, 2'047u}) {
      sender.update(static_cast<std::uint16_t>((sent + room) % 4'096));
      EXPECT_EQ(sender.may_send(64), room >= 1) << sent << " " << room;
      EXPECT_EQ(sender.may_send(65 * 64), room >= 65) << sent << " " << room;
      EXPECT_EQ(sender.may_send(2'047 * 64), room == 2'047) << sent << " " << room;
    }
  }
}

TEST(Credits, ALimitIsAtMostTwoThousandFortySevenAhead) {
  CreditReceiver receiver(100'000);
  EXPECT_EQ(receiver.tell(), 2'047u);
  CreditReceiver exact(2'047);
  EXPECT_EQ(exact.tell(), 2'047u);
  CreditReceiver small(130);
  EXPECT_EQ(small.tell(), 130u);
}

TEST(Credits, WhatArrivedAndStaysMovesNoLimit) {
  CreditReceiver receiver(130);
  receiver.tell();
  receiver.received(65 * 64);  // arrived 65, free 65: the limit stays at 130
  EXPECT_EQ(receiver.limit(), 130u);
  EXPECT_EQ(receiver.untold(), 0u);
  EXPECT_EQ(receiver.free_blocks(), 65u);
  receiver.released(65 * 64);
  EXPECT_EQ(receiver.limit(), 195u);
  EXPECT_EQ(receiver.untold(), 65u);
  EXPECT_EQ(receiver.tell(), 195u);
  EXPECT_EQ(receiver.untold(), 0u);
}

TEST(Credits, ExactlyAQuarterOfTheMemoryIsWorthTelling) {
  CreditReceiver receiver(100);
  receiver.tell();
  receiver.received(100 * 64);
  receiver.released(24 * 64);
  EXPECT_FALSE(receiver.is_worth_telling(100));
  receiver.released(64);
  EXPECT_TRUE(receiver.is_worth_telling(100));
  receiver.tell();
  EXPECT_FALSE(receiver.is_worth_telling(100)) << "it has been told";
}

TEST(Credits, ACountThatPassesTwelveBitsGoesOnFromZero) {
  CreditReceiver receiver(2'000);
  receiver.tell();
  for (int i = 0; i < 100; ++i) {  // 100 x 65 = 6,500 = 4,096 + 2,404
    receiver.received(65 * 64);
    receiver.released(65 * 64);
  }
  EXPECT_EQ(receiver.limit(), (6'500u + 2'000u) % 4'096u);
}

TEST(Credits, ALostUpdateCostsNothingButTime) {
  CreditSender sender;
  CreditReceiver receiver(130);
  sender.update(receiver.tell());
  for (int i = 0; i < 2; ++i) {
    sender.sent(65 * 64);
    receiver.received(65 * 64);
    receiver.released(65 * 64);
    if (i == 0) receiver.tell();  // this update is lost
  }
  EXPECT_FALSE(sender.may_send(64));
  sender.update(receiver.tell());  // the next update makes up for it: totals, not differences
  EXPECT_TRUE(sender.may_send(130 * 64));
}

// Packets and updates between the two ends take time. The memory is never exceeded, and all of it
// is used in the end.
TEST(Credits, BothEndsWithDelaysNeverExceedTheMemory) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const std::uint32_t blocks = 130 + static_cast<std::uint32_t>(random.below(1'918));
    CreditSender sender;
    CreditReceiver receiver(blocks);
    std::deque<std::uint32_t> flying, held;  // bytes
    std::deque<std::uint16_t> updates;
    std::uint64_t held_blocks = 0, all_blocks = 0;
    sender.update(receiver.tell());
    for (int step = 0; step < 20'000; ++step) {
      const auto bytes = static_cast<std::uint32_t>(1 + random.below(4'160));
      switch (random.below(5)) {
        case 0:
          if (!sender.may_send(bytes)) break;
          sender.sent(bytes);
          flying.push_back(bytes);
          break;
        case 1:
          if (flying.empty()) break;
          receiver.received(flying.front());
          held_blocks += (flying.front() + 63) / 64;
          all_blocks += (flying.front() + 63) / 64;
          held.push_back(flying.front());
          flying.pop_front();
          break;
        case 2:
          if (held.empty()) break;
          receiver.released(held.front());
          held_blocks -= (held.front() + 63) / 64;
          held.pop_front();
          break;
        case 3:
          updates.push_back(receiver.tell());
          break;
        default:
          if (updates.empty()) break;
          sender.update(updates.front());
          updates.pop_front();
      }
      ASSERT_LE(held_blocks, blocks) << "step " << step;
      ASSERT_EQ(receiver.free_blocks(), blocks - held_blocks);
    }
    EXPECT_GT(all_blocks, 3 * 4'096u) << "the counts went round more than once";
  }
}

TEST(Credits, AControlMessageFitsAnEvent) {
  Control credit;
  credit.kind = Control::Kind::credit;
  credit.credit = {7, 4'095};
  const Control read = Control::unpacked(credit.packed());
  EXPECT_EQ(read.kind, Control::Kind::credit);
  EXPECT_EQ(read.credit.lane, 7u);
  EXPECT_EQ(read.credit.limit, 4'095u);
  Control pause;
  pause.kind = Control::Kind::pause;
  pause.pause = {0xA5, 0x5A};
  const Control again = Control::unpacked(pause.packed());
  EXPECT_EQ(again.kind, Control::Kind::pause);
  EXPECT_EQ(again.pause.stop, 0xA5u);
  EXPECT_EQ(again.pause.go, 0x5Au);
}

}  // namespace
}  // namespace tulle::port

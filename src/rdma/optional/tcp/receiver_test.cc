// Tests of the receiving half of a connection alone: what it acknowledges, when, and what it says
// about segments that came early.

#include "rdma/optional/tcp/receiver.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tulle::transport::tcp {
namespace {

constexpr std::uint32_t mss = 1'000;
constexpr wire::TcpSequence first{5'000};
constexpr Time now = Time::microseconds(1);

using Blocks = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // of the stream

class TcpReceiver : public ::testing::Test {
 protected:
  static Settings small() {
    Settings settings;
    settings.mss_bytes = mss;
    settings.receive_buffer_bytes = 20 * mss;
    settings.quick_acknowledgements = 0;
    return settings;
  }
  Receiver::Taken take(std::int64_t offset, std::uint32_t bytes, bool marked = false,
                       wire::Tcp header = {}) {
    return receiver.take(now, offset, bytes, header, marked);
  }
  wire::Tcp acknowledgement(bool pure = true) {
    wire::Tcp header;
    receiver.fill(header, first, 0, pure);
    return header;
  }
  static std::uint32_t place(wire::TcpSequence sequence) {
    return sequence.value() - first.value();
  }
  static Blocks blocks(const wire::Tcp& header) {
    Blocks out;
    for (std::uint8_t i = 0; i < header.block_count; ++i) {
      out.emplace_back(place(header.blocks[i].first), place(header.blocks[i].end));
    }
    return out;
  }

  Settings settings = small();
  Receiver receiver{settings};
};

TEST_F(TcpReceiver, EverySecondFullSegmentIsAcknowledgedAtOnce) {
  take(0, mss);
  EXPECT_FALSE(receiver.acknowledgement_due());
  EXPECT_EQ(receiver.next_deadline(), now + settings.acknowledgement_delay);
  take(mss, mss);
  EXPECT_TRUE(receiver.acknowledgement_due());
  EXPECT_EQ(place(acknowledgement().acknowledgement), 2 * mss);
  EXPECT_FALSE(receiver.acknowledgement_due());
  EXPECT_TRUE(receiver.next_deadline().is_never());
}

TEST_F(TcpReceiver, ASegmentThatWaitedLongEnoughIsAcknowledged) {
  take(0, mss);
  receiver.handle_deadline(now + settings.acknowledgement_delay - Time{1});
  EXPECT_FALSE(receiver.acknowledgement_due());
  receiver.handle_deadline(now + settings.acknowledgement_delay);
  EXPECT_TRUE(receiver.acknowledgement_due());
  EXPECT_TRUE(receiver.next_deadline().is_never());
}

TEST_F(TcpReceiver, ANewConnectionsSegmentsAreAcknowledgedAtOnce) {
  settings.quick_acknowledgements = 2;
  for (std::int64_t i = 0; i < 3; ++i) {
    take(i * mss, mss);
    EXPECT_EQ(receiver.acknowledgement_due(), i < 2);
    acknowledgement();
  }
}

TEST_F(TcpReceiver, WhatIsPartlyNewGivesItsNewPart) {
  take(0, mss);
  const auto taken = take(mss / 2, mss);
  EXPECT_EQ(taken.offset, mss);
  EXPECT_EQ(taken.skip, mss / 2);
  EXPECT_EQ(taken.bytes, mss / 2);
  EXPECT_EQ(receiver.in_order(), mss + mss / 2);
}

// RFC 9293 §3.10.7.4.
TEST_F(TcpReceiver, WhatIsOldIsAcknowledgedAndNotTaken) {
  take(0, 2 * mss);
  acknowledgement();
  for (const auto& [offset, bytes] : std::vector<std::pair<std::int64_t, std::uint32_t>>{
           {0, mss}, {mss, mss}, {-1, 1}, {-5, 2}, {-5, 5}}) {
    EXPECT_EQ(take(offset, bytes).bytes, 0u);
    EXPECT_TRUE(receiver.acknowledgement_due()) << offset;
    EXPECT_EQ(place(acknowledgement().acknowledgement), 2 * mss);
  }
}

TEST_F(TcpReceiver, WhatIsBeyondTheBufferIsNotTaken) {
  EXPECT_EQ(take(20 * mss, mss).bytes, 0u);
  EXPECT_TRUE(receiver.acknowledgement_due());
  EXPECT_EQ(take(19 * mss, 2 * mss).bytes, mss) << "the part that there is room for";
}

// RFC 2018 §4.
TEST_F(TcpReceiver, TheRangesThatWereHeardOfLastComeFirst) {
  take(2 * mss, mss);
  take(6 * mss, mss);
  take(4 * mss, mss);
  EXPECT_EQ(blocks(acknowledgement()), (Blocks{{4 * mss, 5 * mss}, {6 * mss, 7 * mss}}));
  take(2 * mss, mss);  // it is heard of again
  EXPECT_EQ(blocks(acknowledgement()), (Blocks{{2 * mss, 3 * mss}, {4 * mss, 5 * mss}}));
  take(8 * mss, mss);
  EXPECT_EQ(blocks(acknowledgement()), (Blocks{{8 * mss, 9 * mss}, {2 * mss, 3 * mss}}));
  EXPECT_TRUE(blocks(acknowledgement(false)).empty()) << "data has no room for them";
}

TEST_F(TcpReceiver, RangesThatTouchAreOne) {
  take(2 * mss, mss);
  take(4 * mss, mss);
  take(3 * mss, mss);
  EXPECT_EQ(blocks(acknowledgement()), (Blocks{{2 * mss, 5 * mss}}));
  take(mss, 5 * mss);
  EXPECT_EQ(blocks(acknowledgement()), (Blocks{{mss, 6 * mss}}));
}

// RFC 5681 §4.2.
TEST_F(TcpReceiver, AGapThatCloses) {
  take(mss, mss);
  take(3 * mss, mss);
  EXPECT_TRUE(receiver.needs_pure());
  acknowledgement();
  take(0, mss);
  EXPECT_TRUE(receiver.acknowledgement_due());
  EXPECT_EQ(receiver.in_order(), 2u * mss);
  const wire::Tcp told = acknowledgement();
  EXPECT_EQ(place(told.acknowledgement), 2 * mss);
  EXPECT_EQ(blocks(told), (Blocks{{3 * mss, 4 * mss}}));
  take(2 * mss, mss);
  EXPECT_EQ(receiver.in_order(), 4u * mss);
  EXPECT_TRUE(blocks(acknowledgement()).empty());
}

// RFC 8257 §3.2: what came before the mark changed is acknowledged on its own, with the old mark.
TEST_F(TcpReceiver, DctcpTellsWhichBytesWereMarked) {
  settings.congestion_control = CongestionControl::dctcp;
  take(0, mss);
  take(mss, mss / 2, true);
  take(mss + mss / 2, mss / 4, false);
  std::vector<std::pair<std::uint32_t, bool>> told;
  while (receiver.acknowledgement_due() && told.size() < 9) {
    const wire::Tcp header = acknowledgement();
    told.emplace_back(place(header.acknowledgement), header.ece);
  }
  const std::vector<std::pair<std::uint32_t, bool>> expected = {
      {mss, false}, {mss + mss / 2, true}, {mss + mss / 2 + mss / 4, false}};
  EXPECT_EQ(told, expected);
}

// RFC 3168 §6.1.3.
TEST_F(TcpReceiver, ClassicEcnEchoesUntilTheSenderHasReacted) {
  settings.ecn = true;
  take(0, mss, true);
  EXPECT_TRUE(acknowledgement().ece);
  take(mss, mss);
  EXPECT_TRUE(acknowledgement().ece);
  wire::Tcp reacted;
  reacted.cwr = true;
  take(2 * mss, mss, false, reacted);
  EXPECT_FALSE(acknowledgement().ece);
  take(3 * mss, mss, true, reacted);
  EXPECT_TRUE(acknowledgement().ece) << "marked again";
}

TEST_F(TcpReceiver, WithoutEcnMarksAreNotEchoed) {
  take(0, mss, true);
  EXPECT_FALSE(acknowledgement().ece);
}

// RFC 9293 §3.8.6.2.2: no silly windows.
TEST_F(TcpReceiver, AWindowThatWasNarrowIsToldAgainWhenItIsWide) {
  take(0, 12 * mss);
  EXPECT_EQ(acknowledgement().window, 8 * mss);
  receiver.consumed(7 * mss);
  EXPECT_FALSE(receiver.acknowledgement_due()) << "less than twice as wide";
  receiver.consumed(8 * mss);
  EXPECT_TRUE(receiver.acknowledgement_due());
  EXPECT_EQ(acknowledgement().window, 16 * mss);
}

TEST_F(TcpReceiver, AWindowMovesByASegmentAtLeast) {
  take(0, 2 * mss);
  EXPECT_EQ(acknowledgement().window, 18 * mss);
  receiver.consumed(mss - 1);
  EXPECT_EQ(acknowledgement().window, 18 * mss);
  receiver.consumed(mss);
  EXPECT_EQ(acknowledgement().window, 19 * mss);
}

TEST_F(TcpReceiver, AReaderThatHasAllThatWasPushedWaitsForNothing) {
  wire::Tcp pushed;
  pushed.psh = true;
  take(0, 10, false, pushed);
  EXPECT_FALSE(receiver.acknowledgement_due());
  receiver.consumed(9);
  EXPECT_FALSE(receiver.acknowledgement_due());
  receiver.consumed(10);
  EXPECT_TRUE(receiver.acknowledgement_due());
}

}  // namespace
}  // namespace tulle::transport::tcp

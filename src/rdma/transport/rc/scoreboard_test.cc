#include "rdma/transport/rc/scoreboard.h"

#include <gtest/gtest.h>

namespace tulle::transport::rc {
namespace {

constexpr Psn first{0xFF'FFFE};  // so that every test crosses the end of the PSN space

std::vector<int> all_lost(Scoreboard& board, Psn sent) {
  std::vector<int> out;
  while (const auto psn = board.lost(sent)) {
    out.push_back(psn->distance_from(first));
    board.sent_again(*psn + 1);
  }
  return out;
}
using Lost = std::vector<int>;

TEST(Scoreboard, WhatIsMissingBelowTheLastThatArrivedIsLost) {
  Scoreboard board(16, 1, first);
  const Psn sent = first + 10;
  EXPECT_FALSE(board.begin(sent, sent)) << "nothing came early";
  board.arrived(first + 1, 1);
  EXPECT_TRUE(board.begin(sent, sent));
  EXPECT_FALSE(board.begin(sent, sent)) << "it has begun";
  EXPECT_EQ(all_lost(board, sent), (Lost{0}));
  board.arrived(first + 4, 1);
  EXPECT_EQ(all_lost(board, sent), (Lost{2, 3}));
  board.arrived(first + 6, 1);
  EXPECT_EQ(all_lost(board, sent), (Lost{5})) << "each once";
}

TEST(Scoreboard, ARecoveryEndsWithTheLastPacketSentBeforeIt) {
  Scoreboard board(16, 1, first);
  board.arrived(first + 1, 1);
  ASSERT_TRUE(board.begin(first + 4, first + 4));
  board.acknowledged(first + 3);
  board.arrived(first + 5, 1);
  EXPECT_FALSE(board.begin(first + 6, first + 6));
  EXPECT_EQ(all_lost(board, first + 6), (Lost{3, 4}));
  board.acknowledged(first + 4);
  EXPECT_EQ(board.lost(first + 6), std::nullopt);
  EXPECT_TRUE(board.begin(first + 6, first + 6)) << "the next one, of what is missing still";
  EXPECT_EQ(all_lost(board, first + 6), (Lost{4}));
}

TEST(Scoreboard, AThresholdWaitsForReordering) {
  Scoreboard board(16, 3, first);
  const Psn sent = first + 10;
  board.arrived(first + 1, 2);
  EXPECT_FALSE(board.begin(sent, sent));
  board.arrived(first + 3, 1);
  EXPECT_TRUE(board.begin(sent, sent));
  board.arrived(first + 6, 1);
  EXPECT_EQ(all_lost(board, sent), (Lost{0})) << "two were overtaken by too few";
  board.arrived(first + 7, 1);
  EXPECT_EQ(all_lost(board, sent), (Lost{4}));
}

TEST(Scoreboard, ATimeOutShowsOneAfterTheOther) {
  Scoreboard board(16, 1, first);
  const Psn sent = first + 4;
  board.timed_out(sent);
  EXPECT_EQ(all_lost(board, sent), (Lost{0}));
  board.acknowledged(first + 1);
  EXPECT_EQ(all_lost(board, sent), (Lost{1}));
  board.acknowledged(first + 3);
  EXPECT_EQ(all_lost(board, sent), (Lost{3}));
  board.acknowledged(first + 4);
  EXPECT_EQ(all_lost(board, first + 8), Lost{});
}

TEST(Scoreboard, WhatIsOutsideOfItIsIgnored) {
  Scoreboard board(16, 1, first);
  board.arrived(first - 1, 1);
  board.arrived(first + 500, 1);
  EXPECT_FALSE(board.begin(first + 10, first + 10));
  board.acknowledged(first - 5);
  board.arrived(first + 1, 1);
  EXPECT_FALSE(board.begin(first, first + 10)) << "all is to be sent again anyway";
  board.acknowledged(first + 300);
  board.arrived(first + 301, 1);
  EXPECT_TRUE(board.begin(first + 310, first + 310));
  EXPECT_EQ(all_lost(board, first + 310), (Lost{300}));
  board.abandon();
  EXPECT_EQ(board.lost(first + 310), std::nullopt);
}

}  // namespace
}  // namespace tulle::transport::rc

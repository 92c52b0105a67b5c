#include "rdma/verbs/receive_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace tulle::verbs {
namespace {

std::vector<Sge> pieces(std::uint64_t base, std::size_t count) {
  std::vector<Sge> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back({base + i, static_cast<std::uint32_t>(10 + i), LocalKey{5}});
  }
  return out;
}

TEST(ReceiveQueue, RequestsComeBackWhole) {
  ReceiveQueue queue(4, 3);
  for (std::uint64_t round = 0; round < 11; ++round) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      const auto sges = pieces(1'000 * round + 100 * i, i + 1);
      ASSERT_EQ(queue.post({10 * round + i, sges}), VerbsStatus::ok);
    }
    for (std::uint64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(queue.front_length(), 10 * (i + 1) + i * (i + 1) / 2);
      Receive receive;
      ASSERT_TRUE(queue.take(receive));
      EXPECT_EQ(receive.wr_id, 10 * round + i);
      ASSERT_EQ(receive.sge_count, i + 1);
      for (std::uint32_t piece = 0; piece <= i; ++piece) {
        EXPECT_EQ(receive.sges[piece].address, 1'000 * round + 100 * i + piece);
        EXPECT_EQ(receive.sges[piece].length, 10 + piece);
      }
    }
  }
  Receive receive;
  EXPECT_FALSE(queue.take(receive));
  EXPECT_EQ(queue.front_length(), 0u);
}

TEST(ReceiveQueue, ItsLengthIsThatOfAllRequests) {
  ReceiveQueue queue(3, 2);
  EXPECT_EQ(queue.length(), 0u);
  ASSERT_EQ(queue.post({1, pieces(0, 2)}), VerbsStatus::ok);
  ASSERT_EQ(queue.post({2, {}}), VerbsStatus::ok);
  ASSERT_EQ(queue.post({3, pieces(0, 1)}), VerbsStatus::ok);
  EXPECT_EQ(queue.length(), 10u + 11u + 10u);
  Receive receive;
  ASSERT_TRUE(queue.take(receive));
  EXPECT_EQ(queue.length(), 10u);
}

TEST(ReceiveQueue, RefusesWhatDoesNotFit) {
  ReceiveQueue queue(2, 2);
  EXPECT_EQ(queue.post({1, pieces(0, 3)}), VerbsStatus::invalid_argument);
  EXPECT_EQ(queue.post({1, {}}), VerbsStatus::ok)
      << "a receive without memory takes empty messages";
  EXPECT_EQ(queue.post({2, pieces(0, 2)}), VerbsStatus::ok);
  EXPECT_EQ(queue.post({3, pieces(0, 1)}), VerbsStatus::out_of_memory);
  EXPECT_EQ(queue.size(), 2u);
  ReceiveQueue none(0, 1);
  EXPECT_EQ(none.post({1, {}}), VerbsStatus::out_of_memory);
}

TEST(ReceiveQueue, ResizeKeepsOrderAndPieces) {
  ReceiveQueue queue(4, 2);
  Receive receive;
  for (std::uint64_t i = 0; i < 6; ++i) {
    ASSERT_EQ(queue.post({i, pieces(100 * i, 2)}), VerbsStatus::ok);
    if (i < 2) {
      ASSERT_TRUE(queue.take(receive));
    }
  }
  EXPECT_FALSE(queue.resize(3));
  EXPECT_TRUE(queue.resize(5));
  EXPECT_EQ(queue.capacity(), 5u);
  ASSERT_EQ(queue.post({6, pieces(600, 1)}), VerbsStatus::ok);
  EXPECT_EQ(queue.post({7, pieces(700, 1)}), VerbsStatus::out_of_memory);
  for (std::uint64_t i = 2; i <= 6; ++i) {
    ASSERT_TRUE(queue.take(receive));
    EXPECT_EQ(receive.wr_id, i);
    EXPECT_EQ(receive.sges[0].address, 100 * i);
  }
}

TEST(ReceiveQueue, ClearForgetsAll) {
  ReceiveQueue queue(2, 1);
  ASSERT_EQ(queue.post({1, pieces(0, 1)}), VerbsStatus::ok);
  queue.clear();
  Receive receive;
  EXPECT_FALSE(queue.take(receive));
  ASSERT_EQ(queue.post({2, pieces(7, 1)}), VerbsStatus::ok);
  ASSERT_EQ(queue.post({3, pieces(8, 1)}), VerbsStatus::ok);
  ASSERT_TRUE(queue.take(receive));
  EXPECT_EQ(receive.sges[0].address, 7u);
}

TEST(ReceiveQueue, LengthIsTheSumOfThePieces) {
  Receive receive;
  receive.sge_count = 2;
  receive.sges[0].length = ~0u;
  receive.sges[1].length = ~0u;
  EXPECT_EQ(receive.length(), 2 * std::uint64_t{~0u}) << "beyond 32 bits";
}

}  // namespace
}  // namespace tulle::verbs

#include "rdma/transport/rc/outstanding_reads.h"

#include <gtest/gtest.h>

namespace tulle::transport::rc {
namespace {

constexpr Psn psn(std::uint32_t value) { return Psn{value}; }

TEST(OutstandingReads, AreAnsweredInTheirOrder) {
  OutstandingReads reads;
  for (const std::uint32_t end : {4u, 8u, 9u}) reads.sent(psn(end));
  EXPECT_EQ(reads.in_flight(), 3u);
  reads.answered_until(psn(3));
  EXPECT_EQ(reads.in_flight(), 3u);
  reads.answered_until(psn(8));
  EXPECT_EQ(reads.in_flight(), 1u);
  EXPECT_EQ(reads.next_end(), std::nullopt);
}

TEST(OutstandingReads, EndAgainWhereTheyEndedBefore) {
  OutstandingReads reads;
  for (const std::uint32_t end : {4u, 8u}) reads.sent(psn(end));
  reads.go_back();
  EXPECT_EQ(reads.in_flight(), 0u);
  EXPECT_EQ(reads.next_end(), psn(4));
  reads.sent(psn(4));
  EXPECT_EQ(reads.next_end(), psn(8));
  reads.answered_until(psn(8));  // an answer to the request that was sent first
  EXPECT_EQ(reads.in_flight(), 0u);
  EXPECT_EQ(reads.next_end(), std::nullopt);
  reads.sent(psn(12));
  EXPECT_EQ(reads.in_flight(), 1u);
}

TEST(OutstandingReads, OneOfThemMayBeSentAgain) {
  OutstandingReads reads;
  for (const std::uint32_t end : {4u, 8u, 12u}) reads.sent(psn(end));
  EXPECT_EQ(reads.end_of(psn(4)), psn(8));
  EXPECT_EQ(reads.end_of(psn(12)), std::nullopt);
  const std::uint32_t before = reads.in_flight();
  reads.move_to(psn(5));
  EXPECT_EQ(reads.next_end(), psn(8));
  reads.restore(before);
  EXPECT_EQ(reads.in_flight(), 3u);
}

TEST(OutstandingReads, TheRingWraps) {
  OutstandingReads reads;
  for (std::uint32_t i = 0; i < 5 * OutstandingReads::most; ++i) {
    reads.sent(psn(i + 1));
    if (i >= OutstandingReads::most / 2)
      reads.answered_until(psn(i + 1 - OutstandingReads::most / 2));
    EXPECT_LE(reads.in_flight(), OutstandingReads::most);
  }
  EXPECT_EQ(reads.in_flight(), OutstandingReads::most / 2);
}

}  // namespace
}  // namespace tulle::transport::rc

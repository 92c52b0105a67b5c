#include "rdma/transport/withheld.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <span>

namespace tulle::transport {
namespace {

constexpr QpNumber qp{0x123};
constexpr QpNumber other_qp{0x124};

verbs::Completion completion(verbs::CompletionOpcode opcode, QpNumber of = qp) {
  verbs::Completion made;
  made.opcode = opcode;
  made.qp = of;
  return made;
}
const verbs::Completion received = completion(verbs::CompletionOpcode::receive);
const verbs::Completion has_read = completion(verbs::CompletionOpcode::read);

class WithheldTest : public ::testing::Test {
 protected:
  // Keeps one byte for that place of the memory.
  void keep(std::size_t at, bool is_receive, QpNumber of = qp) {
    const std::byte one{1};
    ASSERT_TRUE(withheld_.keep(of, is_receive, &memory_[at], &one, 1));
  }
  bool has(std::size_t at) const { return memory_[at] == std::byte{1}; }

  std::array<std::byte, 16> memory_{};
  Withheld withheld_;
};

TEST_F(WithheldTest, BytesAppearWhenTheirCompletionIsPolled) {
  keep(0, true);
  keep(1, true);
  withheld_.bind(received);
  EXPECT_FALSE(has(0) || has(1));
  withheld_.release(received);
  EXPECT_TRUE(has(0) && has(1));
}

TEST_F(WithheldTest, EachCompletionShowsItsOwnMessage) {
  keep(0, true);
  withheld_.bind(received);
  keep(1, true);
  withheld_.bind(received);
  keep(2, true);  // of a message that has not ended
  withheld_.release(received);
  EXPECT_TRUE(has(0));
  EXPECT_FALSE(has(1));
  withheld_.release(received);
  EXPECT_TRUE(has(1));
  EXPECT_FALSE(has(2));
}

TEST_F(WithheldTest, ReceivesAndSendsAreApart) {
  keep(0, true);
  keep(1, false);
  withheld_.bind(has_read);
  withheld_.release(has_read);
  EXPECT_FALSE(has(0));
  EXPECT_TRUE(has(1));
}

TEST_F(WithheldTest, ACompletionShowsUnsignalledReadsBeforeIt) {
  keep(0, false);
  keep(1, false);
  withheld_.bind(has_read);
  withheld_.release(has_read);
  EXPECT_TRUE(has(0) && has(1));
}

TEST_F(WithheldTest, ACompletionWithoutBytesKeepsItsPlace) {
  keep(0, true);
  withheld_.bind(received);
  withheld_.bind(received);  // nothing came with it
  keep(1, true);
  withheld_.bind(received);
  withheld_.release(received);
  withheld_.release(received);
  EXPECT_FALSE(has(1));
  withheld_.release(received);
  EXPECT_TRUE(has(1));
}

TEST_F(WithheldTest, AllOfAQueuePairCanBeShownAndItsCompletionsComeAfterwards) {
  keep(0, true);
  keep(1, false);
  keep(2, true, other_qp);
  withheld_.bind(received);
  withheld_.release_all(qp);
  EXPECT_TRUE(has(0) && has(1));
  EXPECT_FALSE(has(2));
  keep(3, true);
  withheld_.bind(received);
  withheld_.release(received);  // of the message that was shown
  EXPECT_FALSE(has(3));
  withheld_.release(received);
  EXPECT_TRUE(has(3));
}

TEST_F(WithheldTest, MemoryThatGoesAwayShowsAll) {
  keep(0, true);
  keep(1, false, other_qp);
  withheld_.release_all(memory_);
  EXPECT_TRUE(has(0) && has(1));
}

TEST_F(WithheldTest, AQueuePairThatStartsAnewHasNoCompletionsOfBefore) {
  keep(0, true);
  withheld_.bind(received);
  withheld_.forget(qp);
  EXPECT_TRUE(has(0));
  keep(1, true);
  withheld_.bind(received);
  withheld_.release(received);
  EXPECT_TRUE(has(1));
}

TEST_F(WithheldTest, OfAMessageThatBeganAnewTheLastBytesCount) {
  const std::byte old{2};
  ASSERT_TRUE(withheld_.keep(qp, true, memory_.data(), &old, 1));
  keep(0, true);
  withheld_.bind(received);
  withheld_.release(received);
  EXPECT_TRUE(has(0));
}

TEST_F(WithheldTest, APeerThatEndsNoMessageFillsNoMemory) {
  for (int i = 0; i < 65'536; ++i) keep(0, true);
  EXPECT_FALSE(has(0));
  keep(1, true);
  EXPECT_TRUE(has(0) && has(1));
}

TEST_F(WithheldTest, TheFirstPacketOfAWriteAppearsLast) {
  std::array<std::byte, 4> packet;
  packet.fill(std::byte{1});
  ASSERT_TRUE(withheld_.keep_first_packet(qp, {}, 0, memory_.data(), packet));
  EXPECT_FALSE(has(0));
  EXPECT_TRUE(withheld_.write_first_packet(qp));
  EXPECT_TRUE(has(0) && has(3));
  EXPECT_FALSE(has(4));
  memory_ = {};
  EXPECT_TRUE(withheld_.write_first_packet(qp));  // there is none
  EXPECT_FALSE(has(0));
}

TEST_F(WithheldTest, OnlyTheLastPacketOfAWriteBringsTheFirst) {
  const std::array<std::byte, 1> one{std::byte{1}};
  ASSERT_TRUE(withheld_.keep_first_packet(qp, {}, 0, memory_.data(), one));
  withheld_.release_all(qp);
  withheld_.release_all(std::span(memory_).subspan(1));
  EXPECT_FALSE(has(0)) << "the right to write may be gone";
  withheld_.drop_first_packet(qp);
  EXPECT_TRUE(withheld_.write_first_packet(qp));
  EXPECT_FALSE(has(0));
  ASSERT_TRUE(withheld_.keep_first_packet(qp, {}, 0, memory_.data(), one));
  withheld_.forget(qp);
  EXPECT_TRUE(withheld_.write_first_packet(qp));
  EXPECT_FALSE(has(0));
}

TEST_F(WithheldTest, TheFirstPacketForMemoryThatGoesAwayIsNotWritten) {
  const std::array<std::byte, 1> one{std::byte{1}};
  ASSERT_TRUE(withheld_.keep_first_packet(qp, {}, 0, &memory_[4], one));
  withheld_.release_all(std::span(memory_).subspan(4, 1));
  EXPECT_FALSE(withheld_.write_first_packet(qp));
  EXPECT_FALSE(has(4));
}

TEST_F(WithheldTest, ALaterRequestForTheSameMemoryFindsWhatCameBefore) {
  keep(4, true);
  withheld_.bind(received);
  withheld_.release_under(qp, &memory_[5], 4);
  withheld_.release_under(qp, &memory_[0], 4);
  withheld_.release_under(other_qp, &memory_[0], 16);
  EXPECT_FALSE(has(4));
  withheld_.release_under(qp, &memory_[2], 3);
  EXPECT_TRUE(has(4));
}

}  // namespace
}  // namespace tulle::transport

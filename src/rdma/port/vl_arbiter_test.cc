// These tests follow IBTA 7.6.9 sentence by sentence.

#include "rdma/port/vl_arbiter.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "base/random.h"

namespace tulle::port {
namespace {

using Weights = std::vector<VlWeight>;

// A port whose lanes always have a packet. All packets of a lane have the same length.
class Port {
 public:
  Port(const Weights& high, const Weights& low, std::uint8_t high_limit)
      : tables_(high, low, high_limit) {}
  explicit Port(const VlArbitration& tables) : tables_(tables) {}

  std::uint8_t send(std::uint32_t open) {
    const std::uint8_t lane = arbiter_.choose(tables_, open);
    EXPECT_EQ(arbiter_.choose(tables_, open), lane) << "to ask changes nothing";
    EXPECT_NE(open >> lane & 1, 0u) << "it has nothing to send";
    arbiter_.sent(length[lane]);
    sent[lane] += length[lane];
    return lane;
  }
  // Returns the lanes of the next `packets` packets, one digit each.
  std::string order(int packets, std::uint32_t open) {
    std::string text;
    for (int i = 0; i < packets; ++i) text += std::to_string(send(open));
    return text;
  }

  std::array<std::uint32_t, 8> length = {64, 64, 64, 64, 64, 64, 64, 64};
  std::array<std::uint64_t, 8> sent{};

 private:
  VlArbitration tables_;
  VlArbiter arbiter_;
};

TEST(VlArbiter, AnEntrySendsItsWeightInUnitsOf64Bytes) {
  Port port({}, {{0, 3}, {1, 1}}, 0);
  EXPECT_EQ(port.order(12, 0b11), "000100010001");
}

TEST(VlArbiter, SharesAreThoseOfTheWeightsToTheByteWhereTheyHoldWholePackets) {
  Port port({}, {{0, 130}, {1, 65}, {2, 8}}, 0);
  port.length = {4'160, 2'080, 512};  // 65 blocks, 32.5, 8: a packet takes whole blocks
  for (int round = 0; round < 10'000; ++round) port.order(2 + 2 + 1, 0b111);
  EXPECT_EQ(port.sent[0], 10'000u * 2 * 4'160);
  EXPECT_EQ(port.sent[1], 10'000u * 2 * 2'080);
  EXPECT_EQ(port.sent[2], 10'000u * 512);
}

TEST(VlArbiter, APacketGoesWholeWhileAnyOfTheWeightIsLeft) {
  // Each packet has 65 blocks: 3 packets take 195 of 192 blocks, and 1 takes 65 of 4.
  Port port({}, {{0, 192}, {1, 4}}, 0);
  port.length = {4'122, 4'122};
  EXPECT_EQ(port.order(8, 0b11), "00010001");
}

TEST(VlArbiter, AnEntryOfWeightZeroIsSkippedAndALaneMayStandThereTwice) {
  Port port({}, {{0, 1}, {3, 0}, {1, 1}, {0, 1}, {2, 2}}, 0);
  EXPECT_EQ(port.order(10, 0b1111), "0102201022");
}

TEST(VlArbiter, ALaneWithoutAPacketGivesUpItsTurn) {
  Port port({}, {{0, 4}, {1, 2}}, 0);
  EXPECT_EQ(port.order(2, 0b11), "00");
  EXPECT_EQ(port.order(1, 0b10), "1");
  EXPECT_EQ(port.order(6, 0b11), "100001") << "the two that lane 0 did not send are lost";
  EXPECT_EQ(port.order(100, 0b01), std::string(100, '0')) << "alone it has the link";
  EXPECT_EQ(port.order(7, 0b11), "1100001") << "and has run up no debt";
}

TEST(VlArbiter, HighPriorityComesFirstWithoutALimit) {
  Port port({{1, 1}}, {{0, 255}}, VlArbitration::limit_unbounded);
  EXPECT_EQ(port.order(3, 0b01), "000");
  EXPECT_EQ(port.order(100'000, 0b11), std::string(100'000, '1')) << "low priority starves";
  EXPECT_EQ(port.order(3, 0b01), "000");
}

TEST(VlArbiter, ALimitOfZeroIsOnePacketOfHighPriority) {
  Port port({{1, 255}, {2, 255}}, {{0, 255}}, 0);
  port.length[1] = 4'160;
  EXPECT_EQ(port.order(6, 0b011), "101010");
}

TEST(VlArbiter, TheLimitIsInUnitsOf4096Bytes) {
  Port port({{1, 255}}, {{0, 255}}, 3);
  port.length[1] = 2'048;
  EXPECT_EQ(port.order(14, 0b11), "11111101111110") << "six are 3 x 4,096 bytes";
  port.length[1] = 2'112;  // 33 blocks: the sixth goes beyond 192, as some of the limit was left
  EXPECT_EQ(port.order(7, 0b11), "1111110");
}

TEST(VlArbiter, LowPrioritySendsOnePacketWhenItHasItsOpportunity) {
  Port port({{1, 255}}, {{0, 255}, {2, 255}}, 1);
  port.length = {64, 4'096, 64};
  EXPECT_EQ(port.order(4, 0b111), "1010");
  EXPECT_EQ(port.order(3, 0b010), "111") << "nobody else has anything";
  EXPECT_EQ(port.order(2, 0b011), "01") << "an opportunity that nobody took is still there";
}

// Whatever lanes are open and however long packets are, only open lanes send, and low priority
// never waits for more than the limit and a packet.
TEST(VlArbiter, NothingStarvesWithALimit) {
  const std::uint64_t seed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (const std::uint32_t limit : {0u, 1u, 5u, 254u}) {
    Port port({{0, 255}, {1, 7}, {2, 90}}, {{3, 4}, {4, 200}}, static_cast<std::uint8_t>(limit));
    std::uint64_t low_waits = 0;
    for (int i = 0; i < 50'000; ++i) {
      for (std::uint32_t& bytes : port.length) {
        bytes = static_cast<std::uint32_t>(64 * (1 + random.below(65)));
      }
      const auto open = static_cast<std::uint32_t>(random.below(31) + 1);
      const std::uint8_t lane = port.send(open);
      if ((open & 0b11000) == 0) continue;
      low_waits = lane >= 3 ? 0 : low_waits + port.length[lane];
      ASSERT_LE(low_waits, limit * 4'096 + 65 * 64);
    }
  }
}

TEST(VlArbiter, OpenSmsDefaultsHaveEveryLane) {
  const VlArbitration tables;
  EXPECT_EQ(tables.lanes(), 0xFFu);
  Port port(tables);
  port.length.fill(4'122);
  EXPECT_EQ(port.order(14, 0xFF), "01020304050607");
  EXPECT_EQ(port.order(6, 0b110), "121212");
}

}  // namespace
}  // namespace tulle::port

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "base/big_endian.h"
#include "base/id_map.h"
#include "base/ids.h"
#include "base/json_text.h"
#include "base/quoted.h"
#include "base/random.h"
#include "base/result.h"
#include "base/ring.h"
#include "base/split.h"
#include "base/terminal_text.h"
#include "base/time.h"

namespace tulle {
namespace {

TEST(Split, GivesWhatStandsBetweenSeparators) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split("", ','), Parts());
  EXPECT_EQ(split("one", ','), Parts({"one"}));
  EXPECT_EQ(split("one,two", ','), Parts({"one", "two"}));
  EXPECT_EQ(split(",one,,", ','), Parts({"", "one", "", ""}));
}

TEST(Quoted, NothingBreaksALineOrSteersATerminal) {
  EXPECT_EQ(one_line("plain, and é, 你 and €"), "plain, and é, 你 and €");
  EXPECT_EQ(one_line("a\nb\x1B[2J\x7F"), "a?b?[2J?");
  EXPECT_EQ(one_line("\xC2\x9B"
                     "2J"),
            "?2J");  // U+009B
  EXPECT_EQ(one_line("a\u2028b\u2029c"), "a?b?c");
  EXPECT_EQ(one_line("\u202Eabc\u2066d\u2069"), "?abc?d?");
  EXPECT_EQ(one_line("\u2027\u202F\u2065\u206A"), "\u2027\u202F\u2065\u206A");
  EXPECT_EQ(one_line("cut: \xE2\x80"), "cut: ??");
  EXPECT_EQ(one_line("\x9B"
                     "2J"),
            "?2J")
      << "a raw control character";
  EXPECT_EQ(one_line("\xC0\x9B \xE0\x80\x9B \xED\xA0\x80 \xF5\x80\x80\x80 \xC3("),
            "?? ??? ??? ???? ?(");
  EXPECT_EQ(one_line("\U0001F600\U0010FFFF"), "\U0001F600\U0010FFFF");
  EXPECT_EQ(tulle::quoted(std::string(100, 'a')), "\"" + std::string(60, 'a') + "\"");
}

TEST(TerminalText, LinesAndBoldRemain) {
  EXPECT_EQ(terminal_text("a\n\033[1mb\033[0m\n"), "a\n\033[1mb\033[0m\n");
  EXPECT_EQ(terminal_text("\033[2Jé\r\u009B31m\u202E\x9B\n"), "?[2Jé??31m??\n");
}

TEST(TerminalText, JsonHasTheSameNames) {
  EXPECT_EQ(terminal_json("{\n \"é\": \"a\x7F\u009B\u2028\u202E\u2069\"}\n"),
            "{\n \"é\": \"a\\u007f\\u009b\\u2028\\u202e\\u2069\"}\n");
}

TEST(Psn, WrapsAndOrdersWithinHalfTheSpace) {
  const Psn last(0xFF'FFFF);
  EXPECT_EQ((last + 1).value(), 0u);
  EXPECT_EQ((Psn(0) - 1).value(), 0xFF'FFFFu);
  EXPECT_EQ(Psn(0).distance_from(last), 1);
  EXPECT_EQ(last.distance_from(Psn(0)), -1);
  EXPECT_TRUE(last.before(Psn(5)));
  EXPECT_TRUE(Psn(5).after(last));
  EXPECT_EQ(Psn(0x7F'FFFF).distance_from(Psn(0)), 0x7F'FFFF);
  EXPECT_EQ(Psn(0x80'0000).distance_from(Psn(0)), -0x80'0000);
}

TEST(Psn, TakesTwentyFourBits) { EXPECT_EQ(Psn(0xAB12'3456).value(), 0x12'3456u); }

TEST(Gid, MapsIpv4) {
  const Gid gid = Gid::from_ipv4(0x0A4D'0003);
  EXPECT_TRUE(gid.is_ipv4_mapped());
  EXPECT_EQ(gid.ipv4(), 0x0A4D'0003u);
  EXPECT_FALSE(gid.is_multicast());
  EXPECT_TRUE(Gid::from_ipv4(0xEF09'0909).is_multicast());
  EXPECT_FALSE(Gid{}.is_ipv4_mapped());
}

TEST(BigEndian, IsAsLongAsItSaysAndReadsBack) {
  static_assert(sizeof(be24) == 3 && alignof(be64) == 1);
  const be32 number = 0x0102'0304u;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&number);
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(bytes[3], 4);
  EXPECT_EQ(std::uint32_t{number}, 0x0102'0304u);
  EXPECT_EQ(std::uint64_t{be64(0xFEDC'BA98'7654'3210)}, 0xFEDC'BA98'7654'3210u);
  EXPECT_EQ(std::uint32_t{be24(0xABCDEF)}, 0xABCDEFu);
}

TEST(Ring, KeepsOrderAcrossTheWrap) {
  Ring<int> ring(3);
  int next = 0;
  int expected = 0;
  for (int round = 0; round < 10; ++round) {
    while (!ring.full()) ring.push(next++);
    EXPECT_EQ(ring.size(), 3u);
    for (std::uint32_t i = 0; i < ring.size(); ++i) EXPECT_EQ(ring[i], expected + int(i));
    ring.pop();
    ring.pop();
    expected += 2;
  }
}

TEST(Ring, OfNoCapacityIsFullAndEmpty) {
  Ring<int> ring;
  EXPECT_TRUE(ring.full());
  EXPECT_TRUE(ring.empty());
}

TEST(IdMap, AgreesWithAMapUnderRandomInsertionsAndErasures) {
  constexpr std::uint64_t seed = 20;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  std::vector<int> values(400);
  std::map<std::uint32_t, int*> expected;
  IdMap<int> map;
  for (int step = 0; step < 100'000; ++step) {
    const auto id = static_cast<std::uint32_t>(random.below(values.size()) * 0x1001);
    int* value = &values[random.below(values.size())];
    if (expected.contains(id)) {
      map.erase(id);
      expected.erase(id);
    } else {
      map.insert(id, value);
      expected[id] = value;
    }
    const auto probe = static_cast<std::uint32_t>(random.below(values.size()) * 0x1001);
    const auto there = expected.find(probe);
    ASSERT_EQ(map.find(probe), there == expected.end() ? nullptr : there->second);
    ASSERT_EQ(map.size(), expected.size());
  }
}

TEST(Random, IsTheSameEverywhere) {
  // SplitMix64's first outputs for seed 1234567, as its author publishes them.
  Random random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
}

TEST(Random, StaysBelowItsBound) {
  Random random(3);
  std::array<int, 7> seen{};
  for (int i = 0; i < 7'000; ++i) ++seen[random.below(7)];
  for (int count : seen) EXPECT_NEAR(count, 1'000, 200);
}

TEST(Random, DrawsExponentially) {
  constexpr int count = 200'000;
  Random random(4);
  double sum = 0;
  int beyond_two = 0;
  for (int i = 0; i < count; ++i) {
    const double value = random.exponential();
    ASSERT_GE(value, 0);
    sum += value;
    beyond_two += value > 2;
  }
  EXPECT_NEAR(sum / count, 1, 0.01);
  EXPECT_NEAR(static_cast<double>(beyond_two) / count, 0.1353, 0.003);  // e^-2
}

TEST(Result, HoldsAValueOrAnError) {
  Result<int> good(4);
  ASSERT_TRUE(good);
  EXPECT_EQ(*good, 4);
  Result<int> bad(Error{"no", 5});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().error_number, 5);
  Result<void> done;
  EXPECT_TRUE(done);
}

TEST(Time, CountsPicoseconds) {
  EXPECT_EQ(Time::seconds(1).ps, 1'000'000'000'000);
  EXPECT_LT(Time::milliseconds(1), Time::never());
  EXPECT_EQ((Time::microseconds(2) + Time::nanoseconds(5)).to_nanoseconds(), 2'005);
}

TEST(JsonText, DepthIsThatOfArraysAndObjectsOutsideStrings) {
  EXPECT_EQ(json_depth(""), 0u);
  EXPECT_EQ(json_depth("[]"), 1u);
  EXPECT_EQ(json_depth(R"({"a": [1, {"b": []}], "c": {}})"), 4u);
  EXPECT_EQ(json_depth(R"(["[[[", "\\\"[[["])"), 1u);
  EXPECT_EQ(json_depth("]]]]["), 1u);
  EXPECT_EQ(json_depth(std::string(200'000, '[')), 200'000u);
}

}  // namespace
}  // namespace tulle

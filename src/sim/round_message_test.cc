#include "sim/round_message.h"

#include <gtest/gtest.h>

namespace tulle::sim {
namespace {

Crossing some_crossing() {
  Crossing crossing;
  port::Frame frame;
  frame.source = 5;
  frame.payload_bytes = 4'096;
  crossing.add({.at = 100, .datum = 3, .place = 16}, frame);
  crossing.payloads.resize(10, std::byte{9});
  crossing.notices.push_back(
      {{.at = 200, .datum = 0, .place = 32}, {1, 2, 300, Time::nanoseconds(4)}});
  crossing.events.push_back({.at = 300, .datum = 7, .place = 48});
  crossing.requests.push_back({1, 2, 3});
  crossing.requests.push_back({4, 5, 6});
  return crossing;
}

TEST(RoundMessage, HasWhatCrossedToEachPart) {
  Bytes message;
  begin_message({7, 1'000, 1'100, 0}, message);
  add_crossing(3, some_crossing(), message);
  add_crossing(4, Crossing(), message);
  add_crossing(5, some_crossing(), message);
  const auto read = read_message(message);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->report.round, 7u);
  EXPECT_EQ(read->report.earliest_round, 1'000);
  EXPECT_EQ(read->report.earliest_event, 1'100);
  EXPECT_EQ(read->report.goes_on, 0u);
  ASSERT_EQ(read->crossings.size(), 2u) << "nothing is said of a part to which nothing crossed";
  EXPECT_EQ(read->crossings[1].part, 5u);
  Crossing crossing;
  ASSERT_TRUE(read_crossing(read->crossings[1].bytes, crossing));
  ASSERT_EQ(crossing.frames.size(), 1u);
  EXPECT_EQ(crossing.frames[0].source, 5u);
  EXPECT_EQ(crossing.frames[0].payload_bytes, 4'096);
  ASSERT_EQ(crossing.arrivals.size(), 1u);
  EXPECT_EQ(crossing.arrivals[0].at, 100);
  EXPECT_EQ(crossing.payloads, some_crossing().payloads);
  EXPECT_EQ(crossing.notices[0].notice.hold, Time::nanoseconds(4));
  EXPECT_EQ(crossing.events[0].datum, 7u);
  ASSERT_EQ(crossing.requests.size(), 2u);
  EXPECT_EQ(crossing.requests[1].note, 6u);
}

TEST(RoundMessage, ACutMessageIsRefused) {
  Bytes message;
  begin_message({}, message);
  const std::size_t head = message.size();
  add_crossing(0, some_crossing(), message);
  for (std::size_t length = 0; length < message.size(); ++length) {
    const bool is_whole = length == head;
    EXPECT_EQ(read_message(std::span(message).first(length)).has_value(), is_whole) << length;
  }
  const auto whole = read_message(message);
  ASSERT_TRUE(whole);
  Crossing crossing;
  const std::span<const std::byte> bytes = whole->crossings[0].bytes;
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(read_crossing(bytes.first(length), crossing)) << length;
  }
}

}  // namespace
}  // namespace tulle::sim

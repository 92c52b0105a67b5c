#include "sim/round_message_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

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

Bytes message_to_parts(const RoundReport& report, const Crossing& first, const Crossing& second) {
  OutgoingMessage message;
  message.begin(report);
  message.add(3, first);
  message.add(4, Crossing());
  message.add(5, second);
  EXPECT_LE(message.pieces().size(), Processes::pieces_max);
  return joined(message.pieces());
}

TEST(RoundMessage, HasWhatCrossedToEachPart) {
  const Bytes message = message_to_parts({7, 1'000, 1'100, 0}, some_crossing(), some_crossing());
  const auto read = read_message(message);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->report.round, 7u);
  EXPECT_EQ(read->report.earliest_round, 1'000);
  EXPECT_EQ(read->report.earliest_event, 1'100);
  EXPECT_EQ(read->report.goes_on, 0u);
  ASSERT_EQ(read->shares.size(), 2u) << "nothing is said of a part to which nothing crossed";
  EXPECT_EQ(read->shares[0].part, 3u);
  EXPECT_EQ(read->shares[1].part, 5u);
  const CrossingView& crossing = read->shares[1].crossing;
  ASSERT_EQ(crossing.frames.size(), 1u);
  EXPECT_EQ(crossing.frames[0].source, 5u);
  EXPECT_EQ(crossing.frames[0].payload_bytes, 4'096);
  ASSERT_EQ(crossing.arrivals.size(), 1u);
  EXPECT_EQ(crossing.arrivals[0].at, 100);
  EXPECT_TRUE(std::ranges::equal(crossing.payloads, some_crossing().payloads));
  EXPECT_EQ(crossing.notices[0].notice.hold, Time::nanoseconds(4));
  EXPECT_EQ(crossing.events[0].datum, 7u);
  ASSERT_EQ(crossing.requests.size(), 2u);
  EXPECT_EQ(crossing.requests[1].note, 6u);
}

// Returns a crossing of so many frames, which tell their number.
Crossing frames(std::uint32_t count) {
  Crossing crossing;
  for (std::uint32_t i = 0; i < count; ++i) {
    port::Frame frame;
    frame.source = i & 0xFF'FFFF;
    crossing.add({.at = i, .datum = i, .place = i}, frame);
  }
  return crossing;
}

TEST(RoundMessage, LongListsStayWhereTheyAre) {
  const Crossing crossing = frames(10'000);
  OutgoingMessage message;
  message.begin({});
  message.add(0, crossing);
  const auto is_frames = [&](std::span<const std::byte> piece) {
    return static_cast<const void*>(piece.data()) == crossing.frames.data();
  };
  EXPECT_TRUE(std::ranges::any_of(message.pieces(), is_frames));
  const Bytes bytes = joined(message.pieces());
  const auto read = read_message(bytes);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->shares.size(), 1u);
  ASSERT_EQ(read->shares[0].crossing.frames.size(), 10'000u);
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    ASSERT_EQ(read->shares[0].crossing.frames[i].source, i);
    ASSERT_EQ(read->shares[0].crossing.arrivals[i].place, i);
  }
}

// With many threads there are more long lists than a message may have pieces.
TEST(RoundMessage, ManyLongListsAreCopied) {
  const std::vector<Crossing> crossings(40, frames(1'100));
  OutgoingMessage message;
  for (int again = 0; again < 2; ++again) {
    message.begin({});
    for (std::uint32_t part = 0; part < 40; ++part) message.add(part, crossings[part]);
    EXPECT_LE(message.pieces().size(), Processes::pieces_max);
    const Bytes bytes = joined(message.pieces());
    const auto read = read_message(bytes);
    ASSERT_TRUE(read);
    ASSERT_EQ(read->shares.size(), 40u);
    for (const Share& share : read->shares) {
      ASSERT_EQ(share.crossing.frames.size(), 1'100u);
      EXPECT_EQ(share.crossing.frames.back().source, 1'099u);
      EXPECT_EQ(share.crossing.arrivals.back().place, 1'099u);
    }
  }
}

TEST(RoundMessage, ACutMessageIsRefused) {
  const Bytes message = message_to_parts({}, some_crossing(), some_crossing());
  const std::size_t head = message_of({}).size();
  const std::size_t share = (message.size() - head) / 2;
  for (std::size_t length = 0; length < message.size(); ++length) {
    const Bytes cut(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(length));
    const bool is_whole = length == head || length == head + share;
    EXPECT_EQ(read_message(cut).has_value(), is_whole) << length;
  }
}

// A list that would be longer than memory is refused, also if its bytes could not be counted.
TEST(RoundMessage, NumbersBeyondTheMessageAreRefused) {
  Bytes message;
  add_share(0, some_crossing(), message);
  constexpr std::size_t numbers = 6, bytes_each = 8;
  for (std::size_t number = 0; number < numbers; ++number) {
    for (const unsigned shift : {7u, 3u}) {
      Bytes changed = message_of({});
      const std::size_t head = changed.size();
      Packer(changed).add_all(std::span<const std::byte>(message));
      EXPECT_TRUE(read_message(changed));
      changed[head + number * bytes_each + shift] |= std::byte{0x40};
      const bool is_part = number == 0 && shift == 3;
      EXPECT_EQ(read_message(changed).has_value(), is_part) << number << " " << shift;
    }
  }
}

}  // namespace
}  // namespace tulle::sim

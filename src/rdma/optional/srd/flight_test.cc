#include "rdma/optional/srd/flight.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tulle::transport::srd {
namespace {

constexpr Time at(std::int64_t n) { return Time::microseconds(n); }

TEST(SrdFlight, the_oldest_is_the_one_that_was_sent_first_and_is_still_under_way) {
  Flight flight;
  for (int i = 0; i < 3; ++i) flight.add();
  for (const Sequence each : {Sequence{2}, Sequence{0}, Sequence{1}}) {
    flight.sent(at(1), each, 0, 100);
  }
  EXPECT_EQ(flight.bytes(), 300u);
  EXPECT_EQ(flight.oldest(), 2u);
  flight.acknowledged(0);
  EXPECT_EQ(flight.oldest(), 2u);
  flight.lost(2);
  EXPECT_EQ(flight.oldest(), 1u);
  EXPECT_EQ(flight.bytes(), 100u);
  EXPECT_EQ(flight.first(), 1u) << "what is acknowledged in order leaves";
}

TEST(SrdFlight, what_is_lost_is_taken_once_unless_it_was_acknowledged) {
  Flight flight;
  for (Sequence i = 0; i < 3; ++i) flight.sent(at(1), flight.add(), 0, 100);
  for (Sequence i = 0; i < 3; ++i) flight.lost(i);
  flight.acknowledged(1);
  EXPECT_TRUE(flight.has_lost());
  EXPECT_EQ(flight.take_lost(), 0u);
  EXPECT_EQ(flight.take_lost(), 2u);
  EXPECT_FALSE(flight.has_lost());
  EXPECT_EQ(flight.take_lost(), no_sequence);
}

TEST(SrdFlight, what_waits_is_lost_when_its_wait_is_over) {
  Flight flight;
  for (Sequence i = 0; i < 2; ++i) flight.sent(at(1), flight.add(), 0, 100);
  flight.wait(0, at(10));
  flight.wait(1, at(20));
  EXPECT_EQ(flight.waiting(), 2u);
  EXPECT_EQ(flight.end_waits(at(9)), at(10));
  EXPECT_FALSE(flight.has_lost());
  EXPECT_EQ(flight.end_waits(at(10)), at(20));
  EXPECT_EQ(flight.take_lost(), 0u);
  EXPECT_TRUE(flight.end_waits(at(20)).is_never());
  EXPECT_EQ(flight.take_lost(), 1u);
  EXPECT_EQ(flight.waiting(), 0u);
}

// A peer that is never ready is asked without an end.
TEST(SrdFlight, transmissions_are_counted_up_to_what_their_field_holds) {
  Flight flight;
  const Sequence number = flight.add();
  for (int i = 1; i <= 300; ++i) {
    flight.sent(at(i), number, 0, 100);
    EXPECT_EQ(flight[number].transmissions, std::min(i, 255));
    flight.lost(number);
    flight.take_lost();
  }
}

TEST(SrdFlight, numbers_keep_their_packets_when_room_is_made) {
  Flight flight;
  for (std::uint32_t i = 0; i < 500; ++i) {
    const Sequence number = flight.add();
    flight[number].message = i;
    flight.sent(at(i), number, 0, 10);
    if (i % 3 == 0) flight.acknowledged(number);
  }
  EXPECT_EQ(flight.first(), 1u);
  EXPECT_EQ(flight.next(), 500u);
  for (std::uint32_t i = 1; i < 500; ++i) {
    EXPECT_EQ(flight[i].message, i);
    EXPECT_EQ(flight[i].state == Slot::State::in_flight, i % 3 != 0);
  }
  flight.clear();
  EXPECT_TRUE(flight.empty());
  EXPECT_EQ(flight.bytes(), 0u);
  EXPECT_EQ(flight.oldest(), no_sequence);
}

}  // namespace
}  // namespace tulle::transport::srd

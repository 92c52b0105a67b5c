#include "management/cm/outbox.h"

#include <gtest/gtest.h>

namespace tulle::management::cm {
namespace {

class OutboxTest : public ::testing::Test {
 protected:
  OutboxTest() {
    connection.route = {Gid::from_ipv4(1), Gid::from_ipv4(2), 0};
    connection.keep(wire::cm::Reply{});
  }
  std::uint32_t clear() {
    std::uint32_t count = 0;
    for (; outbox.next() != nullptr; outbox.pop()) ++count;
    return count;
  }

  Time now = Time::seconds(1);
  Connection connection;
  Outbox outbox;
};

TEST_F(OutboxTest, AnswersToStrangersAreMarkedUntilTheyProveTheirAddress) {
  outbox.send(connection.route, 1, wire::cm::Reject{});
  EXPECT_TRUE(outbox.next()->is_to_stranger);
  clear();
  outbox.send_kept(connection);
  EXPECT_TRUE(outbox.next()->is_to_stranger);
  EXPECT_EQ(outbox.next()->bytes, connection.kept);
  clear();
  connection.is_active = true;  // this side asked
  outbox.send_kept(connection);
  EXPECT_FALSE(outbox.next()->is_to_stranger);
  clear();
  connection.is_active = false;
  outbox.prove(connection.route.remote);
  outbox.send_kept(connection);
  EXPECT_FALSE(outbox.next()->is_to_stranger);
}

TEST_F(OutboxTest, OnlyUnconfirmedAnswersAreFewWhenNobodyAsksForThem) {
  connection.is_requested = true;
  for (const auto state : {Connection::State::reply_sent, Connection::State::disconnect_sent}) {
    connection.state = state;
    for (int i = 0; i < 1'000; ++i) outbox.send_kept_unasked(connection, now);
    EXPECT_EQ(clear(), state == Connection::State::reply_sent ? UnaskedMessages::at_once_max
                                                              : std::uint32_t{1'000});
  }
}

}  // namespace
}  // namespace tulle::management::cm

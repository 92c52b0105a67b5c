#include "management/cm/transitions.h"

#include <gtest/gtest.h>

#include <vector>

#include "management/cm/manager_pair_test.h"

namespace tulle::management::cm {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test's own
using wire::cm::Subject;
using State = Connection::State;

class TransitionsTest : public ::testing::Test {
 protected:
  Connection& active(State state) {
    Connection& connection = *table.create_active({address_a, address_b, 0}, state);
    connection.interval = Time::seconds(1);
    return connection;
  }
  std::vector<Outgoing> sent() {
    std::vector<Outgoing> all;
    for (; outbox.next() != nullptr; outbox.pop()) all.push_back(*outbox.next());
    return all;
  }
  Outgoing only_sent() {
    const auto all = sent();
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? Outgoing{} : all.front();
  }

  static constexpr Transitions::Settings settings{0xA, 3, 18};
  Time now = Time::seconds(10);
  ConnectionTable table{{RandomSource{1}, 10, 10}};
  Outbox outbox;
  EventQueue events;
  Transitions transitions{settings, table, outbox, events};
};

TEST_F(TransitionsTest, ARejectionIsKeptForAllRepetitionsOfThePeer) {
  const Time lifetime = exponential_time(16);
  const Time repetitions = (Time::seconds(1) + lifetime * 2) * (settings.retries_max + 1);
  for (const bool is_patient : {false, true}) {
    Connection& connection = active(State::reply_received);
    connection.packet_lifetime = 16;
    if (is_patient) {
      transitions.ask_patience(connection, Subject::reply);
      EXPECT_EQ(attribute_of(only_sent()), Attribute::message_receipt_acknowledgement);
    }
    transitions.reject_and_wait(connection, now, Subject::reply, Reason::consumer, {});
    EXPECT_EQ(attribute_of(only_sent()), Attribute::reject);
    EXPECT_EQ(connection.state, State::time_wait);
    EXPECT_TRUE(connection.is_released);
    EXPECT_TRUE(connection.keeps_reject());
    const Time patience = is_patient ? exponential_time(settings.service_timeout) : Time::zero();
    EXPECT_EQ(connection.deadline, now + repetitions + patience);
  }
}

TEST_F(TransitionsTest, TimeWaitIsTwiceTheLifetimeAndBounded) {
  struct Case {
    std::uint8_t lifetime, expected;
  };
  for (const Case each : {Case{0, 1}, Case{16, 17}, Case{20, 21}, Case{31, 21}}) {
    Connection& connection = active(State::disconnect_received);
    connection.packet_lifetime = each.lifetime;
    transitions.send_disconnect_reply(connection, now, {});
    EXPECT_EQ(attribute_of(only_sent()), Attribute::disconnect_reply);
    EXPECT_EQ(connection.state, State::time_wait);
    EXPECT_EQ(connection.deadline, now + exponential_time(each.expected));
  }
}

TEST_F(TransitionsTest, AConnectionThatIsGivenUpEndsByItsState) {
  Connection& request = active(State::request_sent);
  const ConnectionId request_id = request.id;
  transitions.give_up(request, now);
  EXPECT_EQ(table.find(request_id), nullptr);
  const auto reject = message_of<wire::cm::Reject>(only_sent());
  EXPECT_EQ(reject.reason, static_cast<std::uint16_t>(Reason::timeout));
  EXPECT_EQ(reject.info[7], std::byte{0xA}) << "the GUID names this side";

  Connection& disconnecting = active(State::disconnect_sent);
  transitions.give_up(disconnecting, now);
  EXPECT_EQ(disconnecting.state, State::time_wait);

  Connection& question = active(State::question_sent);
  const ConnectionId question_id = question.id;
  transitions.give_up(question, now);
  EXPECT_EQ(table.find(question_id), nullptr);

  EXPECT_TRUE(sent().empty());
  EXPECT_EQ(events.pull()->kind, Kind::unreachable);
  const auto disconnected = events.pull();
  EXPECT_EQ(disconnected->kind, Kind::disconnected);
  EXPECT_TRUE(disconnected->timed_out);
  EXPECT_EQ(events.pull()->kind, Kind::service_unreachable);
  EXPECT_FALSE(events.pull());
}

TEST_F(TransitionsTest, AReleasedConnectionReportsNothing) {
  Connection& connection = active(State::disconnect_sent);
  connection.is_released = true;
  transitions.give_up(connection, now);
  EXPECT_FALSE(events.pull());
}

}  // namespace
}  // namespace tulle::management::cm

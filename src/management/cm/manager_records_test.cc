// The records that a manager keeps of a connection: for how long, and which messages they answer.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <utility>

#include "management/cm/manager.h"
#include "management/cm/manager_pair_test.h"

namespace tulle::management::cm {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test's own

class ManagerRecords : public ManagerPair {
 protected:
  void disconnect() {
    ASSERT_TRUE(a.disconnect(now, asked, {}));
    exchange();
    event_of(b, Kind::disconnect_request);
    ASSERT_TRUE(b.disconnect(now, answered, {}));
    exchange();
    event_of(a, Kind::disconnected);
  }
};

TEST_F(ManagerRecords, AConnectionIsEstablishedOnce) {
  EXPECT_FALSE(a.establish(now, ConnectionId{5}, {})) << "there is no such connection";
  asked = a.connect(now, request());
  EXPECT_FALSE(a.establish(now, asked, {})) << "no reply has come";
  exchange();
  answered = event_of(b, Kind::request).id;
  EXPECT_FALSE(b.establish(now, answered, {})) << "it is the other side that is asked";
  ASSERT_TRUE(b.accept(now, answered, reply()));
  exchange();
  event_of(a, Kind::reply);
  EXPECT_TRUE(a.establish(now, asked, {}));
  EXPECT_FALSE(a.establish(now, asked, {}));
  EXPECT_EQ(take(a).size(), 1u);
}

// A host whose requests ask to be waited for a minute, fifteen times.
class PatientHost {
 public:
  static inline const Gid address = Gid::from_ipv4(0x0A00'0003);
  static Manager::Settings settings() {
    Manager::Settings settings;
    settings.ca_guid = 0xC;
    settings.random = RandomSource{0xC};
    settings.response_timeout = 24;
    settings.retries_max = 15;
    return settings;
  }
  Manager manager{settings()};
};

TEST_F(ManagerRecords, AnAnswerThatNobodyConfirmsEnds) {
  PatientHost host;
  Request asking = request();
  asking.route.local = PatientHost::address;
  host.manager.connect(now, asking);
  deliver(b, only(host.manager));
  ASSERT_TRUE(b.accept(now, event_of(b, Kind::request).id, reply()));
  Time at = now;
  std::optional<Event> event;
  while (!event && !b.next_deadline().is_never()) {
    at = b.next_deadline();
    b.advance(at);
    event = b.pull_event();
  }
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, Kind::unreachable);
  EXPECT_GT(at - now, Time::seconds(60));
  EXPECT_LE(at - now, Time::seconds(128));
}

TEST_F(ManagerRecords, AnAnsweredRequestThatMadeRoomForAnotherLeavesNoDeadline) {
  Manager::Settings few = settings(0xC);
  few.requested_max = 1;
  Manager host(few);
  host.listen(now, service);
  for (std::uint32_t qp = 1; qp <= 2; ++qp) {
    a.connect(now, request(qp));
    deliver(host, only(a));
    if (qp == 2) event_of(host, Kind::unreachable);
    ASSERT_TRUE(host.accept(now, event_of(host, Kind::request).id, reply()));
  }
  EXPECT_EQ(host.connection_count(), 1u);
  while (!host.next_deadline().is_never()) host.advance(host.next_deadline());
  EXPECT_EQ(host.connection_count(), 0u);
}

// One unanswered connection stays in front of many that come and go.
TEST_F(ManagerRecords, TheListOfUnansweredOnesIsBounded) {
  PatientHost host;
  Request patient = request();
  patient.route.local = PatientHost::address;
  host.manager.connect(now, patient);
  deliver(b, only(host.manager));
  ASSERT_TRUE(b.accept(now, event_of(b, Kind::request).id, reply(0x20)));
  take(b);
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    asked = a.connect(now, request(0x100 + i));
    for (const Outgoing& out : take(a)) deliver(b, out);
    answered = event_of(b, Kind::request).id;
    ASSERT_TRUE(b.accept(now, answered, reply(0x2000 + i)));
    for (const Outgoing& out : take(b)) {
      if (out.route.remote == address_a) deliver(a, out);
    }
    event_of(a, Kind::reply);
    ASSERT_TRUE(a.reject(now, asked, Reason::no_resources, {}));
    for (const Outgoing& out : take(a)) deliver(b, out);
    b.release(now, answered);
    a.release(now, asked);
    advance_by(Time::milliseconds(100));
    take(a);
    while (b.pull_event()) {
    }
  }
  EXPECT_LT(b.connection_count(), 100u);
  EXPECT_LT(b.unanswered_size(), 300u);
}

TEST_F(ManagerRecords, EachServiceIsToldToThePeer) {
  std::uint32_t qp = 0x30;
  for (const Service kind : {Service::rc, Service::uc, Service::xrc}) {
    Request asking = request(qp++);
    asking.service = kind;
    a.connect(now, asking);
    exchange();
    EXPECT_EQ(event_of(b, Kind::request).request.service, kind);
  }
}

// The lifetime is half of the time-out, and there is no less than none.
TEST_F(ManagerRecords, ThePacketsLifetimeFollowsFromTheTimeOut) {
  std::uint32_t qp = 0x40;
  for (const auto& [timeout, lifetime] : {std::pair{0, 0}, {1, 0}, {2, 1}, {31, 30}}) {
    Request asking = request(qp++);
    asking.ack_timeout = timeout & 31;
    a.connect(now, asking);
    exchange();
    EXPECT_EQ(event_of(b, Kind::request).request.packet_lifetime, lifetime);
  }
}

// A peer's answer proves by its transaction ID that it has seen the request, so nobody must guess
// it.
TEST_F(ManagerRecords, TransactionIdsDoNotFollowFromOneAnother) {
  const auto transaction_of = [](const Outgoing& out) {
    wire::MadHeader header;
    std::memcpy(&header, out.bytes.data(), sizeof(header));
    return std::uint64_t{header.transaction_id};
  };
  a.connect(now, request(1));
  const std::uint64_t first = transaction_of(only(a));
  a.connect(now, request(2));
  const std::uint64_t second = transaction_of(only(a));
  ServiceQuestion question;
  question.route = {address_a, address_b, 0};
  a.ask_service(now, question);
  const std::uint64_t third = transaction_of(only(a));
  for (const std::uint64_t id : {first, second, third}) {
    EXPECT_NE(id >> 32, 0u);
    EXPECT_NE(id & 0xFFFF'FFFF, 0u);
  }
  EXPECT_NE(first >> 32, second >> 32);
}

TEST_F(ManagerRecords, AnAnswerToAQuestionHasItsTransactionId) {
  ServiceQuestion question;
  question.route = {address_a, address_b, 0};
  question.service_id = service;
  a.ask_service(now, question);
  const Outgoing asking = only(a);
  deliver(b, asking);
  ASSERT_TRUE(b.answer_service(now, event_of(b, Kind::service_question).id, {}));
  const Outgoing answer = only(b);
  wire::MadHeader asked_header, answer_header;
  std::memcpy(&asked_header, asking.bytes.data(), sizeof(asked_header));
  std::memcpy(&answer_header, answer.bytes.data(), sizeof(answer_header));
  EXPECT_EQ(std::uint64_t{answer_header.transaction_id},
            std::uint64_t{asked_header.transaction_id});
}

TEST_F(ManagerRecords, WhatIsTooShortForAHeaderIsCounted) {
  const std::array<std::byte, 23> bytes{};
  EXPECT_FALSE(b.handle(now, {address_b, address_a, 0}, bytes));
  EXPECT_EQ(b.counters().malformed, 1u);
  EXPECT_EQ(b.counters().received, 0u);
}

TEST_F(ManagerRecords, SharedQueuesAndFlowControlAreToldToThePeer) {
  for (const bool has_srq : {false, true}) {
    Request asking = request();
    asking.srq = has_srq;
    asking.flow_control = !has_srq;
    asked = a.connect(now, asking);
    exchange();
    const Event event = event_of(b, Kind::request);
    EXPECT_EQ(event.request.srq, has_srq);
    EXPECT_EQ(event.request.flow_control, !has_srq);
    Reply answer = reply();
    answer.srq = !has_srq;
    answer.flow_control = has_srq;
    ASSERT_TRUE(b.accept(now, event.id, answer));
    exchange();
    const Event answer_event = event_of(a, Kind::reply);
    EXPECT_EQ(answer_event.reply.srq, !has_srq);
    EXPECT_EQ(answer_event.reply.flow_control, has_srq);
    a.release(now, asked);
    exchange();
    event_of(b, Kind::rejected);
  }
}

// The asking side repeats its request for four times the interval and gives up then. Until then, a
// repetition must not look like a new request.
TEST_F(ManagerRecords, ARejectionIsRememberedForAsLongAsTheRequestMayBeRepeated) {
  asked = a.connect(now, request());
  const Time interval = a.next_deadline() - now;
  deliver(b, only(a));
  ASSERT_TRUE(b.reject(now, event_of(b, Kind::request).id, Reason::consumer, {}));
  EXPECT_EQ(b.next_deadline(), now + interval * 4);
}

TEST_F(ManagerRecords, LateCopiesAfterADisconnectionAreNotAnswered) {
  asked = a.connect(now, request());
  const Outgoing asking = only(a);
  deliver(b, asking);
  answered = event_of(b, Kind::request).id;
  ASSERT_TRUE(b.accept(now, answered, reply()));
  const Outgoing answer = only(b);
  deliver(a, answer);
  event_of(a, Kind::reply);
  ASSERT_TRUE(a.establish(now, asked, {}));
  exchange();
  event_of(b, Kind::established);
  disconnect();
  const std::uint64_t before = a.counters().duplicates + b.counters().duplicates;
  deliver(b, asking);
  deliver(a, answer);
  EXPECT_TRUE(take(a).empty());
  EXPECT_TRUE(take(b).empty());
  EXPECT_EQ(a.counters().duplicates + b.counters().duplicates, before + 2);
  expect_silence();
}

TEST_F(ManagerRecords, ARepeatedWishToDisconnectIsCountedAndToldOnce) {
  connect();
  ASSERT_TRUE(a.disconnect(now, asked, {}));
  const Outgoing wish = only(a);
  for (int i = 0; i < 3; ++i) deliver(b, wish);
  event_of(b, Kind::disconnect_request);
  EXPECT_FALSE(b.pull_event());
  EXPECT_EQ(b.counters().duplicates, 2u);
}

// A connection that is over leaves the record of the next one of the same queue pair alone.
TEST_F(ManagerRecords, AQueuePairMayConnectAgainWhileTheLastConnectionIsRemembered) {
  connect();
  disconnect();
  connect();
  advance_by(Time::seconds(1));  // the first is forgotten
  event_of(a, Kind::time_wait_over);
  event_of(b, Kind::time_wait_over);
  // A request of a queue pair that is connected shows that the peer has lost the connection.
  a.connect(now, request());
  exchange();
  event_of(a, Kind::disconnect_request);
  EXPECT_EQ(event_of(a, Kind::rejected).reason, Reason::stale_connection);
}

// IBTA 12.6.7.2: a REJ says which message it rejects.
TEST_F(ManagerRecords, ARejectionNamesWhatIsRejected) {
  const auto subject_of = [](const Outgoing& out) {
    return wire::cm::Reject::Message::of(message_of<wire::cm::Reject>(out).message);
  };
  Request wrong = request();
  wrong.service_id = service + 1;
  a.connect(now, wrong);
  deliver(b, only(a));
  EXPECT_EQ(subject_of(only(b)), static_cast<unsigned>(wire::cm::Subject::request));
  wire::cm::Reply unasked;
  unasked.local_id = 5;
  unasked.remote_id = 6;
  const wire::cm::Mad<wire::cm::Reply> mad{wire::cm::header_of(Attribute::reply, 7), unasked};
  Outgoing out{{address_b, address_a, 0}, {}};
  std::memcpy(out.bytes.data(), &mad, sizeof(mad));
  deliver(a, out);
  EXPECT_EQ(subject_of(only(a)), static_cast<unsigned>(wire::cm::Subject::reply));
}

// Room is made for a new connection by forgetting a released one: one that is over, or else one
// whose peer has not answered its DREQ.
TEST_F(ManagerRecords, OnlyReleasedConnectionsMakeRoom) {
  Manager::Settings few = settings(0xC);
  few.connections_max = 2;
  Manager c(few);
  std::swap(a, c);
  connect();
  const ConnectionId kept = asked;
  asked = a.connect(now, request(0x12));
  take(a);
  EXPECT_EQ(a.connect(now, request(0x13)), ConnectionId{}) << "both have owners";
  a.release(now, kept);  // it asks for the disconnection, and nobody answers
  EXPECT_NE(a.connect(now, request(0x13)), ConnectionId{});
  EXPECT_EQ(a.connection_count(), 2u);
}

// What is over goes before what still has a peer to wait for.
TEST_F(ManagerRecords, WhatIsOverMakesRoomFirst) {
  Manager::Settings few = settings(0xC);
  few.connections_max = 2;
  Manager c(few);
  std::swap(a, c);
  connect();
  a.release(now, asked);
  const Outgoing wish = only(a);
  a.connect(now, request(0x12));
  exchange();
  ASSERT_TRUE(b.reject(now, event_of(b, Kind::request).id, Reason::consumer, {}));
  exchange();
  event_of(a, Kind::rejected);
  ASSERT_NE(a.connect(now, request(0x13)), ConnectionId{});
  take(a);
  deliver(b, wish);
  event_of(b, Kind::disconnect_request);
  ASSERT_TRUE(b.disconnect(now, answered, {}));
  deliver(a, only(b));
  EXPECT_EQ(a.counters().unknown, 0u) << "the connection that waits for its answer has stayed";
}

// The number of a queue pair may be another user's by then.
TEST_F(ManagerRecords, AQueuePairMayConnectWhileAProgramHasNotNoticedThatItLeft) {
  connect();
  ASSERT_TRUE(a.disconnect(now, asked, {}));
  exchange();
  event_of(b, Kind::disconnect_request);  // which b's program does not answer
  a.connect(now, request());
  exchange();
  event_of(b, Kind::request);
}

TEST_F(ManagerRecords, ARequestThatWaitsForItsProgramIsNotInTheWayOfTheNext) {
  for (int i = 0; i < 2; ++i) {
    a.connect(now, request());
    exchange();
    event_of(b, Kind::request);
  }
  EXPECT_FALSE(a.pull_event()) << "neither is refused";
}

TEST_F(ManagerRecords, QueuePairZeroIsNobodys) {
  asked = a.connect(now, request(0));
  exchange();
  const ConnectionId answered = event_of(b, Kind::request).id;
  ASSERT_TRUE(b.accept(now, answered, reply(0)));
  exchange();
  event_of(a, Kind::reply);
  ASSERT_TRUE(a.establish(now, asked, {}));
  exchange();
  event_of(b, Kind::established);
  a.connect(now, request(0));
  exchange();
  event_of(b, Kind::request);
  EXPECT_FALSE(b.pull_event()) << "the first goes on";
}

}  // namespace
}  // namespace tulle::management::cm

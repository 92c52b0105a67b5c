// Tests each message as past, expected, future and malformed, and the connection's further life.

#include "management/cm/manager.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "management/cm/manager_pair_test.h"

namespace tulle::management::cm {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test's own
using ManagerTest = testing::ManagerPair;

TEST_F(ManagerTest, EverythingThatWasSaidIsHeard) {
  asked = a.connect(now, request());
  exchange();
  const Event asking = event_of(b, Kind::request);
  EXPECT_EQ(asking.request.route.local, address_b);
  EXPECT_EQ(asking.request.route.remote, address_a);
  EXPECT_EQ(asking.request.service_id, service);
  EXPECT_EQ(asking.request.qp, QpNumber{0x11});
  EXPECT_EQ(asking.request.starting_psn, Psn{100});
  EXPECT_EQ(asking.request.responder_resources, 3);
  EXPECT_EQ(asking.request.initiator_depth, 5);
  EXPECT_EQ(asking.request.retry_count, 7);
  EXPECT_EQ(asking.request.rnr_retry_count, 6);
  EXPECT_EQ(asking.request.path_mtu, 3);
  EXPECT_EQ(asking.request.packet_lifetime, 16);
  EXPECT_EQ(asking.request.private_data.size, 92);
  EXPECT_EQ(std::memcmp(asking.request.private_data.bytes.data(), "question", 8), 0);
  ASSERT_TRUE(b.accept(now, asking.id, reply()));
  EXPECT_FALSE(b.accept(now, asking.id, reply()));
  exchange();
  const Event answer = event_of(a, Kind::reply);
  EXPECT_EQ(answer.id, asked);
  EXPECT_EQ(answer.reply.qp, QpNumber{0x22});
  EXPECT_EQ(answer.reply.starting_psn, Psn{200});
  EXPECT_EQ(answer.reply.responder_resources, 2);
  EXPECT_EQ(answer.reply.initiator_depth, 1);
  EXPECT_EQ(answer.reply.rnr_retry_count, 4);
  EXPECT_EQ(answer.reply.target_ack_delay, 15);
  EXPECT_EQ(answer.reply.private_data.size, 196);
  EXPECT_EQ(std::memcmp(answer.reply.private_data.bytes.data(), "answer", 6), 0);
  ASSERT_TRUE(a.establish(now, asked, bytes_of("ready")));
  exchange();
  const Event ready = event_of(b, Kind::established);
  EXPECT_EQ(std::memcmp(ready.private_data.bytes.data(), "ready", 5), 0);
  ASSERT_TRUE(a.disconnect(now, asked, bytes_of("bye")));
  EXPECT_FALSE(a.disconnect(now, asked, {}));
  exchange();
  const Event bye = event_of(b, Kind::disconnect_request);
  EXPECT_EQ(std::memcmp(bye.private_data.bytes.data(), "bye", 3), 0);
  ASSERT_TRUE(b.disconnect(now, asking.id, {}));
  exchange();
  EXPECT_FALSE(event_of(a, Kind::disconnected).timed_out);
  advance_by(Time::seconds(1));
  event_of(a, Kind::time_wait_over);
  event_of(b, Kind::time_wait_over);
  expect_silence();
  expect_empty();
}

TEST_F(ManagerTest, ALostRequestIsSentAgain) {
  asked = a.connect(now, request());
  const Outgoing first = only(a);
  EXPECT_EQ(a.next_deadline(), now + exponential_time(20) + exponential_time(16) * 2);
  now = a.next_deadline();
  a.advance(now);
  EXPECT_EQ(only(a).bytes, first.bytes);
  EXPECT_EQ(a.counters().retransmitted, 1u);
}

TEST_F(ManagerTest, NobodyAnswersARequest) {
  asked = a.connect(now, request());
  for (int i = 0; i < 3; ++i) {
    now = a.next_deadline();
    a.advance(now);
  }
  EXPECT_FALSE(a.pull_event());
  EXPECT_EQ(take(a).size(), 4u);
  now = a.next_deadline();
  a.advance(now);
  event_of(a, Kind::unreachable);
  const auto reject = message_of<wire::cm::Reject>(only(a));
  EXPECT_EQ(reject.reason, static_cast<std::uint16_t>(Reason::timeout));
  expect_empty();
}

TEST_F(ManagerTest, ADoubledRequestGetsTheSameAnswer) {
  asked = a.connect(now, request());
  const Outgoing copy = only(a);
  deliver(b, copy);
  event_of(b, Kind::request);
  deliver(b, copy);  // the program has not decided yet
  const auto mra = message_of<wire::cm::MessageReceiptAcknowledgement>(only(b));
  EXPECT_EQ(wire::cm::MessageReceiptAcknowledgement::ServiceTimeout::of(mra.service_timeout), 24);
  EXPECT_FALSE(b.pull_event());
  EXPECT_EQ(b.connection_count(), 1u);
}

TEST_F(ManagerTest, AReplyIsRepeatedForADoubledRequest) {
  asked = a.connect(now, request());
  const Outgoing copy = only(a);
  deliver(b, copy);
  ASSERT_TRUE(b.accept(now, event_of(b, Kind::request).id, reply()));
  const Outgoing answer = only(b);
  deliver(b, copy);
  EXPECT_EQ(only(b).bytes, answer.bytes);
  deliver(a, answer);
  event_of(a, Kind::reply);
  deliver(a, answer);  // a duplicate REP: the program has not decided yet
  message_of<wire::cm::MessageReceiptAcknowledgement>(only(a));
  ASSERT_TRUE(a.establish(now, asked, {}));
  const Outgoing ready = only(a);
  deliver(a, answer);
  EXPECT_EQ(only(a).bytes, ready.bytes);
  deliver(b, ready);
  event_of(b, Kind::established);
  deliver(b, ready);
  deliver(b, copy);
  EXPECT_TRUE(take(b).empty());
  expect_silence();
}

TEST_F(ManagerTest, PatienceIsGranted) {
  asked = a.connect(now, request());
  const Outgoing copy = only(a);
  deliver(b, copy);
  deliver(b, copy);
  deliver(a, only(b));
  EXPECT_GT(a.next_deadline(), now + Time::seconds(68));
  // The patience ends.
  for (int i = 0; i < 4; ++i) advance_by(long_enough);
  event_of(a, Kind::unreachable);
}

// IBTA 12.6.6: an MRA asks the sender for so much more time, beyond the time for a response.
TEST_F(ManagerTest, PatienceIsWhatWasAskedForUpToALimit) {
  asked = a.connect(now, request());
  take(a);
  const Time interval = a.next_deadline() - now;
  const auto deadline_after = [&](std::uint8_t service_timeout) {
    using Message = wire::cm::MessageReceiptAcknowledgement;
    Message message;
    message.local_id = 0x77;
    message.remote_id = asked.value;
    Message::Message::set(message.message, static_cast<unsigned>(wire::cm::Subject::request));
    Message::ServiceTimeout::set(message.service_timeout, service_timeout);
    const wire::cm::Mad<Message> mad{wire::cm::header_of(Message::attribute, 7), message};
    Outgoing out{{address_b, address_a, 0}, {}};
    std::memcpy(out.bytes.data(), &mad, sizeof(mad));
    deliver(a, out);
    return a.next_deadline();
  };
  now += Time::seconds(1);
  EXPECT_EQ(deadline_after(10), now + exponential_time(10) + interval);
  EXPECT_EQ(deadline_after(24), now + exponential_time(24) + interval);
  EXPECT_EQ(deadline_after(31), now + exponential_time(24) + interval) << "69 s are enough";
  EXPECT_TRUE(take(a).empty());
}

TEST_F(ManagerTest, AReplyThatNobodyConfirms) {
  asked = a.connect(now, request());
  exchange();
  answered = event_of(b, Kind::request).id;
  ASSERT_TRUE(b.accept(now, answered, reply()));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(message_of<wire::cm::Reply>(only(b)).local_id, answered.value);
    now = b.next_deadline();
    b.advance(now);
  }
  event_of(b, Kind::unreachable);
  deliver(a, only(b));  // a REJ, by which the peer learns of it
  EXPECT_EQ(event_of(a, Kind::rejected).reason, Reason::timeout);
  advance_by(long_enough);
  expect_empty();
}

TEST_F(ManagerTest, NobodyOffersTheService) {
  Request wrong = request();
  wrong.service_id = service + 1;
  asked = a.connect(now, wrong);
  exchange();
  const Event event = event_of(a, Kind::rejected);
  EXPECT_EQ(event.reason, Reason::invalid_service_id);
  expect_silence();
  expect_empty();
}

TEST_F(ManagerTest, AServiceThatIsOfferedNoMore) {
  b.listen(now, service);
  b.stop_listening(service);  // the service was offered twice
  asked = a.connect(now, request());
  exchange();
  event_of(b, Kind::request);
  b.stop_listening(service);
  a.connect(now, request(0x12));
  exchange();
  EXPECT_EQ(event_of(a, Kind::rejected).reason, Reason::invalid_service_id);
}

TEST_F(ManagerTest, ARejectionIsRepeated) {
  asked = a.connect(now, request());
  const Outgoing copy = only(a);
  deliver(b, copy);
  const ConnectionId id = event_of(b, Kind::request).id;
  ASSERT_TRUE(b.reject(now, id, Reason::consumer, bytes_of("no")));
  EXPECT_FALSE(b.reject(now, id, Reason::consumer, {}));
  const Outgoing no = only(b);
  deliver(b, copy);
  EXPECT_EQ(only(b).bytes, no.bytes);
  deliver(a, no);
  const Event event = event_of(a, Kind::rejected);
  EXPECT_EQ(event.reason, Reason::consumer);
  EXPECT_EQ(std::memcmp(event.private_data.bytes.data(), "no", 2), 0);
  deliver(a, no);
  expect_silence();
  advance_by(long_enough);
  expect_silence();
  expect_empty();
}

TEST_F(ManagerTest, AReplyIsRejected) {
  asked = a.connect(now, request());
  exchange();
  answered = event_of(b, Kind::request).id;
  ASSERT_TRUE(b.accept(now, answered, reply()));
  exchange();
  event_of(a, Kind::reply);
  ASSERT_TRUE(a.reject(now, asked, Reason::consumer, {}));
  exchange();
  EXPECT_EQ(event_of(b, Kind::rejected).id, answered);
  advance_by(long_enough);
  expect_silence();
  expect_empty();
}

TEST_F(ManagerTest, RepliesToNobodyAreRejected) {
  asked = a.connect(now, request());
  exchange();
  a.release(now, asked);
  answered = event_of(b, Kind::request).id;
  ASSERT_TRUE(b.accept(now, answered, reply()));
  const Outgoing answer = only(b);
  take(a);  // its REJ is lost
  deliver(a, answer);
  deliver(b, only(a));
  EXPECT_EQ(event_of(b, Kind::rejected).reason, Reason::invalid_communication_id);
  advance_by(long_enough);
  expect_empty();
}

TEST_F(ManagerTest, WhoGivesUpTellsWhoHasNotAnswered) {
  asked = a.connect(now, request());
  exchange();
  event_of(b, Kind::request);
  a.release(now, asked);
  exchange();  // the REJ has only the sender's ID and GUID
  EXPECT_EQ(event_of(b, Kind::rejected).reason, Reason::timeout);
  advance_by(long_enough);
  expect_silence();
  expect_empty();
}

TEST_F(ManagerTest, DisconnectingIsAnsweredAgain) {
  connect();
  ASSERT_TRUE(a.disconnect(now, asked, {}));
  const Outgoing wish = only(a);
  deliver(b, wish);
  event_of(b, Kind::disconnect_request);
  deliver(b, wish);
  EXPECT_FALSE(b.pull_event());
  ASSERT_TRUE(b.disconnect(now, answered, {}));
  take(b);  // its answer is lost
  deliver(b, wish);
  deliver(a, only(b));
  event_of(a, Kind::disconnected);
  advance_by(long_enough);
  event_of(b, Kind::time_wait_over);
  // Much later, a manager without the connection still answers.
  deliver(b, wish);
  EXPECT_EQ(message_of<wire::cm::DisconnectReply>(only(b)).remote_id, asked.value);
}

TEST_F(ManagerTest, DisconnectingWithoutAnAnswer) {
  connect();
  ASSERT_TRUE(a.disconnect(now, asked, {}));
  for (int i = 0; i < 4; ++i) {
    now = a.next_deadline();
    a.advance(now);
  }
  EXPECT_TRUE(event_of(a, Kind::disconnected).timed_out);
  now = a.next_deadline();
  a.advance(now);
  event_of(a, Kind::time_wait_over);
  EXPECT_EQ(a.connection_count(), 0u);
}

// The repetitions of one message are not those of the next.
TEST_F(ManagerTest, DisconnectingHasAllItsRetriesWhateverConnectingTook) {
  asked = a.connect(now, request());
  for (int i = 0; i < 3; ++i) {
    take(a);  // the request is lost
    now = a.next_deadline();
    a.advance(now);
  }
  exchange();
  answered = event_of(b, Kind::request).id;
  ASSERT_TRUE(b.accept(now, answered, reply()));
  exchange();
  event_of(a, Kind::reply);
  ASSERT_TRUE(a.establish(now, asked, {}));
  exchange();
  ASSERT_TRUE(a.disconnect(now, asked, {}));
  for (int i = 0; i < 3; ++i) {
    now = a.next_deadline();
    a.advance(now);
  }
  EXPECT_FALSE(a.pull_event());
  const auto wishes = take(a);
  ASSERT_EQ(wishes.size(), 4u);
  for (const Outgoing& wish : wishes) EXPECT_EQ(attribute_of(wish), Attribute::disconnect_request);
  now = a.next_deadline();
  a.advance(now);
  EXPECT_TRUE(event_of(a, Kind::disconnected).timed_out);
}

// IBTA 12.6: a response has its request's transaction ID. Some peers choose one for each DREQ.
TEST_F(ManagerTest, AnAnswerToADisconnectionHasItsTransactionId) {
  for (const bool both_at_once : {false, true}) {
    Manager c(settings(0xC)), d(settings(0xD));
    std::swap(a, c), std::swap(b, d);
    b.listen(now, service);
    connect();
    ASSERT_TRUE(a.disconnect(now, asked, {}));
    Outgoing wish = only(a);
    const auto transaction_of_answer_to = [&](std::uint64_t id) {
      wire::MadHeader header;
      std::memcpy(&header, wish.bytes.data(), sizeof(header));
      header.transaction_id = id;
      std::memcpy(wish.bytes.data(), &header, sizeof(header));
      deliver(b, wish);
      b.disconnect(now, answered, {});  // the program agrees, if it is asked
      const Outgoing out = only(b);
      EXPECT_EQ(attribute_of(out), Attribute::disconnect_reply);
      std::memcpy(&header, out.bytes.data(), sizeof(header));
      return std::uint64_t{header.transaction_id};
    };
    if (both_at_once) {
      ASSERT_TRUE(b.disconnect(now, answered, {}));
      take(b);
    }
    EXPECT_EQ(transaction_of_answer_to(0x1111), 0x1111u);
    EXPECT_EQ(transaction_of_answer_to(0x2222), 0x2222u) << "in time wait";
    b.advance(now + long_enough);
    EXPECT_EQ(b.connection_count(), 0u);
    EXPECT_EQ(transaction_of_answer_to(0x3333), 0x3333u) << "the connection is forgotten";
  }
}

TEST_F(ManagerTest, BothDisconnectAtOnce) {
  connect();
  ASSERT_TRUE(a.disconnect(now, asked, {}));
  ASSERT_TRUE(b.disconnect(now, answered, {}));
  exchange();
  event_of(a, Kind::disconnected);
  event_of(b, Kind::disconnected);
  expect_silence();
  advance_by(long_enough);
  event_of(a, Kind::time_wait_over);
  event_of(b, Kind::time_wait_over);
  expect_empty();
}

TEST_F(ManagerTest, DisconnectingOvertakesTheConfirmation) {
  asked = a.connect(now, request());
  exchange();
  answered = event_of(b, Kind::request).id;
  ASSERT_TRUE(b.accept(now, answered, reply()));
  exchange();
  event_of(a, Kind::reply);
  ASSERT_TRUE(a.establish(now, asked, {}));
  const Outgoing ready = only(a);
  ASSERT_TRUE(a.disconnect(now, asked, {}));
  exchange();
  event_of(b, Kind::disconnect_request);
  deliver(b, ready);
  expect_silence();
  ASSERT_TRUE(b.disconnect(now, answered, {}));
  exchange();
  event_of(a, Kind::disconnected);
}

TEST_F(ManagerTest, APacketIsAsGoodAsAConfirmation) {
  asked = a.connect(now, request());
  exchange();
  answered = event_of(b, Kind::request).id;
  EXPECT_FALSE(b.notify_established(now, answered));
  ASSERT_TRUE(b.accept(now, answered, reply()));
  ASSERT_TRUE(b.notify_established(now, answered));
  event_of(b, Kind::established);
  EXPECT_FALSE(b.notify_established(now, answered));
  EXPECT_TRUE(b.next_deadline().is_never());
  exchange();
  event_of(a, Kind::reply);
  ASSERT_TRUE(a.establish(now, asked, {}));
  exchange();
  expect_silence();
}

TEST_F(ManagerTest, AConnectionThatIsLetGoDisconnects) {
  connect();
  a.release(now, asked);
  exchange();
  event_of(b, Kind::disconnect_request);
  b.release(now, answered);
  exchange();
  expect_silence();
  advance_by(long_enough);
  expect_silence();
  expect_empty();
}

TEST_F(ManagerTest, AQueuePairThatForgotItsConnection) {
  connect();
  const ConnectionId again = a.connect(now, request());
  exchange();
  EXPECT_EQ(event_of(a, Kind::disconnect_request).id, asked);
  const Event refused = event_of(a, Kind::rejected);
  EXPECT_EQ(refused.id, again);
  EXPECT_EQ(refused.reason, Reason::stale_connection);
  ASSERT_TRUE(a.disconnect(now, asked, {}));
  exchange();
  event_of(b, Kind::disconnected);
  // The queue pair is free now.
  a.connect(now, request());
  exchange();
  event_of(b, Kind::request);
}

TEST_F(ManagerTest, ARequestThatIsPassedOverComesAgain) {
  asked = a.connect(now, request());
  exchange();
  const ConnectionId first = event_of(b, Kind::request).id;
  ASSERT_TRUE(b.pass_over(first));
  EXPECT_FALSE(b.pass_over(first));
  EXPECT_EQ(b.connection_count(), 0u);
  EXPECT_EQ(b.index_size(), 0u);
  exchange();
  expect_silence();
  advance_by(a.next_deadline() - now);
  exchange();
  EXPECT_TRUE(b.accept(now, event_of(b, Kind::request).id, reply()));
  exchange();
  event_of(a, Kind::reply);
  EXPECT_FALSE(a.pass_over(asked));
}

TEST_F(ManagerTest, TooManyConnections) {
  Manager::Settings few = settings(0xC);
  few.connections_max = 1;
  Manager c(few);
  c.listen(now, service);
  a.connect(now, request(1));
  a.connect(now, request(2));
  for (const Outgoing& out : take(a)) deliver(c, out);
  EXPECT_EQ(c.connect(now, request()), ConnectionId{});
  event_of(c, Kind::request);
  EXPECT_FALSE(c.pull_event());
  deliver(a, only(c));
  EXPECT_EQ(event_of(a, Kind::rejected).reason, Reason::no_resources);
}

TEST_F(ManagerTest, RequestsThatMakeNoSense) {
  const auto reason_for = [&](auto change) {
    take(a);
    a.connect(now, request());
    Outgoing out = only(a);
    wire::cm::Mad<wire::cm::Request> mad;
    std::memcpy(&mad, out.bytes.data(), sizeof(mad));
    change(mad.message);
    std::memcpy(out.bytes.data(), &mad, sizeof(mad));
    deliver(b, out);
    return message_of<wire::cm::Reject>(only(b)).reason;
  };
  using Message = wire::cm::Request;
  EXPECT_EQ(reason_for([](Message& m) { Message::PathMtu::set(m.mtu, 0); }), 26);
  EXPECT_EQ(reason_for([](Message& m) { Message::PathMtu::set(m.mtu, 6); }), 26);
  EXPECT_EQ(reason_for(
                [](Message& m) { Message::ServiceType::set(m.service_type, Message::service_rd); }),
            9);
  EXPECT_EQ(reason_for([](Message& m) {
              Message::ServiceType::set(m.service_type, Message::service_extended);
            }),
            9);
  EXPECT_EQ(b.connection_count(), 0u);
  // The shortest path MTU is 256 bytes.
  take(a);
  a.connect(now, request());
  Outgoing out = only(a);
  wire::cm::Mad<wire::cm::Request> mad;
  std::memcpy(&mad, out.bytes.data(), sizeof(mad));
  Message::PathMtu::set(mad.message.mtu, 1);
  std::memcpy(out.bytes.data(), &mad, sizeof(mad));
  deliver(b, out);
  EXPECT_TRUE(take(b).empty()) << "it waits for the program";
  EXPECT_EQ(b.connection_count(), 1u);
}

TEST_F(ManagerTest, MalformedMessagesAreCountedAndDropped) {
  a.connect(now, request());
  const Outgoing good = only(a);
  const auto refused = [&](auto change, std::size_t bytes = wire::mad_bytes) {
    Outgoing out = good;
    wire::MadHeader header;
    std::memcpy(&header, out.bytes.data(), sizeof(header));
    change(header);
    std::memcpy(out.bytes.data(), &header, sizeof(header));
    const auto before = b.counters().malformed;
    const bool is_ours =
        b.handle(now, {address_b, address_a, 0}, std::span(out.bytes).first(bytes));
    EXPECT_EQ(b.connection_count(), 0u);
    EXPECT_TRUE(take(b).empty());
    return is_ours && b.counters().malformed == before + 1;
  };
  const auto as_it_is = [](wire::MadHeader&) {};
  EXPECT_TRUE(refused(as_it_is, 255));
  EXPECT_TRUE(refused(as_it_is, 24));
  EXPECT_FALSE(refused(as_it_is, 23));  // its class cannot be read
  EXPECT_TRUE(refused([](wire::MadHeader& h) { h.base_version = 2; }));
  EXPECT_TRUE(refused([](wire::MadHeader& h) { h.class_version = 1; }));
  EXPECT_TRUE(refused([](wire::MadHeader& h) { h.method = 1; }));
  EXPECT_TRUE(refused([](wire::MadHeader& h) { h.attribute_id = 0x0020; }));
  EXPECT_FALSE(refused([](wire::MadHeader& h) { h.management_class = 4; }));  // another class
}

TEST_F(ManagerTest, MessagesOfNoConnection) {
  const auto answer_to = [&](const auto& message) {
    using Message = std::remove_cvref_t<decltype(message)>;
    const wire::cm::Mad<Message> mad{wire::cm::header_of(Message::attribute, 7), message};
    Outgoing out{{address_a, address_b, 0}, {}};
    std::memcpy(out.bytes.data(), &mad, sizeof(mad));
    deliver(b, out);
    return take(b);
  };
  wire::cm::ReadyToUse ready;
  ready.remote_id = 5;
  EXPECT_TRUE(answer_to(ready).empty());
  wire::cm::DisconnectReply gone;
  gone.remote_id = 5;
  EXPECT_TRUE(answer_to(gone).empty());
  wire::cm::Reject reject;
  reject.remote_id = 5;
  EXPECT_TRUE(answer_to(reject).empty());
  wire::cm::MessageReceiptAcknowledgement mra;
  mra.remote_id = 5;
  EXPECT_TRUE(answer_to(mra).empty());
  EXPECT_TRUE(answer_to(wire::cm::ServiceIdReply{}).empty());
  EXPECT_TRUE(answer_to(wire::cm::AlternatePathResponse{}).empty());
  wire::cm::LoadAlternatePath path;
  path.local_id = 9;
  const auto answers = answer_to(path);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(message_of<wire::cm::AlternatePathResponse>(answers[0]).status, 1);
  EXPECT_FALSE(b.pull_event());
  EXPECT_GE(b.counters().unknown, 6u);
  EXPECT_EQ(b.counters().malformed, 0u);
}

TEST_F(ManagerTest, OneWhoKnowsOnlyOneNumberIsNotHeard) {
  connect();
  const auto deliver_with_wrong_number = [&](auto message) {
    using Message = decltype(message);
    message.local_id = asked.value + 1;
    message.remote_id = answered.value;
    const wire::cm::Mad<Message> mad{wire::cm::header_of(Message::attribute, 7), message};
    Outgoing out{{address_a, address_b, 0}, {}};
    std::memcpy(out.bytes.data(), &mad, sizeof(mad));
    deliver(b, out);
    take(b);
  };
  deliver_with_wrong_number(wire::cm::DisconnectRequest{});
  deliver_with_wrong_number(wire::cm::Reject{});
  expect_silence();
  // A sender that knows both IDs but not the queue pair is ignored too.
  wire::cm::DisconnectRequest wrong_qp;
  wrong_qp.local_id = asked.value;
  wrong_qp.remote_id = answered.value;
  wrong_qp.remote_qp = 0x23;
  const wire::cm::Mad<wire::cm::DisconnectRequest> mad{
      wire::cm::header_of(Attribute::disconnect_request, 7), wrong_qp};
  Outgoing out{{address_a, address_b, 0}, {}};
  std::memcpy(out.bytes.data(), &mad, sizeof(mad));
  deliver(b, out);
  expect_silence();
}

TEST_F(ManagerTest, AlternatePathsAreRefused) {
  connect();
  wire::cm::LoadAlternatePath path;
  path.local_id = asked.value;
  path.remote_id = answered.value;
  const wire::cm::Mad<wire::cm::LoadAlternatePath> mad{
      wire::cm::header_of(Attribute::load_alternate_path, 7), path};
  Outgoing out{{address_a, address_b, 0}, {}};
  std::memcpy(out.bytes.data(), &mad, sizeof(mad));
  deliver(b, out);
  EXPECT_EQ(message_of<wire::cm::AlternatePathResponse>(only(b)).status, 2);
  expect_silence();
}

ServiceQuestion question() {
  ServiceQuestion question;
  question.route = {address_a, address_b, 0};
  question.service_id = service;
  question.private_data = PrivateData(bytes_of("which?"));
  return question;
}

TEST_F(ManagerTest, AServiceHasAQueuePair) {
  const ConnectionId id = a.ask_service(now, question());
  const Outgoing copy = only(a);
  deliver(b, copy);
  const Event event = event_of(b, Kind::service_question);
  EXPECT_EQ(event.request.service_id, service);
  EXPECT_EQ(event.request.private_data.size, 216);
  deliver(b, copy);
  EXPECT_FALSE(b.pull_event());
  take(b);
  ServiceAnswer answer;
  answer.qp = QpNumber{0x77};
  answer.qkey = Qkey{0x1234};
  answer.private_data = PrivateData(bytes_of("this"));
  ASSERT_TRUE(b.answer_service(now, event.id, answer));
  EXPECT_FALSE(b.answer_service(now, event.id, answer));
  take(b);           // the answer is lost
  deliver(b, copy);  // the peer asks again
  const Outgoing reply = only(b);
  deliver(a, reply);
  const Event answered_event = event_of(a, Kind::service_answer);
  EXPECT_EQ(answered_event.id, id);
  EXPECT_EQ(answered_event.answer.qp, QpNumber{0x77});
  EXPECT_EQ(answered_event.answer.qkey, Qkey{0x1234});
  EXPECT_EQ(answered_event.answer.status, wire::cm::ServiceStatus::valid);
  deliver(a, reply);
  advance_by(long_enough);
  expect_silence();
  expect_empty();
}

TEST_F(ManagerTest, AServiceThatNobodyHas) {
  ServiceQuestion other = question();
  other.service_id = 1;
  a.ask_service(now, other);
  exchange();
  EXPECT_EQ(event_of(a, Kind::service_answer).answer.status,
            wire::cm::ServiceStatus::unsupported_service);
  a.ask_service(now, question());
  exchange();
  b.release(now, event_of(b, Kind::service_question).id);
  exchange();
  EXPECT_EQ(event_of(a, Kind::service_answer).answer.status, wire::cm::ServiceStatus::rejected);
  a.ask_service(now, question());
  for (int i = 0; i < 4; ++i) advance_by(long_enough);
  event_of(a, Kind::service_unreachable);
  advance_by(long_enough);
  expect_empty();
}

}  // namespace
}  // namespace tulle::management::cm

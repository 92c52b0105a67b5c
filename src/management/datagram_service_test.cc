#include "management/datagram_service.h"

#include <gtest/gtest.h>

#include <optional>

#include "management/mad_test.h"
#include "rdma/wire/rmpp.h"

namespace tulle::management {
namespace {

using Refusal = DatagramService::Refusal;

constexpr Time now = Time::seconds(1);
constexpr std::uint8_t vendor_class = 0x32;

Registration listens_to(std::uint8_t management_class, std::uint8_t method) {
  Registration registration;
  registration.management_class = management_class;
  registration.class_version = 1;
  registration.methods.set(method);
  return registration;
}

Registration asks_only(std::uint8_t management_class) {
  Registration registration;
  registration.management_class = management_class;
  registration.class_version = 1;
  return registration;
}

Packet packet_of(const Mad& mad) {
  Packet packet;
  packet.source = Lid(1);
  packet.destination = Lid(2);
  packet.mad = mad;
  return packet;
}

DatagramService::Question question_of(std::uint32_t agent, Time timeout = {},
                                      std::uint32_t retries = 0) {
  DatagramService::Question question;
  question.agent = agent;
  question.packet = packet_of(request_of(wire::subnet_class, method_get, 0x11));
  question.timeout = timeout;
  question.retries = retries;
  return question;
}

Packet answered(Packet packet) {
  packet = answer_to(packet);
  wire::MadHeader header = header_of(packet.mad);
  header.method = method_get_response;
  set_header(packet.mad, header);
  return packet;
}

TEST(DatagramService, AnAnswerFindsItsQuestion) {
  DatagramService service;
  const auto first = service.add(7, asks_only(wire::subnet_class));
  const auto second = service.add(8, asks_only(wire::subnet_class));
  ASSERT_EQ(first.refusal, Refusal::none);
  ASSERT_EQ(second.refusal, Refusal::none);
  EXPECT_EQ(service.send(now, 7, question_of(first.agent, Time::seconds(1))), Refusal::none);
  EXPECT_EQ(service.send(now, 8, question_of(second.agent, Time::seconds(1))), Refusal::none);
  const auto of_first = service.take_packet();
  const auto of_second = service.take_packet();
  ASSERT_TRUE(of_first && of_second);
  // Both programs chose the same transaction ID. The upper half tells them apart, and the lower one
  // stays as it was.
  const std::uint64_t a = header_of(of_first->mad).transaction_id;
  const std::uint64_t b = header_of(of_second->mad).transaction_id;
  EXPECT_NE(a >> 32, b >> 32);
  EXPECT_EQ(a & 0xFFFF'FFFF, 0x5566'7788u);
  const auto delivery = service.receive(now, answered(*of_second));
  ASSERT_TRUE(delivery);
  EXPECT_EQ(delivery->client, 8u);
  EXPECT_FALSE(service.receive(now, answered(*of_second)));  // there is one answer
  EXPECT_TRUE(service.receive(now, answered(*of_first)));
  EXPECT_TRUE(service.next_timeout().is_never());
}

TEST(DatagramService, AnAnswerComesFromTheLidThatWasAsked) {
  DatagramService service;
  constexpr std::uint8_t administration_class = 0x03;
  const auto added = service.add(7, asks_only(administration_class));
  auto question = question_of(added.agent, Time::seconds(1));
  question.packet.mad = request_of(administration_class, method_get, 0x35);
  EXPECT_EQ(service.send(now, 7, question), Refusal::none);
  Packet answer = answered(*service.take_packet());
  answer.source = Lid(3);  // another port that has seen the question, or guesses
  EXPECT_FALSE(service.receive(now, answer));
  answer.source = Lid(2);
  const auto delivery = service.receive(now, answer);
  ASSERT_TRUE(delivery);
  EXPECT_EQ(delivery->client, 7u);
  EXPECT_FALSE(delivery->has_timed_out);
}

TEST(DatagramService, AQuestionIsRepeatedAndThenComesBack) {
  DatagramService service;
  const auto added = service.add(7, asks_only(wire::subnet_class));
  EXPECT_EQ(service.send(now, 7, question_of(added.agent, Time::milliseconds(100), 2)),
            Refusal::none);
  EXPECT_TRUE(service.take_packet());
  Time at = now;
  for (int retry = 0; retry < 2; ++retry) {
    at += Time::milliseconds(100);
    EXPECT_EQ(service.next_timeout(), at);
    EXPECT_FALSE(service.expire(at));
    EXPECT_TRUE(service.take_packet()) << retry;
    EXPECT_FALSE(service.take_packet());
  }
  at += Time::milliseconds(100);
  const auto expired = service.expire(at);
  ASSERT_TRUE(expired);
  EXPECT_TRUE(expired->has_timed_out);
  EXPECT_EQ(expired->client, 7u);
  EXPECT_EQ(header_of(expired->packet.mad).method, method_get);
  EXPECT_FALSE(service.take_packet());
  EXPECT_TRUE(service.next_timeout().is_never());
}

TEST(DatagramService, QuestionsGoToWhoeverRegisteredForThem) {
  DatagramService service;
  EXPECT_EQ(service.add(7, listens_to(vendor_class, 1)).refusal, Refusal::none);
  EXPECT_EQ(service.add(8, listens_to(vendor_class, 2)).refusal, Refusal::none);
  EXPECT_EQ(service.add(9, listens_to(vendor_class, 1)).refusal, Refusal::taken);
  auto of_vendor = listens_to(vendor_class, 1);
  of_vendor.oui = 0x1405;
  EXPECT_EQ(service.add(9, of_vendor).refusal, Refusal::none);
  Mad mad = request_of(vendor_class, 1, 0);
  EXPECT_EQ(service.receive(now, packet_of(mad))->client, 7u);
  mad = request_of(vendor_class, 2, 0);
  EXPECT_EQ(service.receive(now, packet_of(mad))->client, 8u);
  mad = request_of(vendor_class, 1, 0);
  mad[38] = std::byte{0x14};
  mad[39] = std::byte{0x05};
  EXPECT_EQ(service.receive(now, packet_of(mad))->client, 9u);
  mad = request_of(vendor_class, 3, 0);
  EXPECT_FALSE(service.receive(now, packet_of(mad)));
}

TEST(DatagramService, WhatAClientHadIsGoneWithIt) {
  DatagramService service;
  const auto added = service.add(7, listens_to(vendor_class, 1));
  EXPECT_EQ(service.send(now, 7, question_of(added.agent, Time::seconds(1))), Refusal::none);
  service.remove_client(7);
  EXPECT_TRUE(service.next_timeout().is_never());
  EXPECT_FALSE(service.receive(now, packet_of(request_of(vendor_class, 1, 0))));
  EXPECT_EQ(service.send(now, 7, question_of(added.agent)), Refusal::unknown_agent);
  EXPECT_EQ(service.add(8, listens_to(vendor_class, 1)).refusal, Refusal::none);
}

TEST(DatagramService, AClientIsBounded) {
  DatagramService service;
  std::uint32_t agent = 0;
  for (std::uint32_t i = 0; i < DatagramService::agents_of_client_max; ++i) {
    const auto added = service.add(7, asks_only(wire::subnet_class));
    ASSERT_EQ(added.refusal, Refusal::none);
    EXPECT_EQ(added.agent, i);
    agent = added.agent;
  }
  EXPECT_EQ(service.add(7, asks_only(wire::subnet_class)).refusal, Refusal::no_room);
  for (std::size_t i = 0; i < WaitingQuestions::questions_of_program_max; ++i) {
    ASSERT_EQ(service.send(now, 7, question_of(agent, Time::seconds(1))), Refusal::none);
  }
  EXPECT_EQ(service.send(now, 7, question_of(agent, Time::seconds(1))), Refusal::no_room);
  // Nothing waits that was refused.
  std::size_t asked = 0;
  while (service.take_packet()) ++asked;
  EXPECT_EQ(asked, WaitingQuestions::questions_of_program_max);
  // Another client is not held up.
  const auto other = service.add(8, asks_only(wire::subnet_class));
  EXPECT_EQ(service.send(now, 8, question_of(other.agent, Time::seconds(1))), Refusal::none);
}

// A program has one share, however often it opens the port, and leaves room for others.
TEST(DatagramService, AProgramIsBoundedHoweverOftenItOpensThePort) {
  DatagramService service;
  const auto ask = [&](ClientId client) {
    return service.send(now, client, question_of(0, Time::seconds(1)));
  };
  const auto ask_all = [&](ClientId client) {
    std::size_t asked = 0;
    while (ask(client) == Refusal::none) ++asked;
    return asked;
  };
  for (ClientId client = 1; client <= 100; ++client) {
    ASSERT_EQ(service.add(client, asks_only(wire::subnet_class)).refusal, Refusal::none);
    service.enter(client, client <= 10 ? 1'000 : client);
  }
  std::size_t of_one = 0;
  for (ClientId client = 1; client <= 10; ++client) of_one += ask_all(client);
  EXPECT_EQ(of_one, WaitingQuestions::questions_of_program_max);
  for (ClientId client = 11; client <= 100; ++client) {
    EXPECT_GE(ask_all(client), WaitingQuestions::questions_of_program_min);
  }
  service.remove_client(1);
  EXPECT_EQ(ask_all(2), WaitingQuestions::questions_of_program_min);
  EXPECT_EQ(ask(100), Refusal::no_room);
  service.remove_client(11);
  EXPECT_EQ(ask(100), Refusal::none);
}

// A program cannot have the service send for it without end.
TEST(DatagramService, TimeoutsAndRetriesHaveBounds) {
  DatagramService service;
  const auto added = service.add(7, asks_only(wire::subnet_class));
  ASSERT_EQ(service.send(now, 7, question_of(added.agent, Time::milliseconds(1), 0x8000'0000)),
            Refusal::none);
  EXPECT_EQ(service.next_timeout(), now + WaitingQuestions::timeout_min);
  std::uint32_t sent = 0;
  for (bool is_over = false; !is_over;) {
    while (service.take_packet()) ++sent;
    ASSERT_LE(sent, WaitingQuestions::retries_max + 1);
    is_over = service.expire(service.next_timeout()).has_value();
  }
  EXPECT_EQ(sent, WaitingQuestions::retries_max + 1);
  ASSERT_EQ(service.send(now, 7, question_of(added.agent, Time::seconds(100'000), 0)),
            Refusal::none);
  EXPECT_EQ(service.next_timeout(), now + WaitingQuestions::timeout_max);
}

TEST(DatagramService, QuestionsAreRepeatedAtAPace) {
  DatagramService service;
  const auto added = service.add(7, asks_only(wire::subnet_class));
  const auto sent = [&] {
    int packets = 0;
    while (service.take_packet()) ++packets;
    return packets;
  };
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(service.send(now, 7, question_of(added.agent, Time::milliseconds(20), 10)),
              Refusal::none);
  }
  EXPECT_EQ(sent(), 500);
  Time at = service.next_timeout();
  EXPECT_FALSE(service.expire(at));
  EXPECT_EQ(sent(), WaitingQuestions::repeats_max);
  service.rebase(at);
  at = WaitingQuestions::repeat_period;
  EXPECT_EQ(service.next_timeout(), at);
  EXPECT_FALSE(service.expire(at));
  EXPECT_EQ(sent(), WaitingQuestions::repeats_max);
}

// An agent that uses one transaction ID for many questions gets the answer of each LID.
TEST(DatagramService, OneTransactionIdHasManyQuestions) {
  DatagramService service;
  const auto added = service.add(7, asks_only(vendor_class));
  std::vector<Packet> asked;
  for (const std::uint16_t lid : std::array<std::uint16_t, 3>{5, 3, 4}) {
    auto question = question_of(added.agent, Time::seconds(1));
    question.packet.mad = request_of(vendor_class, method_get, 0x12);
    question.packet.destination = Lid(lid);
    ASSERT_EQ(service.send(now, 7, question), Refusal::none);
    asked.push_back(*service.take_packet());
  }
  for (const Packet& each : {asked[2], asked[0], asked[1]}) {
    EXPECT_TRUE(service.receive(now, answered(each)));
    EXPECT_FALSE(service.receive(now, answered(each)));
  }
  EXPECT_TRUE(service.next_timeout().is_never());
}

class LongQuestions : public testing::Test {
 protected:
  LongQuestions() {
    Registration registration = listens_to(wire::subnet_administration_class, 0x14);
    registration.has_transactions = true;
    service.add(7, registration);
  }
  static Packet segment(std::uint16_t lid, std::uint64_t transaction, std::uint32_t number,
                        bool is_last) {
    Packet packet = packet_of(request_of(wire::subnet_administration_class, 0x14, 0x35));
    packet.source = Lid(lid);
    wire::MadHeader header = header_of(packet.mad);
    header.transaction_id = transaction;
    set_header(packet.mad, header);
    wire::RmppHeader rmpp;
    rmpp.version = wire::RmppHeader::current_version;
    rmpp.type = static_cast<std::uint8_t>(wire::RmppType::data);
    rmpp.response_time_and_flags = static_cast<std::uint8_t>(
        wire::RmppHeader::active | (number == 1 ? wire::RmppHeader::first : 0u) |
        (is_last ? wire::RmppHeader::last : 0u));
    rmpp.segment = number;
    if (is_last) rmpp.length_or_window = 30;
    put_attribute(rmpp, wire::rmpp_header_offset, packet.mad);
    return packet;
  }
  // Asks for a table as client 8. Returns the question as it goes out.
  std::optional<Packet> ask_for_table() {
    Registration asks = asks_only(wire::subnet_administration_class);
    asks.has_transactions = true;
    const auto added = service.add(8, asks);
    auto question = question_of(added.agent, Time::milliseconds(100));
    question.packet.mad = request_of(wire::subnet_administration_class, 0x12, 0x35);
    EXPECT_EQ(service.send(now, 8, question), Refusal::none);
    return service.take_packet();
  }
  // Returns the type of the answer to a segment, and none without one.
  wire::RmppType answer() {
    const auto packet = service.take_packet();
    if (!packet) return wire::RmppType::none;
    wire::RmppHeader header;
    std::memcpy(&header, packet->mad.data() + wire::rmpp_header_offset, sizeof header);
    return static_cast<wire::RmppType>(header.type);
  }
  bool begins(std::uint16_t lid, std::uint64_t transaction) {
    EXPECT_FALSE(service.receive(now, segment(lid, transaction, 1, false)));
    return answer() == wire::RmppType::ack;
  }

  DatagramService service;
};

TEST_F(LongQuestions, ASourceHasAShare) {
  std::uint64_t transaction = 0;
  for (std::size_t i = 0; i < DatagramService::transactions_of_source_max; ++i) {
    EXPECT_TRUE(begins(3, ++transaction));
  }
  EXPECT_FALSE(begins(3, ++transaction));
  EXPECT_TRUE(begins(4, ++transaction));
  // The place of one that ends is free, and again when nothing comes any more.
  EXPECT_TRUE(service.receive(now, segment(3, 1, 2, true)));
  EXPECT_EQ(answer(), wire::RmppType::ack);
  EXPECT_TRUE(begins(3, ++transaction));
  EXPECT_FALSE(begins(3, ++transaction));
  service.rebase(now);
  const Time later = RmppReceiver::patience;
  EXPECT_EQ(service.next_timeout(), later);
  EXPECT_FALSE(service.expire(later - Time::picoseconds(1)));
  EXPECT_EQ(service.next_timeout(), later);
  EXPECT_FALSE(service.expire(later));
  EXPECT_TRUE(service.next_timeout().is_never());
  EXPECT_TRUE(begins(3, ++transaction));
}

// One that has ended keeps no place. Its last acknowledgement can be sent again.
TEST_F(LongQuestions, ThoseThatHaveEndedTakeNoPlace) {
  const std::size_t many = DatagramService::transactions_max + DatagramService::finished_max;
  for (std::size_t i = 1; i <= many; ++i) {
    ASSERT_TRUE(service.receive(now, segment(3, i, 1, true))) << i;
    EXPECT_EQ(answer(), wire::RmppType::ack);
  }
  EXPECT_FALSE(service.receive(now, segment(3, many, 1, true)));
  EXPECT_EQ(answer(), wire::RmppType::ack);
  EXPECT_FALSE(service.expire(now + RmppReceiver::patience));
  EXPECT_TRUE(service.next_timeout().is_never());
}

TEST_F(LongQuestions, ASourceHasAShareOfTheBytes) {
  constexpr std::uint32_t segments = DatagramService::bytes_of_source_max / 200;
  wire::RmppType last = wire::RmppType::none;
  std::uint32_t number = 0;
  while (last != wire::RmppType::abort && number < segments + 100) {
    EXPECT_FALSE(service.receive(now, segment(3, 1, ++number, false)));
    last = answer();
  }
  EXPECT_NEAR(number, segments, 10);
  EXPECT_FALSE(begins(3, 2)) << "it has no room before the other's end";
  EXPECT_TRUE(begins(4, 3));
  EXPECT_FALSE(service.expire(now));
  EXPECT_TRUE(begins(3, 4));
}

// Others that take all places do not keep a program from its answer.
TEST_F(LongQuestions, AnswersToOwnQuestionsHaveRoom) {
  const std::size_t sources =
      DatagramService::transactions_max / DatagramService::transactions_of_source_max;
  for (std::uint16_t source = 10; source < 10 + sources; ++source) {
    for (std::size_t i = 0; i < DatagramService::transactions_of_source_max; ++i) {
      EXPECT_TRUE(begins(source, i));
    }
  }
  EXPECT_FALSE(begins(9, 1));
  const auto asked = ask_for_table();
  ASSERT_TRUE(asked);
  const auto part = [&](std::uint32_t number, bool is_last) {
    Packet packet = segment(2, header_of(asked->mad).transaction_id, number, is_last);
    wire::MadHeader header = header_of(packet.mad);
    header.method = 0x92;
    set_header(packet.mad, header);
    return packet;
  };
  EXPECT_FALSE(service.receive(now, part(1, false)));
  EXPECT_EQ(answer(), wire::RmppType::ack);
  // The question waits as long as its answer progresses.
  Time at = now + RmppReceiver::patience - Time::milliseconds(1);
  EXPECT_FALSE(service.receive(at, part(2, false)));
  at += RmppReceiver::patience - Time::milliseconds(1);
  EXPECT_FALSE(service.expire(at));
  const auto delivery = service.receive(at, part(3, true));
  ASSERT_TRUE(delivery);
  EXPECT_EQ(delivery->client, 8u);
}

// The rest of an answer that nobody waits for any more keeps nothing.
TEST_F(LongQuestions, AnAnswerEndsWithItsQuestion) {
  const auto asked = ask_for_table();
  ASSERT_TRUE(asked);
  Packet part = segment(2, header_of(asked->mad).transaction_id, 1, false);
  part.mad[3] = std::byte{0x92};
  EXPECT_FALSE(service.receive(now, part));
  EXPECT_EQ(answer(), wire::RmppType::ack);
  service.remove_client(8);
  EXPECT_FALSE(service.receive(now, part));
  EXPECT_EQ(answer(), wire::RmppType::none);
  EXPECT_FALSE(service.expire(now + Time::milliseconds(1)));
}

TEST(DatagramService, AClientHasAShareOfTheTransactions) {
  DatagramService service;
  Registration registration = asks_only(wire::subnet_administration_class);
  registration.has_transactions = true;
  const auto ask = [&](ClientId client, std::size_t bytes) {
    DatagramService::Question question;
    question.packet = packet_of(request_of(wire::subnet_administration_class, 0x14, 0x35));
    question.packet.mad[wire::rmpp_header_offset + 2] = std::byte{wire::RmppHeader::active};
    question.whole.resize(bytes);
    return service.send(now, client, std::move(question));
  };
  for (const ClientId client : {7, 8, 9}) service.add(client, registration);
  for (std::size_t i = 0; i < DatagramService::transactions_of_client_max; ++i) {
    EXPECT_EQ(ask(7, 300), Refusal::none);
  }
  EXPECT_EQ(ask(7, 300), Refusal::no_room);
  EXPECT_EQ(ask(8, DatagramService::bytes_of_client_max + 1), Refusal::no_room);
  EXPECT_EQ(ask(8, DatagramService::bytes_of_client_max), Refusal::none);
  EXPECT_EQ(ask(8, 300), Refusal::no_room);
  EXPECT_EQ(ask(9, 300), Refusal::none);
}

// What is known without the bytes is known before anybody reads them.
TEST(DatagramService, ALongDatagramIsCheckedWithoutItsBytes) {
  DatagramService service;
  Registration registration = asks_only(wire::subnet_administration_class);
  const auto without = service.add(7, registration);
  registration.has_transactions = true;
  const auto with = service.add(7, registration);
  DatagramService::Question question;
  question.packet = packet_of(request_of(wire::subnet_administration_class, 0x14, 0x35));
  const auto check = [&](std::uint32_t agent, std::size_t bytes) {
    question.agent = agent;
    return service.check_long(7, question, bytes);
  };
  const auto set_rmpp = [&](std::uint8_t flags) {
    question.packet.mad[wire::rmpp_header_offset + 2] = std::byte{flags};
  };
  set_rmpp(wire::RmppHeader::active);
  EXPECT_EQ(check(5, 1'000), Refusal::unknown_agent);
  EXPECT_EQ(check(without.agent, 1'000), Refusal::too_long);
  EXPECT_EQ(check(without.agent, 256), Refusal::none);
  EXPECT_EQ(check(with.agent, DatagramService::bytes_of_client_max), Refusal::none);
  EXPECT_EQ(check(with.agent, DatagramService::bytes_of_client_max + 1), Refusal::no_room);
  set_rmpp(0);
  EXPECT_EQ(check(with.agent, 1'000), Refusal::too_long);
  set_rmpp(wire::RmppHeader::active);
  question.timeout = Time::seconds(1);
  for (std::size_t i = 0; i < WaitingQuestions::questions_of_program_max; ++i) {
    ASSERT_EQ(service.send(now, 7, question_of(without.agent, Time::seconds(1))), Refusal::none);
  }
  EXPECT_EQ(check(with.agent, 1'000), Refusal::no_room) << "one more would wait for its answer";
}

// A long question for which there is no room comes back once, and not a second time when its time
// is over.
TEST(DatagramService, ATransactionWithoutRoomLeavesNothing) {
  DatagramService service;
  Registration registration = asks_only(wire::subnet_administration_class);
  registration.has_transactions = true;
  const auto added = service.add(7, registration);
  const auto ask = [&](std::size_t bytes) {
    DatagramService::Question question;
    question.agent = added.agent;
    question.packet = packet_of(request_of(wire::subnet_administration_class, 0x14, 0x35));
    question.packet.mad[wire::rmpp_header_offset + 2] = std::byte{wire::RmppHeader::active};
    question.timeout = Time::seconds(1);
    question.whole.resize(bytes);
    return service.send(now, 7, std::move(question));
  };
  EXPECT_EQ(ask(DatagramService::transaction_bytes_max + 1), Refusal::no_room);
  EXPECT_TRUE(service.next_timeout().is_never());
  EXPECT_FALSE(service.take_packet());
  EXPECT_EQ(ask(1'000), Refusal::none);
  EXPECT_FALSE(service.next_timeout().is_never());
}

// A long answer goes from one service to another in segments.
TEST(DatagramService, CarriesLongAnswers) {
  DatagramService asks, answers;
  Registration of_manager = listens_to(wire::subnet_administration_class, 0x12);
  Registration of_client = asks_only(wire::subnet_administration_class);
  of_manager.has_transactions = of_client.has_transactions = true;
  const auto manager = answers.add(1, of_manager);
  const auto client = asks.add(2, of_client);

  DatagramService::Question question;
  question.agent = client.agent;
  question.packet = packet_of(request_of(wire::subnet_administration_class, 0x12, 0x35));
  question.timeout = Time::seconds(1);
  ASSERT_EQ(asks.send(now, 2, question), Refusal::none);
  const auto request = asks.take_packet();
  ASSERT_TRUE(request);
  const auto asked = answers.receive(now, *request);
  ASSERT_TRUE(asked);

  DatagramService::Question answer;
  answer.agent = manager.agent;
  answer.packet = answer_to(asked->packet);
  wire::MadHeader header = header_of(answer.packet.mad);
  header.method = 0x92;
  set_header(answer.packet.mad, header);
  answer.packet.mad[wire::rmpp_header_offset + 2] = std::byte{wire::RmppHeader::active};
  answer.whole.assign(answer.packet.mad.begin(), answer.packet.mad.end());
  answer.whole.resize(50'000, std::byte{0x5A});
  ASSERT_EQ(answers.send(now, 1, answer), Refusal::none);

  std::optional<DatagramService::Delivery> delivery;
  for (bool is_moving = true; is_moving;) {
    is_moving = false;
    while (const auto packet = answers.take_packet()) {
      is_moving = true;
      if (auto came = asks.receive(now, *packet)) delivery = std::move(came);
    }
    while (const auto packet = asks.take_packet()) {
      is_moving = true;
      EXPECT_FALSE(answers.receive(now, *packet));
    }
  }
  ASSERT_TRUE(delivery);
  EXPECT_EQ(delivery->client, 2u);
  EXPECT_EQ(delivery->whole.size(), 50'000u);
  EXPECT_EQ(delivery->whole.back(), std::byte{0x5A});
  EXPECT_FALSE(asks.receive(now, answered(*request)));  // the question has its answer
}

}  // namespace
}  // namespace tulle::management

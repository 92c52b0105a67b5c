#include "management/datagram_service.h"

#include <gtest/gtest.h>

#include "management/mad_test.h"
#include "wire/rmpp.h"

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
  for (std::size_t i = 0; i < DatagramService::questions_of_client_max; ++i) {
    ASSERT_EQ(service.send(now, 7, question_of(agent, Time::seconds(1))), Refusal::none);
  }
  EXPECT_EQ(service.send(now, 7, question_of(agent, Time::seconds(1))), Refusal::no_room);
  // Nothing waits that was refused.
  std::size_t asked = 0;
  while (service.take_packet()) ++asked;
  EXPECT_EQ(asked, DatagramService::questions_of_client_max);
  // Another client is not held up.
  const auto other = service.add(8, asks_only(wire::subnet_class));
  EXPECT_EQ(service.send(now, 8, question_of(other.agent, Time::seconds(1))), Refusal::none);
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

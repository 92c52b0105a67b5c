#include "management/subnet/exchange.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>

namespace tulle::management::subnet {
namespace {

constexpr Time now = Time::seconds(1);

Question node_info_question(std::uint32_t node) {
  Question question;
  question.attribute = wire::attribute_node_info;
  question.node = node;
  return question;
}

Packet answer_of(Packet packet) {
  begin_answer(packet.mad, Status::ok, wire::directed_route_returns, packet.mad);
  return packet;
}

// Lane 15, which subnet management uses, has no flow control, so that a node that is flooded loses
// questions.
TEST(Exchange, OnlyAFewQuestionsAreOnTheWire) {
  constexpr std::uint32_t questions = 20;
  Exchange exchange(7);
  for (std::uint32_t node = 0; node < questions; ++node) exchange.ask(node_info_question(node));
  std::deque<Packet> on_the_wire;
  const auto take_all = [&] {
    while (const auto packet = exchange.take_packet(now)) on_the_wire.push_back(*packet);
  };
  take_all();
  EXPECT_EQ(on_the_wire.size(), Exchange::on_the_wire_max);
  EXPECT_EQ(exchange.next_timeout(), now + Exchange::timeout);
  // Each answer makes room for one more question.
  for (std::uint32_t node = 0; node < questions; ++node) {
    ASSERT_FALSE(on_the_wire.empty());
    const auto reply = exchange.receive(answer_of(on_the_wire.front()));
    on_the_wire.pop_front();
    ASSERT_TRUE(reply);
    EXPECT_TRUE(reply->is_good());
    EXPECT_EQ(reply->question.node, node);
    take_all();
    EXPECT_LE(on_the_wire.size(), Exchange::on_the_wire_max);
  }
  EXPECT_TRUE(exchange.is_over());
}

}  // namespace
}  // namespace tulle::management::subnet

#include "management/rmpp.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "management/mad_test.h"
#include "rdma/wire/rmpp.h"

namespace tulle::management {
namespace {

constexpr Time now = Time::seconds(1);
constexpr std::size_t no_bound = 64 << 20;
constexpr std::size_t header_bytes = 56;  // of subnet administration

// A datagram with so many bytes behind its headers.
std::vector<std::byte> datagram_of(std::size_t data_bytes) {
  Mad head = request_of(wire::subnet_administration_class, 0x92, 0x35);
  head[wire::rmpp_header_offset + 2] = std::byte{wire::RmppHeader::active};
  std::vector<std::byte> bytes(head.begin(), head.begin() + header_bytes);
  for (std::size_t i = 0; i < data_bytes; ++i)
    bytes.push_back(static_cast<std::byte>(i * 7 + i / 256));
  return bytes;
}

Packet packet_of(const std::vector<std::byte>& bytes) {
  Packet packet;
  packet.source = Lid(1);
  packet.destination = Lid(2);
  packet.source_qp = packet.destination_qp = QpNumber(1);
  std::copy_n(bytes.begin(), std::min(bytes.size(), packet.mad.size()), packet.mad.begin());
  return packet;
}

wire::RmppHeader rmpp_of(const Packet& packet) {
  wire::RmppHeader header;
  std::memcpy(&header, packet.mad.data() + wire::rmpp_header_offset, sizeof header);
  return header;
}

// Carries a datagram from a sender to a receiver, and loses each packet with a probability of
// `loss` of 256. Returns what has come.
std::vector<std::byte> carried(const std::vector<std::byte>& bytes, unsigned loss,
                               std::uint64_t seed = 1) {
  Random random(seed);
  RmppSender sender(now, packet_of(bytes), bytes);
  std::optional<RmppReceiver> receiver;
  std::vector<std::byte> whole;
  Time at = now;
  const auto is_lost = [&] { return random.below(256) < loss; };
  while (!sender.is_over()) {
    bool has_moved = false;
    while (const auto packet = sender.take_packet()) {
      has_moved = true;
      if (is_lost()) continue;
      if (!receiver && !is_first_segment(packet->mad)) continue;
      if (!receiver) receiver.emplace(at, *packet);
      EXPECT_TRUE(receiver->owns(*packet));
      const auto back = receiver->receive(at, *packet, no_bound);
      if (back && !is_lost() && sender.owns(*back)) sender.receive(at, *back);
      receiver->take_whole(whole);
    }
    if (has_moved) continue;
    at = sender.deadline();
    sender.expire(at);
  }
  return whole;
}

TEST(Rmpp, CarriesDatagramsOfAnyLength) {
  for (const std::size_t bytes : {0, 1, 199, 200, 201, 400, 12'799, 12'800, 12'801, 100'000}) {
    const auto datagram = datagram_of(bytes);
    auto whole = carried(datagram, 0);
    ASSERT_EQ(whole.size(), datagram.size()) << bytes;
    EXPECT_TRUE(
        std::equal(whole.begin() + header_bytes, whole.end(), datagram.begin() + header_bytes))
        << bytes;
  }
}

TEST(Rmpp, RepeatsWhatWasLost) {
  int whole = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto datagram = datagram_of(5'000);
    const auto came = carried(datagram, 16, seed);
    if (came.empty()) continue;  // given up after four tries
    ++whole;
    ASSERT_TRUE(std::equal(came.begin() + header_bytes, came.end(), datagram.begin() + header_bytes,
                           datagram.end()))
        << seed;
  }
  EXPECT_GT(whole, 45);
}

// IBTA 13.6.3.2: the first segment tells the bytes of all segments, each with its header of the
// class, and the last one its own.
TEST(Rmpp, SegmentsTellTheirLengths) {
  const auto bytes = datagram_of(450);
  RmppSender sender(now, packet_of(bytes), bytes);
  const auto first = sender.take_packet();
  ASSERT_TRUE(first);
  EXPECT_FALSE(sender.take_packet());  // the first window has one segment
  EXPECT_EQ(rmpp_of(*first).segment, 1u);
  EXPECT_EQ(rmpp_of(*first).length_or_window, 450u + 3 * 20);
  EXPECT_EQ(rmpp_of(*first).response_time_and_flags & 7, 3);  // active, first
  RmppReceiver receiver(now, *first);
  const auto ack = receiver.receive(now, *first, no_bound);
  ASSERT_TRUE(ack);
  EXPECT_EQ(header_of(ack->mad).method, 0x12);
  EXPECT_EQ(ack->destination, Lid(1));
  sender.receive(now, *ack);
  ASSERT_TRUE(sender.take_packet());
  const auto last = sender.take_packet();
  ASSERT_TRUE(last);
  EXPECT_EQ(rmpp_of(*last).segment, 3u);
  EXPECT_EQ(rmpp_of(*last).length_or_window, 50u + 20);
  EXPECT_EQ(rmpp_of(*last).response_time_and_flags & 7, 5);  // active, last
}

TEST(Rmpp, GivesUpWhereNobodyAnswers) {
  const auto bytes = datagram_of(1'000);
  RmppSender sender(now, packet_of(bytes), bytes);
  int sent = 0;
  while (!sender.is_over()) {
    while (sender.take_packet()) ++sent;
    sender.expire(sender.deadline());
  }
  EXPECT_EQ(sent, RmppSender::tries_max);
}

TEST(Rmpp, AnAnswerForWhatWasNotSentChangesNothing) {
  const auto bytes = datagram_of(1'000);
  RmppSender sender(now, packet_of(bytes), bytes);
  const auto first = sender.take_packet();
  RmppReceiver receiver(now, *first);
  auto ack = receiver.receive(now, *first, no_bound);
  wire::RmppHeader header = rmpp_of(*ack);
  header.segment = 5;
  put_attribute(header, wire::rmpp_header_offset, ack->mad);
  EXPECT_TRUE(sender.owns(*ack));
  sender.receive(now, *ack);
  EXPECT_FALSE(sender.is_over());
  EXPECT_FALSE(sender.take_packet());
  ack->source = Lid(9);
  EXPECT_FALSE(sender.owns(*ack));
}

Packet acknowledgement(const Packet& first, std::uint32_t segment, std::uint32_t window_end) {
  RmppReceiver receiver(now, first);
  Packet ack = *receiver.receive(now, first, no_bound);
  wire::RmppHeader header = rmpp_of(ack);
  header.segment = segment;
  header.length_or_window = window_end;
  put_attribute(header, wire::rmpp_header_offset, ack.mad);
  return ack;
}

// A receiver that acknowledges the same segment again and again keeps no transaction.
TEST(Rmpp, OnlyProgressPutsTheEndOff) {
  const auto bytes = datagram_of(100'000);
  RmppSender sender(now, packet_of(bytes), bytes);
  const Packet first = *sender.take_packet();
  Time at = now + Time::seconds(1);
  sender.receive(at, acknowledgement(first, 1, 10));
  EXPECT_EQ(sender.deadline(), at + RmppSender::patience);
  const Time until = at + RmppSender::patience * RmppSender::tries_max;
  while (!sender.is_over()) {
    while (sender.take_packet()) {
    }
    at += Time::milliseconds(100);
    ASSERT_LE(at, until);
    sender.receive(at, acknowledgement(first, 1, 20));
    sender.expire(at);
  }
}

// Nor does one that acknowledges a segment from time to time.
TEST(Rmpp, ATransactionHasAnEnd) {
  const auto bytes = datagram_of(100'000);
  RmppSender sender(now, packet_of(bytes), bytes);
  const Packet first = *sender.take_packet();
  RmppReceiver receiver(now, first);
  Time at = now;
  for (std::uint32_t segment = 1; !sender.is_over(); ++segment) {
    sender.receive(at, acknowledgement(first, segment, segment + 1));
    static_cast<void>(sender.take_packet());
    at += Time::seconds(1);
    ASSERT_LE(at, now + transaction_life_max);
    sender.expire(at);
  }
  EXPECT_EQ(at, now + transaction_life_max);
  Packet packet = first;
  wire::RmppHeader header = rmpp_of(packet);
  for (at = now; !receiver.is_over(at); at += Time::seconds(1)) {
    put_attribute(header, wire::rmpp_header_offset, packet.mad);
    static_cast<void>(receiver.receive(at, packet, no_bound));
    header.segment = header.segment + 1;
  }
  EXPECT_EQ(at, now + transaction_life_max);
}

TEST(Rmpp, ABoundlessWindowIsNone) {
  const auto bytes = datagram_of(1'000'000);
  RmppSender sender(now, packet_of(bytes), bytes);
  sender.receive(now, acknowledgement(*sender.take_packet(), 1, 0xFFFF'FFFF));
  std::uint32_t sent = 0;
  while (sender.take_packet()) ++sent;
  EXPECT_EQ(sent, RmppSender::window_max);
}

TEST(Rmpp, RefusesMoreThanThereIsRoomFor) {
  const auto bytes = datagram_of(1'000);
  RmppSender sender(now, packet_of(bytes), bytes);
  const auto first = sender.take_packet();
  RmppReceiver receiver(now, *first);
  const auto refusal = receiver.receive(now, *first, 100);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(static_cast<wire::RmppType>(rmpp_of(*refusal).type), wire::RmppType::abort);
  EXPECT_TRUE(receiver.is_over(now));
  sender.receive(now, *refusal);
  EXPECT_TRUE(sender.is_over());
}

}  // namespace
}  // namespace tulle::management

#include "rdma/optional/srd/inbound.h"

#include <gtest/gtest.h>

#include <utility>

#include "rdma/optional/srd/host_test.h"

namespace tulle::transport::srd {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test's own
using verbs::CompletionOpcode;
using verbs::CompletionStatus;
using wire::AckKind;
using wire::NakCode;
using wire::Syndrome;

constexpr std::uint64_t answered = std::uint64_t{1} << 63;

Syndrome nak(NakCode code) { return {AckKind::nak, static_cast<std::uint8_t>(code)}; }

wire::Packet write_of(const Host& host, std::uint32_t psn, std::uint32_t offset,
                      std::uint32_t length) {
  wire::Packet out = packet(Operation::write_middle, psn);
  out.virtual_address = transport::testing::iova + offset;
  out.rkey = host.region.rkey();
  out.dma_length = length;
  return out;
}

wire::Packet segment_of(std::uint32_t psn, std::uint32_t offset, std::uint32_t length) {
  wire::Packet out = packet(Operation::send_middle, psn);
  out.srd_message = 1;
  out.srd_offset = offset;
  out.dma_length = length;
  return out;
}

TEST(SrdInbound, what_is_expected_is_delivered_and_answered) {
  Host host;
  host.post_receive(100);
  const auto data = bytes_of(60);
  wire::Packet sent = packet(Operation::send_only_with_immediate, 0);
  sent.immediate = 0xABCD;
  const auto answer = host.answer(sent, data);
  ASSERT_TRUE(answer);
  EXPECT_EQ(wire::name(answer->opcode), "SRD Acknowledge");
  EXPECT_EQ(answer->destination_qp, peer_qp);
  EXPECT_EQ(answer->psn, Psn(1));
  EXPECT_EQ(answer->early_psn, Psn(0));
  EXPECT_EQ(answer->srd_path, 3);
  EXPECT_EQ(answer->srd_context, peer_context.word());
  EXPECT_EQ(answer->syndrome, Syndrome{});
  // Numbers before the first count as having come.
  EXPECT_EQ(answer->srd_received, ~std::uint64_t{0});
  const auto done = host.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].opcode, CompletionOpcode::receive);
  EXPECT_EQ(done[0].byte_length, 60u);
  EXPECT_EQ(done[0].source_qp, peer_qp);
  EXPECT_TRUE(done[0].has_immediate);
  EXPECT_EQ(done[0].immediate, 0xABCDu);
  EXPECT_FALSE(done[0].has_grh);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), host.memory.begin() + 8'192));
}

// The sender takes the time that an answer was held off the round trip. The field ends at 24 bits.
TEST(SrdInbound, an_answer_tells_how_long_it_was_held) {
  using Case = std::pair<Time, std::uint32_t>;
  for (const auto& [held, told] :
       {Case{Time::nanoseconds(1'234), 1'234}, Case{Time::nanoseconds(0xFF'FFFF), 0xFF'FFFF},
        Case{Time::seconds(1), 0xFF'FFFF}}) {
    Host host;
    host.post_receive(100);
    host.deliver(packet(Operation::send_only, 0), bytes_of(10));
    host.now += held;
    EXPECT_EQ(host.pull().at(0).packet.srd_held_ns, told);
  }
}

TEST(SrdInbound, what_comes_early_is_delivered_at_once) {
  Host host;
  host.post_receive(100);
  const auto answer = host.answer(packet(Operation::send_only, 5), bytes_of(10));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->psn, Psn(0)) << "the first that is missing";
  EXPECT_EQ(answer->early_psn, Psn(5));
  EXPECT_EQ(answer->srd_received, answered | ((std::uint64_t{1} << 58) - 1));
  EXPECT_EQ(host.completions().size(), 1u);
}

TEST(SrdInbound, what_came_before_is_answered_and_not_delivered_again) {
  Host host;
  for (int i = 0; i < 3; ++i) host.post_receive(100);
  for (const std::uint32_t psn : {0u, 4u, 4u, 0u}) {
    const auto answer = host.answer(packet(Operation::send_only, psn), bytes_of(10));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->psn, Psn(1));
    EXPECT_EQ(answer->syndrome, Syndrome{});
    EXPECT_NE(answer->srd_received & answered, 0u);
  }
  EXPECT_EQ(host.completions().size(), 2u);
  EXPECT_EQ(host.counters().duplicate_requests, 2u);
}

TEST(SrdInbound, numbers_wrap_and_the_bitmap_with_them) {
  Host host;
  constexpr std::uint32_t count = 3 * window_packets + 100;
  for (std::uint32_t psn = 0; psn < count; psn += 2) {
    // The packets of each pair come in reverse order.
    const auto second = host.answer(write_of(host, psn + 1, 0, 0));
    const auto first = host.answer(write_of(host, psn, 0, 0));
    ASSERT_TRUE(first && second);
    ASSERT_EQ(second->psn, Psn(psn));
    ASSERT_EQ(second->srd_received, ~(std::uint64_t{1} << 62));
    ASSERT_EQ(first->psn, Psn(psn + 2));
    ASSERT_EQ(first->srd_received, ~std::uint64_t{0});
  }
}

// An answer has the bits of the 64 numbers up to the one that it answers, wherever these lie.
TEST(SrdInbound, an_answer_tells_of_the_64_numbers_before_it) {
  constexpr std::uint32_t missing = 7;
  for (const std::uint32_t last : {50u, 63u, 64u, 70u, 71u, 90u, 127u, 128u, 140u}) {
    Host host;
    std::uint64_t expected = 0;
    for (std::uint32_t psn = 0; psn <= last; ++psn) {
      const bool comes = psn == last || (psn != missing && psn % 3 != 0);
      if (psn + 64 > last) expected = expected >> 1 | (comes ? std::uint64_t{1} << 63 : 0);
      if (comes && psn != last) host.answer(write_of(host, psn, 0, 0));
    }
    // Numbers before the first count as having come.
    if (last < 63) expected |= (std::uint64_t{1} << (63 - last)) - 1;
    const auto answer = host.answer(write_of(host, last, 0, 0));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->srd_received, expected) << last;
  }
}

TEST(SrdInbound, packets_of_other_transports_are_dropped) {
  Host host;
  host.post_receive(100);
  host.deliver(transport::testing::packet(wire::TransportClass::rc, Operation::send_only, Psn(0)),
               bytes_of(10));
  EXPECT_TRUE(host.pull().empty());
  EXPECT_TRUE(host.completions().empty());
  EXPECT_EQ(host.counters().dropped_packets, 1u);
}

TEST(SrdInbound, what_is_beyond_the_window_is_dropped) {
  Host host;
  EXPECT_FALSE(host.answer(write_of(host, window_packets, 0, 0)));
  EXPECT_TRUE(host.answer(write_of(host, window_packets - 1, 0, 0)));
  EXPECT_FALSE(host.answer(write_of(host, 0xFF'FFFF, 0, 0))) << "before the first there is none";
  EXPECT_EQ(host.counters().dropped_packets, 2u);
}

TEST(SrdInbound, a_generation_that_is_later_begins_anew_and_an_older_one_is_dropped) {
  Host host;
  for (int i = 0; i < 3; ++i) host.post_receive(100);
  ASSERT_TRUE(host.answer(packet(Operation::send_only, 0), bytes_of(10)));
  wire::Packet later = packet(Operation::send_only, 0);
  later.srd_context = Context{peer_context.generation + 1, 0}.word();
  ASSERT_TRUE(host.answer(later, bytes_of(10)));
  EXPECT_FALSE(host.answer(packet(Operation::send_only, 1), bytes_of(10)));
  EXPECT_EQ(host.completions().size(), 2u);
}

TEST(SrdInbound, a_receiver_that_is_not_ready_says_so_until_it_is) {
  Host host;
  const auto refused = host.answer(packet(Operation::send_only, 0), bytes_of(10));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->syndrome.kind, AckKind::rnr_nak);
  EXPECT_EQ(refused->psn, Psn(0));
  EXPECT_EQ(refused->srd_received & answered, 0u);
  host.post_receive(100);
  const auto accepted = host.answer(packet(Operation::send_only, 0), bytes_of(10));
  EXPECT_EQ(accepted->syndrome, Syndrome{});
  EXPECT_EQ(host.completions().size(), 1u);
}

TEST(SrdInbound, what_is_wrong_with_a_packet_its_sender_is_told) {
  Host host;
  host.post_receive(20);
  wire::Packet stranger = packet(Operation::send_only, 0);
  stranger.qkey = Qkey(1);
  EXPECT_EQ(host.answer(stranger, bytes_of(10))->syndrome, nak(NakCode::invalid_rd_request));
  EXPECT_EQ(host.answer(packet(Operation::send_only, 0), bytes_of(21))->syndrome,
            nak(NakCode::invalid_request))
      << "the receive request is too short";
  EXPECT_EQ(host.answer(packet(Operation::send_only, 0), bytes_of(mtu + 1))->syndrome,
            nak(NakCode::invalid_request));
  const std::uint32_t end = 32'768;
  EXPECT_EQ(host.answer(write_of(host, 0, end - 9, 10), bytes_of(10))->syndrome,
            nak(NakCode::remote_access_error));
  EXPECT_EQ(host.answer(write_of(host, 0, 0, 9), bytes_of(10))->syndrome,
            nak(NakCode::invalid_request))
      << "more than the whole message";
  wire::Packet nowhere = write_of(host, 0, 0, 10);
  nowhere.rkey.value ^= 1;
  EXPECT_EQ(host.answer(nowhere, bytes_of(10))->syndrome, nak(NakCode::remote_access_error));
  EXPECT_EQ(host.answer(segment_of(0, 0, 10), bytes_of(11))->syndrome,
            nak(NakCode::invalid_request));
  EXPECT_EQ(host.answer(segment_of(0, 5, 10))->syndrome, nak(NakCode::invalid_request));
  EXPECT_TRUE(host.completions().empty());
  // The receive request is still there, and packet number 0 is still expected.
  const auto answer = host.answer(packet(Operation::send_only, 0), bytes_of(20));
  EXPECT_EQ(answer->psn, Psn(1));
  EXPECT_EQ(host.completions().size(), 1u);
}

TEST(SrdInbound, a_queue_pair_that_is_not_there_or_in_error_is_told) {
  Host host;
  wire::IpUdp ip;
  ip.source = peer_gid;
  host.peers().handle_packet(host.now, nullptr, packet(Operation::send_only, 0), {}, ip);
  EXPECT_EQ(host.pull().at(0).packet.syndrome, nak(NakCode::invalid_rd_request));
  static_cast<void>(host.step({}, verbs::QpState::error));
  EXPECT_EQ(host.answer(packet(Operation::send_only, 0))->syndrome,
            nak(NakCode::invalid_rd_request));
}

TEST(SrdInbound, a_write_is_placed_as_its_packets_come) {
  Host host;
  const auto data = bytes_of(600);
  for (const std::uint32_t segment : {2u, 0u, 1u}) {
    const std::uint32_t offset = segment * mtu;
    const auto part = std::span(data).subspan(offset).first(std::min(mtu, 600 - offset));
    EXPECT_EQ(host.answer(write_of(host, segment, 1'000 + offset, 600), part)->syndrome,
              Syndrome{});
  }
  EXPECT_TRUE(std::equal(data.begin(), data.end(), host.memory.begin() + 1'000));
  EXPECT_TRUE(host.completions().empty());
}

TEST(SrdInbound, an_immediate_value_waits_for_all_that_was_written) {
  Host host;
  wire::Packet last = packet(Operation::write_last_with_immediate, 2);
  last.srd_message = 9;
  last.dma_length = 300;
  last.immediate = 77;
  EXPECT_EQ(host.answer(last)->syndrome.kind, AckKind::rnr_nak);
  host.post_receive(0);
  EXPECT_EQ(host.answer(last)->syndrome, Syndrome{});
  wire::Packet part = write_of(host, 1, mtu, 300);
  part.srd_message = 9;
  static_cast<void>(host.answer(part, bytes_of(300 - mtu)));
  EXPECT_TRUE(host.completions().empty());
  part = write_of(host, 0, 0, 300);
  part.srd_message = 9;
  static_cast<void>(host.answer(part, bytes_of(mtu)));
  const auto done = host.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].opcode, CompletionOpcode::receive_write_with_immediate);
  EXPECT_EQ(done[0].byte_length, 300u);
  EXPECT_EQ(done[0].immediate, 77u);
}

TEST(SrdInbound, segments_make_a_message_in_any_order) {
  Host host;
  host.post_receive(700);
  const auto data = bytes_of(600);
  for (const std::uint32_t segment : {1u, 2u, 0u}) {
    EXPECT_TRUE(host.completions().empty());
    const std::uint32_t offset = segment * mtu;
    const auto part = std::span(data).subspan(offset).first(std::min(mtu, 600 - offset));
    EXPECT_EQ(host.answer(segment_of(segment, offset, 600), part)->syndrome, Syndrome{});
  }
  ASSERT_EQ(host.completions().size(), 1u);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), host.memory.begin() + 8'192));
}

TEST(SrdInbound, a_message_that_ends_half_there_leaves_its_receive_request_to_the_next) {
  Host host;
  host.post_receive(600);
  static_cast<void>(host.answer(segment_of(0, 0, 600), bytes_of(mtu)));
  wire::Packet skip = packet(Operation::skip, 1);
  skip.srd_message = 1;
  EXPECT_EQ(host.answer(skip)->psn, Psn(2));
  EXPECT_TRUE(host.completions().empty());
  static_cast<void>(host.answer(packet(Operation::send_only, 2), bytes_of(10)));
  ASSERT_EQ(host.completions().size(), 1u);
}

// Returns a packet of another peer, which is one of another service level.
wire::Packet packet_of_another_peer() {
  wire::Packet out = packet(Operation::send_only, 0);
  out.srd_context = Context{peer_context.generation, 1}.word();
  return out;
}

// The sender is gone, and its message holds the only receive request.
TEST(SrdInbound, a_sender_that_fell_silent_leaves_its_receive_request_to_others) {
  Host host;
  host.post_receive(600);
  const Time give_up = host.peers().settings().give_up;
  static_cast<void>(host.answer(segment_of(0, 0, 400), bytes_of(mtu)));
  wire::Packet other = packet(Operation::send_only, 0);
  other.srd_context =
      Context{peer_context.generation, 1}.word();  // a peer of another service level
  host.deliver(other, bytes_of(10));
  EXPECT_EQ(host.counters().rnr_naks_sent, 1u);
  host.now += give_up + give_up;
  host.deliver(other, bytes_of(10));
  EXPECT_EQ(host.counters().rnr_naks_sent, 1u);
  ASSERT_EQ(host.completions().size(), 1u);

  // The receiver does not hear more of that message, and hears what the sender begins anew.
  EXPECT_FALSE(host.answer(segment_of(1, mtu, 400), bytes_of(400 - mtu)));
  host.post_receive(600);
  wire::Packet anew = packet(Operation::send_only, 0);
  anew.srd_context = Context{peer_context.generation + 1, 0}.word();
  EXPECT_TRUE(host.answer(anew, bytes_of(10)));
  EXPECT_EQ(host.completions().size(), 1u);
}

TEST(SrdInbound, a_sender_that_is_heard_keeps_its_receive_request) {
  Host host;
  host.post_receive(600);
  const Time give_up = host.peers().settings().give_up;
  static_cast<void>(host.answer(segment_of(0, 0, 400), bytes_of(mtu)));
  const wire::Packet other = packet_of_another_peer();
  for (int i = 0; i < 5; ++i) {
    host.now += give_up;
    static_cast<void>(host.answer(segment_of(0, 0, 400), bytes_of(mtu)));
    host.now += Time{give_up.ps / 2};
    host.deliver(other, bytes_of(10));
  }
  EXPECT_EQ(host.counters().rnr_naks_sent, 5u);
  EXPECT_TRUE(host.completions().empty());
  static_cast<void>(host.answer(segment_of(1, mtu, 400), bytes_of(400 - mtu)));
  EXPECT_EQ(host.completions().size(), 1u);
}

TEST(SrdInbound, a_queue_pair_in_error_flushes_what_half_messages_held) {
  Host host;
  host.post_receive(600);
  host.post_receive(600);
  static_cast<void>(host.answer(segment_of(0, 0, 600), bytes_of(mtu)));
  static_cast<void>(host.step({}, verbs::QpState::error));
  const auto done = host.completions();
  ASSERT_EQ(done.size(), 2u);
  for (const auto& each : done) EXPECT_EQ(each.status, CompletionStatus::flushed);
}

TEST(SrdInbound, memory_that_is_not_the_receivers_is_its_own_fault) {
  Host host;
  const verbs::Sge sge{transport::testing::iova, 100, LocalKey{host.region.lkey().value ^ 1}};
  host.must(host.qp->post_receive({5, {&sge, 1}}));
  EXPECT_EQ(host.answer(packet(Operation::send_only, 0), bytes_of(10))->syndrome,
            nak(NakCode::remote_operational_error));
  const auto done = host.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, CompletionStatus::local_protection_error);
  EXPECT_EQ(host.qp->state(), verbs::QpState::error);
}

TEST(SrdInbound, memory_that_is_not_the_receivers_fails_a_message_of_segments_too) {
  Host host;
  const verbs::Sge sge{transport::testing::iova, 600, LocalKey{host.region.lkey().value ^ 1}};
  host.must(host.qp->post_receive({5, {&sge, 1}}));
  host.must(host.qp->post_receive({6, {&sge, 1}}));
  EXPECT_EQ(host.answer(segment_of(0, 0, 600), bytes_of(mtu))->syndrome,
            nak(NakCode::remote_operational_error));
  const auto done = host.completions();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].wr_id, 5u);
  EXPECT_EQ(done[0].opcode, CompletionOpcode::receive);
  EXPECT_EQ(done[0].status, CompletionStatus::local_protection_error);
  EXPECT_EQ(done[1].wr_id, 6u);
  EXPECT_EQ(done[1].status, CompletionStatus::flushed);
  EXPECT_EQ(host.qp->state(), verbs::QpState::error);
}

}  // namespace
}  // namespace tulle::transport::srd

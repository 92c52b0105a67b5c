#include "rdma/optional/srd/outbound.h"

#include <gtest/gtest.h>

#include "rdma/optional/srd/host_test.h"

namespace tulle::transport::srd {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test's own
using verbs::CompletionStatus;
using verbs::SendOpcode;
using wire::AckKind;
using wire::NakCode;
using wire::Syndrome;

constexpr Time round_trip = Time::microseconds(10);

Syndrome nak(NakCode code) { return {AckKind::nak, static_cast<std::uint8_t>(code)}; }

TEST(SrdOutbound, a_send_is_a_packet_and_done_when_it_is_answered) {
  Host host;
  host.post(SendOpcode::send_with_immediate, 100);
  const auto sent = host.pull();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(wire::name(sent[0].packet.opcode), "SRD SEND Only with Immediate");
  EXPECT_EQ(sent[0].packet.destination_qp, peer_qp);
  EXPECT_EQ(sent[0].packet.source_qp, host.qp->number);
  EXPECT_EQ(sent[0].packet.qkey, qkey);
  EXPECT_EQ(sent[0].payload.size(), 100u);
  EXPECT_TRUE(host.completions().empty());
  host.now += round_trip;
  host.acknowledge(sent[0].packet, 1);
  const auto done = host.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, CompletionStatus::success);
  EXPECT_EQ(host.outbound().rate().shortest_round_trip(), round_trip);
  EXPECT_TRUE(host.outbound().next_deadline().is_never());
  host.acknowledge(sent[0].packet, 1);
  EXPECT_TRUE(host.completions().empty()) << "answered twice";
}

TEST(SrdOutbound, requests_are_done_in_any_order_and_give_their_room_back_in_one) {
  Host host;
  for (int i = 0; i < 3; ++i) host.post(SendOpcode::send, 10);
  const auto sent = host.pull();
  ASSERT_EQ(sent.size(), 3u);
  host.acknowledge(sent[2].packet, 0);
  host.acknowledge(sent[1].packet, 0);
  auto done = host.completions();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].wr_id, 2u);
  EXPECT_EQ(done[1].wr_id, 1u);
  EXPECT_EQ(host.qp->send_queue.size(), 3u);
  host.acknowledge(sent[0].packet, 3);
  EXPECT_EQ(host.completions().size(), 1u);
  EXPECT_EQ(host.qp->send_queue.size(), 0u);
}

TEST(SrdOutbound, what_an_answer_says_of_others_counts_for_them_too) {
  Host host;
  for (int i = 0; i < 4; ++i) host.post(SendOpcode::send, 10);
  const auto sent = host.pull();
  // The answers to 0 and 2 were lost.
  host.acknowledge(sent[3].packet, 1, {}, std::uint64_t{1} << 62);
  EXPECT_EQ(host.completions().size(), 3u);
}

TEST(SrdOutbound, an_answer_to_what_was_never_sent_is_dropped) {
  Host host;
  host.post(SendOpcode::send, 10);
  auto sent = host.pull();
  wire::Packet other = sent[0].packet;
  other.psn = Psn(1);
  host.acknowledge(other, 0);
  host.acknowledge(sent[0].packet, 2);
  other = sent[0].packet;
  other.srd_context += 1u << Context::level_bits;
  host.acknowledge(other, 1);
  EXPECT_TRUE(host.completions().empty());
  EXPECT_EQ(host.counters().dropped_packets, 3u);
}

TEST(SrdOutbound, a_write_is_cut_up_each_packet_with_its_own_address) {
  Host host;
  host.post(SendOpcode::write_with_immediate, 600);
  const auto sent = host.pull();
  ASSERT_EQ(sent.size(), 4u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(wire::name(sent[i].packet.opcode), "SRD RDMA WRITE Segment");
    EXPECT_EQ(sent[i].packet.psn, Psn(i));
    EXPECT_EQ(sent[i].packet.virtual_address, transport::testing::iova + std::uint64_t{i} * mtu);
    EXPECT_EQ(sent[i].packet.dma_length, 600u);
    EXPECT_EQ(sent[i].packet.srd_message, sent[3].packet.srd_message);
  }
  EXPECT_EQ(wire::name(sent[3].packet.opcode), "SRD RDMA WRITE Immediate");
  EXPECT_NE(sent[3].packet.srd_message, 0u);
  EXPECT_TRUE(sent[3].payload.empty());
  EXPECT_NE(sent[0].packet.srd_path, sent[1].packet.srd_path);
}

TEST(SrdOutbound, what_is_missing_goes_again_by_another_path_when_its_time_is_up) {
  Host host;
  for (int i = 0; i < 3; ++i) {
    host.post(SendOpcode::send, 10);
    host.now += Time::nanoseconds(1);
  }
  const auto sent = host.pull(1);
  host.now += Time::nanoseconds(10);
  const auto later = host.pull();
  host.now += round_trip;
  host.acknowledge(later[0].packet, 0);
  host.acknowledge(later[1].packet, 0);
  EXPECT_TRUE(host.pull().empty()) << "not yet";
  const Time deadline = host.outbound().next_deadline();
  EXPECT_LT(deadline, host.now + round_trip);
  host.pass(deadline - host.now);
  const auto again = host.pull();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].packet.psn, sent[0].packet.psn);
  EXPECT_EQ(again[0].payload, sent[0].payload);
  EXPECT_NE(again[0].packet.srd_path, sent[0].packet.srd_path);
  EXPECT_TRUE(host.outbound().paths().is_avoided(host.now, sent[0].packet.srd_path));
  EXPECT_EQ(host.counters().retransmitted_packets, 1u);
  EXPECT_EQ(host.counters().ack_timeouts, 0u);
  host.acknowledge(again[0].packet, 3);
  EXPECT_EQ(host.completions().size(), 3u);
}

// A packet that was sent twice may have come the first time. It shows that packets sent in between
// are late only if its answer names the second time.
TEST(SrdOutbound, what_was_sent_twice_outlives_others_if_its_second_time_is_answered) {
  const auto patience = [](bool is_named) {
    Host host;
    for (int i = 0; i < 3; ++i) host.post(SendOpcode::send, 10);
    host.pull(1);
    host.now += Time::nanoseconds(10);
    const auto second = host.pull(1);
    host.now += round_trip;
    host.acknowledge(second[0].packet, 0);
    EXPECT_EQ(host.pull(1).at(0).packet.psn, Psn(2));
    const Time sent_at = host.now;
    host.pass(host.outbound().next_deadline() - host.now);
    const auto again = host.pull(1);
    EXPECT_EQ(again.at(0).packet.psn, Psn(0));
    host.now += round_trip;
    host.acknowledge(is_named ? again[0].packet : second[0].packet, 2);
    EXPECT_EQ(host.completions().size(), 2u);
    return host.outbound().next_deadline() - sent_at;
  };
  EXPECT_LT(patience(true), patience(false));
}

TEST(SrdOutbound, where_nothing_comes_back_one_packet_asks_again_ever_later) {
  Settings settings;
  settings.timeout_first = Time::microseconds(100);
  Host host(settings);
  host.post(SendOpcode::send, 10);
  ASSERT_EQ(host.pull().size(), 1u);
  Time waited = settings.timeout_first;
  for (std::uint32_t round = 1; round < 6; ++round) {
    const Time wait = host.outbound().next_deadline() - host.now;
    EXPECT_EQ(wait, waited * 2);
    waited = wait;
    host.pass(wait - Time::nanoseconds(1));
    EXPECT_TRUE(host.pull().empty());
    host.pass(Time::nanoseconds(1));
    EXPECT_EQ(host.pull().size(), 1u);
    EXPECT_EQ(host.counters().ack_timeouts, round);
  }
}

TEST(SrdOutbound, a_receiver_that_is_not_ready_is_asked_again_as_often_as_was_said) {
  Host host;  // rnr_retry 2
  host.post(SendOpcode::send, 10);
  auto sent = host.pull();
  for (int attempt = 0; attempt < 2; ++attempt) {
    host.acknowledge(sent[0].packet, 0, {AckKind::rnr_nak, 0});
    EXPECT_TRUE(host.pull().empty());
    EXPECT_TRUE(host.completions().empty());
    host.pass(Time::milliseconds(2));
    sent = host.pull();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(wire::name(sent[0].packet.opcode), "SRD SEND Only");
  }
  host.acknowledge(sent[0].packet, 0, {AckKind::rnr_nak, 0});
  const auto done = host.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, CompletionStatus::rnr_retry_exceeded_error);
  EXPECT_EQ(wire::name(host.pull().at(0).packet.opcode), "SRD Skip");
  EXPECT_EQ(host.qp->state(), verbs::QpState::rts);
}

TEST(SrdOutbound, a_refused_request_fails_alone_and_its_number_is_skipped) {
  Host host;
  host.post(SendOpcode::write, 10);
  host.post(SendOpcode::send, 10);
  const auto sent = host.pull();
  host.acknowledge(sent[0].packet, 0, nak(NakCode::remote_access_error));
  const auto failed = host.completions();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status, CompletionStatus::remote_access_error);
  const auto skip = host.pull();
  ASSERT_EQ(skip.size(), 1u);
  EXPECT_EQ(wire::name(skip[0].packet.opcode), "SRD Skip");
  EXPECT_EQ(skip[0].packet.psn, sent[0].packet.psn);
  EXPECT_EQ(skip[0].packet.srd_message, 0u);
  host.acknowledge(sent[1].packet, 0);
  host.acknowledge(skip[0].packet, 2);
  EXPECT_EQ(host.completions().size(), 1u);
  EXPECT_TRUE(host.outbound().next_deadline().is_never());
}

TEST(SrdOutbound, the_receiver_is_told_when_no_more_of_a_message_will_come) {
  Host host;
  host.post(SendOpcode::write_with_immediate, 600);
  const auto sent = host.pull(2);
  static_cast<void>(host.step({}, verbs::QpState::error));
  EXPECT_EQ(host.completions().at(0).status, CompletionStatus::flushed);
  EXPECT_TRUE(host.pull().empty()) << "while packets that bring it may be under way";
  host.acknowledge(sent[0].packet, 1);
  host.acknowledge(sent[1].packet, 2);
  host.peers().carrier(0).attend(const_cast<Outbound&>(host.outbound()));
  const auto skip = host.pull();
  ASSERT_EQ(skip.size(), 1u);
  EXPECT_EQ(wire::name(skip[0].packet.opcode), "SRD Skip");
  EXPECT_EQ(skip[0].packet.srd_message, sent[0].packet.srd_message);
  EXPECT_EQ(skip[0].packet.psn, Psn(2));
  host.acknowledge(skip[0].packet, 3);
  EXPECT_TRUE(host.completions().empty());
}

TEST(SrdOutbound, what_cannot_be_sent_fails_before_it_is) {
  Host host;
  host.post(SendOpcode::send, mtu + 1);
  EXPECT_TRUE(host.pull().empty());
  EXPECT_EQ(host.completions().at(0).status, CompletionStatus::local_length_error);
  verbs::SendRequest request;
  request.opcode = SendOpcode::send;
  const verbs::Sge wrong{transport::testing::iova, 10, LocalKey{host.region.lkey().value ^ 1}};
  request.sges = {&wrong, 1};
  request.address_handle = &host.handle;
  request.flags = verbs::SendFlag::signaled;
  host.must(host.qp->post_send(request));
  EXPECT_TRUE(host.pull().empty());
  EXPECT_EQ(host.completions().at(0).status, CompletionStatus::local_protection_error);
  host.post(SendOpcode::send, 10);
  EXPECT_EQ(host.pull().at(0).packet.psn, Psn(0)) << "no number was used";
}

TEST(SrdOutbound, longer_messages_are_cut_up_where_that_is_allowed) {
  Settings settings;
  settings.send_bytes_max = 1'000;
  Host host(settings);
  host.post(SendOpcode::send, 600);
  const auto sent = host.pull();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(wire::name(sent[2].packet.opcode), "SRD SEND Segment");
  EXPECT_EQ(sent[2].packet.srd_offset, 2 * mtu);
  EXPECT_EQ(sent[2].packet.dma_length, 600u);
}

TEST(SrdOutbound, a_peer_that_is_silent_for_too_long_is_gone) {
  Settings settings;
  settings.give_up = Time::milliseconds(5);
  Host host(settings);
  host.post(SendOpcode::send, 10);
  host.post(SendOpcode::write, 2'000);
  const auto sent = host.pull();
  const Time began = host.now;
  while (!host.outbound().next_deadline().is_never()) {
    host.pass(host.outbound().next_deadline() - host.now);
    static_cast<void>(host.pull());
  }
  EXPECT_EQ(host.now, began + settings.give_up);
  const auto done = host.completions();
  ASSERT_EQ(done.size(), 2u);
  for (const auto& each : done) EXPECT_EQ(each.status, CompletionStatus::retry_exceeded_error);
  EXPECT_EQ(host.qp->state(), verbs::QpState::rts);
  host.post(SendOpcode::send, 10);
  const auto anew = host.pull();
  ASSERT_EQ(anew.size(), 1u);
  EXPECT_EQ(anew[0].packet.psn, Psn(0));
  EXPECT_TRUE(Context::of(anew[0].packet.srd_context)
                  .is_later_than(Context::of(sent[0].packet.srd_context).generation));
}

TEST(SrdOutbound, nothing_new_begins_while_the_send_queue_drains) {
  Host host;
  host.post(SendOpcode::send, 10);
  const auto sent = host.pull();
  verbs::QpAttributeMask notify = verbs::QpAttribute::sqd_async_notify;
  QueuePairAttributes to;
  to.sqd_async_notify = true;
  host.must(host.step(to, verbs::QpState::sqd, notify));
  host.post(SendOpcode::send, 10);
  EXPECT_TRUE(host.pull().empty());
  host.acknowledge(sent[0].packet, 1);
  EXPECT_EQ(host.raised(), std::vector{verbs::EventType::send_queue_drained});
  host.must(host.step({}, verbs::QpState::rts));
  EXPECT_EQ(host.pull().size(), 1u);
}

}  // namespace
}  // namespace tulle::transport::srd

// Tests of raw packet queue pairs: sending, and the receivers of frames.

#include "rdma/device/raw_packets.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "rdma/device/adapter.h"

namespace tulle::device {
namespace {

using IfNoRoom = RawPackets::IfNoRoom;
using transport::QueuePair;
using verbs::CompletionStatus;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::QpType;
using verbs::VerbsStatus;

using Frame = std::vector<std::byte>;

// Returns a frame to a group address with this last byte, from a UDP port over IPv4.
Frame frame_to(int last, int source_port = 7, std::size_t bytes = 64) {
  Frame frame(bytes);
  const std::array<int, 36> headers = {1, 0, 0,    0, 0, last, 2, 0, 0, 0, 0, 9,
                                       8, 0, 0x45, 0, 0, 50,   0, 0, 0, 0, 9, 17,
                                       0, 0, 1,    1, 1, 1,    2, 2, 2, 2, 0, source_port};
  for (std::size_t i = 0; i < headers.size(); ++i) frame[i] = static_cast<std::byte>(headers[i]);
  return frame;
}

FlowRule rule_for(int last, std::uint16_t priority = 0) {
  FlowRule rule;
  rule.priority = priority;
  rule.match.value.destination_mac = {1, 0, 0, 0, 0, static_cast<std::uint8_t>(last)};
  rule.match.mask.destination_mac.fill(0xFF);
  return rule;
}

FlowRule rule_of(FlowKind kind) {
  FlowRule rule;
  rule.kind = kind;
  return rule;
}

class RawPacketsTest : public testing::Test {
 protected:
  RawPacketsTest() : adapter({}) {
    VerbsStatus status{};
    pd = adapter.objects().create_pd(status);
    region = adapter.objects().register_memory(*pd, memory.data(), memory.size(), 0x1000,
                                               verbs::Access::local_write, status);
    cq = adapter.objects().create_cq(64, nullptr, status);
    for (auto& qp : qps) qp = create(QpType::raw_packet);
  }

  QueuePair* create(QpType type) {
    transport::QueuePairInit init;
    init.type = type;
    init.pd = pd;
    init.send_cq = init.receive_cq = cq;
    init.send_work_requests = init.receive_work_requests = 40;
    init.send_sges = init.receive_sges = 2;
    init.signal_all = true;
    VerbsStatus status{};
    QueuePair* qp = adapter.create_qp(init, status);
    EXPECT_EQ(status, VerbsStatus::ok);
    transport::QueuePairAttributes to;
    to.state = QpState::init;
    EXPECT_EQ(adapter.modify(*qp, to, QpAttributeMask(QpAttribute::state) | QpAttribute::port),
              VerbsStatus::ok);
    for (const QpState state : {QpState::rtr, QpState::rts}) {
      to.state = state;
      EXPECT_EQ(adapter.modify(*qp, to, QpAttribute::state), VerbsStatus::ok);
    }
    return qp;
  }

  void post_receive(QueuePair& qp, int count = 1, std::uint32_t bytes = 256) {
    const verbs::Sge sge{0x1000, bytes, region->lkey()};
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(adapter.post_receive(qp, {1, {&sge, 1}}), VerbsStatus::ok);
    }
  }
  VerbsStatus post_send(QueuePair& qp, std::uint32_t bytes, std::uint64_t address = 0x1000) {
    const verbs::Sge sge{address, bytes, region->lkey()};
    verbs::SendRequest request;
    request.sges = {&sge, 1};
    return adapter.post_send(qp, request);
  }
  bool handle(const Frame& frame, IfNoRoom if_no_room = IfNoRoom::drop) {
    return raw().handle_frame(frame, if_no_room);
  }
  std::vector<verbs::Completion> poll() {
    std::vector<verbs::Completion> all(64);
    all.resize(cq->poll(all));
    return all;
  }
  // Returns the queue pairs that got the frame, in order.
  std::vector<QpNumber> receivers(const Frame& frame) {
    EXPECT_TRUE(handle(frame));
    std::vector<QpNumber> found;
    for (const auto& completion : poll()) {
      EXPECT_EQ(completion.byte_length, frame.size());
      found.push_back(completion.qp);
    }
    return found;
  }
  RawPackets& raw() { return adapter.raw_packets(); }
  std::vector<QpNumber> numbers(std::initializer_list<int> places) {
    std::vector<QpNumber> found;
    for (const int place : places) found.push_back(qps[static_cast<std::size_t>(place)]->number);
    return found;
  }

  std::array<std::byte, 4096> memory{};
  Adapter adapter;
  verbs::ProtectionDomain* pd = nullptr;
  verbs::MemoryRegion* region = nullptr;
  verbs::CompletionQueue* cq = nullptr;
  std::array<QueuePair*, 3> qps{};
};

TEST_F(RawPacketsTest, a_frame_comes_to_whom_a_rule_names) {
  for (auto* qp : qps) post_receive(*qp, 8);
  raw().add_flow(*qps[0], rule_for(1));
  raw().add_flow(*qps[1], rule_for(2));
  EXPECT_EQ(receivers(frame_to(1)), numbers({0}));
  EXPECT_EQ(std::to_integer<int>(memory[5]), 1);  // the whole frame, as it arrived
  EXPECT_EQ(receivers(frame_to(2)), numbers({1}));
  EXPECT_EQ(receivers(frame_to(3)), numbers({}));
}

TEST_F(RawPacketsTest, the_lowest_priority_wins_and_equals_share) {
  for (auto* qp : qps) post_receive(*qp, 8);
  raw().add_flow(*qps[0], rule_for(1, 5));
  Flow* first = raw().add_flow(*qps[1], rule_for(1, 2));
  raw().add_flow(*qps[2], rule_for(1, 2));
  raw().add_flow(*qps[2], rule_for(1, 2));  // still one copy
  EXPECT_EQ(receivers(frame_to(1)), numbers({1, 2}));
  first->rule.passes_on = true;
  EXPECT_EQ(receivers(frame_to(1)), numbers({1, 2}));
  raw().remove(first);
  EXPECT_EQ(receivers(frame_to(1)), numbers({2}));
}

TEST_F(RawPacketsTest, rules_pass_on_or_drop) {
  for (auto* qp : qps) post_receive(*qp, 8);
  FlowRule passing = rule_for(1, 1);
  passing.passes_on = true;
  raw().add_flow(*qps[0], passing);
  raw().add_flow(*qps[1], rule_for(1, 2));
  EXPECT_EQ(receivers(frame_to(1)), numbers({0, 1}));
  FlowRule dropping = rule_for(1, 0);
  dropping.drops = true;
  raw().add_flow(*qps[2], dropping);
  EXPECT_EQ(receivers(frame_to(1)), numbers({}));
}

TEST_F(RawPacketsTest, defaults_take_what_is_left_and_sniffers_everything) {
  for (auto* qp : qps) post_receive(*qp, 8);
  raw().add_flow(*qps[0], rule_of(FlowKind::multicast_default));
  raw().add_flow(*qps[1], rule_for(1));
  raw().add_flow(*qps[2], rule_of(FlowKind::sniffer));
  EXPECT_EQ(receivers(frame_to(1)), numbers({2, 1}));
  EXPECT_EQ(receivers(frame_to(2)), numbers({2, 0}));
  Frame to_one = frame_to(2);
  to_one[0] = std::byte{2};
  EXPECT_EQ(receivers(to_one), numbers({2}));
  raw().add_flow(*qps[1], rule_of(FlowKind::all_default));
  EXPECT_EQ(receivers(to_one), numbers({2, 1}));
}

TEST_F(RawPacketsTest, what_does_not_fit_is_dropped_and_the_request_kept) {
  post_receive(*qps[0], 1, 63);
  raw().add_flow(*qps[0], rule_for(1));
  EXPECT_EQ(receivers(frame_to(1)), numbers({}));
  EXPECT_EQ(adapter.counters().transport.dropped_messages, 1u);
  EXPECT_EQ(receivers(frame_to(1, 7, 63)), numbers({0}));
}

TEST_F(RawPacketsTest, a_frame_waits_for_a_request_but_once) {
  raw().add_flow(*qps[0], rule_for(1));
  EXPECT_FALSE(handle(frame_to(1), IfNoRoom::wait));
  post_receive(*qps[0]);
  EXPECT_TRUE(handle(frame_to(1), IfNoRoom::wait));
  EXPECT_EQ(poll().size(), 1u);
  EXPECT_FALSE(handle(frame_to(1), IfNoRoom::wait));
  EXPECT_TRUE(handle(frame_to(1), IfNoRoom::drop));
  EXPECT_TRUE(handle(frame_to(1), IfNoRoom::wait));  // the queue has been given up
  EXPECT_EQ(poll().size(), 0u);
  post_receive(*qps[0]);
  EXPECT_TRUE(handle(frame_to(1), IfNoRoom::wait));
  EXPECT_FALSE(handle(frame_to(1), IfNoRoom::wait));
}

TEST_F(RawPacketsTest, one_that_is_not_ready_is_not_waited_for) {
  raw().add_flow(*qps[0], rule_for(1));
  transport::QueuePairAttributes to;
  to.state = QpState::reset;
  ASSERT_EQ(adapter.modify(*qps[0], to, QpAttribute::state), VerbsStatus::ok);
  EXPECT_TRUE(handle(frame_to(1), IfNoRoom::wait));
}

TEST_F(RawPacketsTest, frames_are_sent_in_turn_and_completed_when_they_have_left) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post_send(*qps[0], 100 + i), VerbsStatus::ok);
  EXPECT_EQ(post_send(*qps[1], 200), VerbsStatus::ok);
  auto frames = raw().pull_frames();
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[2].payload_bytes, 102u);
  EXPECT_EQ(frames[0].pieces[0].data(), memory.data());
  EXPECT_TRUE(poll().empty());
  raw().sent(1);
  EXPECT_EQ(poll().size(), 1u);
  frames = raw().pull_frames();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].payload_bytes, 200u);
  raw().sent(1);
  frames = raw().pull_frames();
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].payload_bytes, 101u);
  raw().sent(0);  // the port is full
  EXPECT_EQ(raw().pull_frames().size(), 2u);
  raw().sent(2);
  EXPECT_TRUE(raw().pull_frames().empty());
  EXPECT_EQ(poll().size(), 3u);
  EXPECT_FALSE(adapter.has_ready());  // the packet scheduler was not involved
}

TEST_F(RawPacketsTest, a_frame_that_cannot_be_sent_fails_behind_those_before_it) {
  for (const std::uint32_t bytes : {14u, 1'514u, 13u, 60u}) {
    EXPECT_EQ(post_send(*qps[0], bytes), VerbsStatus::ok);
  }
  ASSERT_EQ(raw().pull_frames().size(), 2u);
  raw().sent(2);
  EXPECT_TRUE(raw().pull_frames().empty());
  const auto done = poll();
  ASSERT_EQ(done.size(), 4u);
  EXPECT_EQ(done[1].status, CompletionStatus::success);
  EXPECT_EQ(done[2].status, CompletionStatus::local_length_error);
  EXPECT_EQ(done[3].status, CompletionStatus::flushed);
  EXPECT_EQ(qps[0]->state(), QpState::sqe);
  EXPECT_EQ(post_send(*qps[1], 1'515), VerbsStatus::ok);
  EXPECT_EQ(post_send(*qps[2], 100, 0x9999'0000), VerbsStatus::ok);
  EXPECT_TRUE(raw().pull_frames().empty());
  EXPECT_EQ(poll()[1].status, CompletionStatus::local_protection_error);
}

TEST_F(RawPacketsTest, other_operations_and_packets_are_refused) {
  verbs::SendRequest request;
  request.opcode = verbs::SendOpcode::write;
  EXPECT_EQ(adapter.post_send(*qps[0], request), VerbsStatus::invalid_argument);
  request.opcode = verbs::SendOpcode::send_with_immediate;
  EXPECT_EQ(adapter.post_send(*qps[0], request), VerbsStatus::invalid_argument);
  wire::Packet packet;
  packet.opcode = wire::opcode(wire::TransportClass::ud, wire::Operation::send_only);
  packet.destination_qp = qps[0]->number;
  packet.pkey = default_pkey;
  wire::IpUdp ip;
  ip.traffic_class = wire::ecn_congestion_experienced;
  post_receive(*qps[0]);
  adapter.handle_packet({}, packet, {memory.data(), 64}, ip);
  EXPECT_TRUE(poll().empty());
  EXPECT_FALSE(adapter.has_ready());
}

TEST_F(RawPacketsTest, flows_and_tables_keep_what_they_name) {
  Flow* flow = raw().add_flow(*qps[0], rule_for(1));
  EXPECT_EQ(adapter.destroy(qps[0]), VerbsStatus::busy);
  raw().remove(flow);
  EXPECT_EQ(post_send(*qps[0], 100), VerbsStatus::ok);
  EXPECT_EQ(adapter.destroy(qps[0]), VerbsStatus::ok);
  EXPECT_TRUE(raw().pull_frames().empty());
}

TEST_F(RawPacketsTest, frames_spread_over_work_queues_by_their_hash) {
  std::array<QueuePair*, 4> queues{};
  for (auto& queue : queues) {
    queue = create(QpType::receive_work_queue);
    post_receive(*queue, 32);
  }
  VerbsStatus status{};
  EXPECT_EQ(raw().create_table(std::span(queues).first(3), status), nullptr);
  EXPECT_EQ(status, VerbsStatus::invalid_argument);
  EXPECT_EQ(raw().create_table(qps, status), nullptr);
  IndirectionTable* table = raw().create_table(queues, status);
  ASSERT_NE(table, nullptr);
  ReceiveHash hash;
  for (std::size_t i = 0; i < hash.key.size(); ++i) hash.key[i] = static_cast<std::uint8_t>(7 * i);
  hash.fields = HashField::source_port_udp;
  raw().spread(*qps[0], *table, hash);
  Flow* flow = raw().add_flow(*qps[0], rule_for(1));
  std::array<int, 4> taken{};
  for (int port = 0; port < 32; ++port) {
    const Frame frame = frame_to(1, port);
    const auto expected = queues[hash.of(read_flow_fields(frame)) % 4]->number;
    EXPECT_EQ(receivers(frame), std::vector<QpNumber>{expected});
    for (std::size_t i = 0; i < 4; ++i) taken[i] += queues[i]->number == expected ? 1 : 0;
  }
  for (const int count : taken) EXPECT_GT(count, 0);
  EXPECT_EQ(adapter.destroy(queues[0]), VerbsStatus::busy);
  EXPECT_EQ(raw().destroy(table), VerbsStatus::busy);
  raw().remove(flow);
  EXPECT_EQ(adapter.destroy(qps[0]), VerbsStatus::ok);
  EXPECT_EQ(raw().destroy(table), VerbsStatus::ok) << "nobody spreads by it any more";
  EXPECT_EQ(adapter.destroy(queues[0]), VerbsStatus::ok);
}

}  // namespace
}  // namespace tulle::device

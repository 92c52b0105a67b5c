#include "rdma/transport/ud/engine.h"

#include <gtest/gtest.h>

#include "rdma/transport/host_test.h"

namespace tulle::transport::ud {
namespace {

using testing::bytes_of;
using testing::first_psn;
using testing::Host;
using testing::mtu;
using testing::Options;
using verbs::CompletionStatus;
using verbs::QpState;
using verbs::SendOpcode;
using wire::Operation;

constexpr std::uint32_t receive_offset = 8'192;
constexpr std::uint32_t qkey = 0x1234;  // the Q_Key that Host sets

Options ud() {
  Options options;
  options.type = verbs::QpType::ud;
  return options;
}

wire::Packet datagram(Operation operation = Operation::send_only, std::uint32_t psn_offset = 0) {
  auto out = testing::packet(wire::TransportClass::ud, operation, first_psn + psn_offset);
  out.qkey = Qkey(qkey);
  out.source_qp = QpNumber(0x99);
  return out;
}

class UdEngine : public ::testing::Test {
 protected:
  UdEngine() : host(ud()), handle(host.pd, {}) {
    host.connect();
    handle.to.destination = Gid::from_ipv4(0x0A00'0063);
  }
  verbs::VerbsStatus post(std::uint32_t bytes, std::uint32_t key = 7,
                          SendOpcode opcode = SendOpcode::send, QpNumber to = QpNumber(0x42)) {
    verbs::SendRequest request;
    request.opcode = opcode;
    request.address_handle = &handle;
    request.remote_qp = to;
    request.remote_qkey = Qkey(key);
    request.immediate = 0x01020304;
    return host.try_post(request, bytes);
  }
  std::vector<std::pair<std::uint64_t, CompletionStatus>> done() {
    std::vector<std::pair<std::uint64_t, CompletionStatus>> out;
    for (const auto& each : host.completions()) out.emplace_back(each.wr_id, each.status);
    return out;
  }
  using Done = std::vector<std::pair<std::uint64_t, CompletionStatus>>;

  Host host;
  verbs::AddressHandle handle;
};

TEST_F(UdEngine, AHandleOfAnotherDomainIsAnError) {
  verbs::ProtectionDomain other;
  handle.pd = &other;
  Host::must(post(10));
  OutgoingPacket out;
  EXPECT_FALSE(host.qp->pull(host.now, out).packet);
  EXPECT_EQ(done(), (Done{{0, CompletionStatus::local_qp_operation_error}}));
  EXPECT_EQ(host.qp->state(), verbs::QpState::sqe);
}

TEST_F(UdEngine, EachMessageGoesItsOwnWay) {
  Host::must(post(10));
  Host::must(post(mtu, 0x8000'0007, SendOpcode::send_with_immediate));
  OutgoingPacket out;
  ASSERT_TRUE(host.qp->pull(host.now, out).packet);
  EXPECT_EQ(out.packet.destination_qp, QpNumber(0x42));
  EXPECT_EQ(out.packet.qkey, Qkey(7));
  EXPECT_EQ(out.packet.source_qp, host.qp->number);
  EXPECT_EQ(out.to->destination, handle.to.destination);
  EXPECT_EQ(out.packet.psn, first_psn);
  ASSERT_TRUE(host.qp->pull(host.now, out).packet);
  EXPECT_EQ(out.packet.qkey, Qkey(qkey)) << "the top bit: the queue pair's own (IBTA 10.2.5)";
  EXPECT_EQ(out.packet.immediate, 0x01020304u);
  EXPECT_EQ(out.packet.psn, first_psn + 1);
  EXPECT_EQ(done(), (Done{{0, CompletionStatus::success}, {1, CompletionStatus::success}}));
}

TEST_F(UdEngine, NumbersHave24Bits) {
  Host::must(post(10, 7, SendOpcode::send, QpNumber(0xFF00'0042)));
  OutgoingPacket out;
  ASSERT_TRUE(host.qp->pull(host.now, out).packet);
  EXPECT_EQ(out.packet.destination_qp, QpNumber(0x42));
}

TEST_F(UdEngine, WhatIsRefusedAtOnce) {
  verbs::SendRequest request;
  EXPECT_EQ(host.try_post(request, 8), verbs::VerbsStatus::invalid_argument) << "no address";
  EXPECT_EQ(post(8, 7, SendOpcode::write), verbs::VerbsStatus::invalid_argument);
  EXPECT_EQ(post(8, 7, SendOpcode::bind_window), verbs::VerbsStatus::invalid_argument);
}

TEST_F(UdEngine, LocalErrorsStopOnlySending) {
  Host::must(post(mtu + 1));
  Host::must(post(8));
  EXPECT_TRUE(host.pull().empty());
  EXPECT_EQ(done(),
            (Done{{0, CompletionStatus::local_length_error}, {1, CompletionStatus::flushed}}));
  EXPECT_EQ(host.qp->state(), QpState::sqe);
  host.post_receive(100);
  host.deliver(datagram(), bytes_of(4));
  EXPECT_EQ(done(), (Done{{1'000, CompletionStatus::success}}));
  Host::must(host.step({}, QpState::rts));
  Host::must(post(8));
  EXPECT_EQ(host.pull().size(), 1u);
  host.environment.keys.renew(host.region);
  host.region.key ^= 1;  // the next request names a key that does not exist
  Host::must(post(8));
  host.region.key ^= 1;
  EXPECT_TRUE(host.pull().empty());
  EXPECT_EQ(done(),
            (Done{{2, CompletionStatus::success}, {3, CompletionStatus::local_protection_error}}));
}

TEST_F(UdEngine, MessagesArriveBehindAGrh) {
  host.post_receive(wire::grh_bytes + 20);
  auto packet = datagram(Operation::send_only_with_immediate, 77);  // PSNs mean nothing here
  packet.immediate = 0xA0B0C0D0;
  const auto data = bytes_of(20);
  host.deliver(packet, data);
  const auto completions = host.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].byte_length, wire::grh_bytes + 20);
  EXPECT_TRUE(completions[0].has_grh);
  EXPECT_TRUE(completions[0].has_immediate);
  EXPECT_EQ(completions[0].immediate, 0xA0B0C0D0u);
  EXPECT_EQ(completions[0].source_qp, QpNumber(0x99));
  const std::byte* at = host.memory.data() + receive_offset;
  EXPECT_TRUE(std::equal(data.begin(), data.end(), at + wire::grh_bytes));
  EXPECT_EQ(at[20], std::byte{0x45}) << "over IPv4, its header is the GRH's second half";
  EXPECT_EQ(at[32], std::byte{0x0A});
  EXPECT_EQ(at[35], std::byte{0x02});
  EXPECT_EQ(at[wire::grh_bytes + 20], Host::pattern(receive_offset + wire::grh_bytes + 20));
}

TEST_F(UdEngine, WhatDoesNotFitIsDroppedAndTheReceiveKept) {
  host.deliver(datagram(), bytes_of(4));
  EXPECT_EQ(host.counters().dropped_messages, 1u) << "no receive";
  host.post_receive(wire::grh_bytes + 4);
  host.deliver(datagram(), bytes_of(5));
  EXPECT_EQ(host.counters().dropped_messages, 2u) << "too long for it";
  auto wrong_key = datagram();
  wrong_key.qkey = Qkey(qkey + 1);
  host.deliver(wrong_key, bytes_of(4));
  host.deliver(datagram(), bytes_of(mtu + 1));
  host.deliver(testing::packet(wire::TransportClass::rc, Operation::send_only, first_psn));
  EXPECT_EQ(host.counters().dropped_packets, 3u);
  EXPECT_TRUE(host.completions().empty());
  EXPECT_EQ(host.qp->state(), QpState::rts);
  host.deliver(datagram(), bytes_of(4));
  EXPECT_EQ(done(), (Done{{1'000, CompletionStatus::success}}));
}

TEST_F(UdEngine, AReceiveWhoseMemoryIsNotItsOwnEndsIt) {
  const verbs::Sge bad{testing::iova, 100, LocalKey{host.region.key ^ 1}};
  Host::must(host.qp->post_receive({7, {&bad, 1}}));
  host.post_receive(100);
  host.deliver(datagram(), bytes_of(4));
  EXPECT_EQ(done(), (Done{{7, CompletionStatus::local_protection_error},
                          {1'000, CompletionStatus::flushed}}));
  EXPECT_EQ(host.qp->state(), QpState::error);
}

TEST_F(UdEngine, TheSameMessageTwiceIsTwoMessages) {
  for (int i = 0; i < 2; ++i) {
    host.post_receive(100);
    host.deliver(datagram(), bytes_of(4));
  }
  EXPECT_EQ(done().size(), 2u);
}

TEST_F(UdEngine, NothingIsSentWhileDrained) {
  Host::must(post(8));
  QueuePairAttributes to;
  to.sqd_async_notify = true;
  Host::must(host.step(to, QpState::sqd, verbs::QpAttribute::sqd_async_notify));
  EXPECT_EQ(host.raised(), (std::vector{verbs::EventType::send_queue_drained}));
  EXPECT_TRUE(host.pull().empty());
  Host::must(host.step({}, QpState::rts));
  EXPECT_EQ(host.pull().size(), 1u);
}

TEST_F(UdEngine, OperationsThatAreNotUds) {
  host.post_receive(600);
  for (const auto operation : {Operation::send_first, Operation::write_only,
                               Operation::read_request, Operation::acknowledge}) {
    host.deliver(datagram(operation), bytes_of(8));
  }
  EXPECT_TRUE(host.completions().empty());
}

}  // namespace
}  // namespace tulle::transport::ud

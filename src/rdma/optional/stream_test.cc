// Tests of streams as queue pairs of an adapter: refused calls, and the fate of requests when a
// stream ends.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "rdma/device/adapter.h"
#include "rdma/optional/transports.h"

namespace tulle::device {
namespace {

using verbs::CompletionStatus;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::VerbsStatus;

class Streams : public ::testing::Test {
 protected:
  Streams() : adapter(with_many_numbers()) {
    adapter.set_gids({&gid, 1});
    pd = adapter.objects().create_pd(status);
    cq = adapter.objects().create_cq(64, nullptr, status);
    memory = adapter.objects().register_memory(
        *pd, bytes.data(), bytes.size(), 0, verbs::AccessFlags(verbs::Access::local_write), status);
  }
  static Configuration with_many_numbers() {
    Configuration configuration;
    configuration.transports = &transport::all_transports();
    configuration.qp_count = configuration.limits.queue_pairs = 1u << 20;
    transport::tcp::Settings tcp;
    tcp.mss_bytes = 300;
    configuration.tcp = std::make_shared<transport::tcp::Settings>(tcp);
    return configuration;
  }
  transport::QueuePair* create(std::uint32_t hint = 0, verbs::SharedReceiveQueue* srq = nullptr) {
    transport::QueuePairInit init;
    init.type = verbs::QpType::stream;
    init.pd = pd;
    init.send_cq = init.receive_cq = cq;
    init.srq = srq;
    init.send_work_requests = init.receive_work_requests = 8;
    init.send_sges = init.receive_sges = 1;
    init.signal_all = true;
    init.number_hint = hint;
    return adapter.create_qp(init, status);
  }
  VerbsStatus step(transport::QueuePair& qp, QpState state, QpAttributeMask mask) {
    to.state = state;
    return adapter.modify(qp, to, QpAttributeMask(QpAttribute::state) | mask);
  }
  VerbsStatus connect(transport::QueuePair& qp, QpNumber peer) {
    to.destination_qp = peer;
    to.address.destination = peer_gid;
    EXPECT_EQ(step(qp, QpState::init,
                   QpAttributeMask(QpAttribute::pkey_index) | QpAttribute::port |
                       QpAttribute::access_flags),
              VerbsStatus::ok);
    const VerbsStatus rtr =
        step(qp, QpState::rtr,
             QpAttributeMask(QpAttribute::address_vector) | QpAttribute::path_mtu |
                 QpAttribute::destination_qp | QpAttribute::rq_psn |
                 QpAttribute::max_dest_rd_atomic | QpAttribute::min_rnr_timer);
    if (rtr != VerbsStatus::ok) return rtr;
    return step(qp, QpState::rts,
                QpAttributeMask(QpAttribute::timeout) | QpAttribute::retry_count |
                    QpAttribute::rnr_retry | QpAttribute::sq_psn | QpAttribute::max_rd_atomic);
  }
  VerbsStatus send(transport::QueuePair& qp, verbs::SendOpcode opcode = verbs::SendOpcode::send,
                   std::uint32_t length = 100) {
    const verbs::Sge sge{0, length, memory->lkey()};
    verbs::SendRequest request;
    request.opcode = opcode;
    request.sges = {&sge, 1};
    return adapter.post_send(qp, request);
  }
  std::vector<CompletionStatus> done() {
    std::array<verbs::Completion, 16> found;
    std::vector<CompletionStatus> statuses;
    const std::uint32_t count = cq->poll(found);
    for (std::uint32_t i = 0; i < count; ++i) statuses.push_back(found[i].status);
    return statuses;
  }

  VerbsStatus status{};
  Gid gid = Gid::from_ipv4(1), peer_gid = Gid::from_ipv4(2);
  std::array<std::byte, 1'000> bytes{};
  Adapter adapter;
  verbs::ProtectionDomain* pd = nullptr;
  verbs::CompletionQueue* cq = nullptr;
  verbs::MemoryRegion* memory = nullptr;
  transport::QueuePairAttributes to;
};

TEST_F(Streams, WhatIsRefused) {
  auto* srq = adapter.objects().create_srq(*pd, 8, 1, nullptr, status);
  EXPECT_EQ(create(0, srq), nullptr);
  EXPECT_EQ(status, VerbsStatus::invalid_argument);
  transport::QueuePair* qp = create();
  EXPECT_EQ(send(*qp), VerbsStatus::invalid_state);
  ASSERT_EQ(connect(*qp, QpNumber{7}), VerbsStatus::ok);
  for (const auto opcode : {verbs::SendOpcode::write, verbs::SendOpcode::read,
                            verbs::SendOpcode::send_with_immediate, verbs::SendOpcode::fetch_add}) {
    EXPECT_EQ(send(*qp, opcode), VerbsStatus::invalid_argument);
  }
}

// TCP tells connections apart by addresses and ports. The ports are the low bits of queue pair
// numbers.
TEST_F(Streams, TwoConnectionsHaveDifferentPorts) {
  transport::QueuePair* first = create(1);
  transport::QueuePair* second = create(2);
  EXPECT_EQ(connect(*first, QpNumber{7}), VerbsStatus::ok);
  EXPECT_EQ(connect(*second, QpNumber{7}), VerbsStatus::ok);
  // A third queue pair with the same port to the same peer could not be told from the first.
  transport::QueuePair* third = create(1 + 0x1'0000);
  EXPECT_EQ(third->number.value & 0xFFFF, first->number.value & 0xFFFF);
  EXPECT_EQ(connect(*third, QpNumber{7}), VerbsStatus::busy);
  // The same numbers work again once the first is gone.
  const QpNumber number = first->number;
  EXPECT_EQ(adapter.destroy(first), VerbsStatus::ok);
  transport::QueuePair* again = create(1);
  EXPECT_EQ(again->number, number);
  EXPECT_EQ(connect(*again, QpNumber{7}), VerbsStatus::ok);
}

TEST_F(Streams, SegmentsAreAsLongAsTheSettingsOfTheAdapterSay) {
  transport::QueuePair* qp = create();
  ASSERT_EQ(connect(*qp, QpNumber{7}), VerbsStatus::ok);
  EXPECT_EQ(send(*qp, verbs::SendOpcode::send, 1'000), VerbsStatus::ok);
  std::vector<std::uint32_t> lengths;
  for (Datagram out; adapter.pull_datagram({}, out);) lengths.push_back(out.payload_bytes);
  EXPECT_EQ(lengths, (std::vector<std::uint32_t>{300, 300, 300, 100}));
}

TEST_F(Streams, AnErrorFlushesWhatWaits) {
  transport::QueuePair* qp = create();
  ASSERT_EQ(connect(*qp, QpNumber{7}), VerbsStatus::ok);
  const verbs::Sge sge{0, 10, memory->lkey()};
  EXPECT_EQ(adapter.post_receive(*qp, {1, {&sge, 1}}), VerbsStatus::ok);
  EXPECT_EQ(send(*qp), VerbsStatus::ok);
  EXPECT_EQ(step(*qp, QpState::error, {}), VerbsStatus::ok);
  EXPECT_EQ(done(), (std::vector{CompletionStatus::flushed, CompletionStatus::flushed}));
  Datagram datagram;
  EXPECT_FALSE(adapter.pull_datagram(Time::zero(), datagram));
  EXPECT_TRUE(qp->agenda().deadline.is_never());
}

TEST_F(Streams, NobodyAnswers) {
  transport::QueuePair* qp = create();
  ASSERT_EQ(connect(*qp, QpNumber{7}), VerbsStatus::ok);
  EXPECT_EQ(send(*qp), VerbsStatus::ok);
  Time now;
  Datagram datagram;
  for (int i = 0; i < 100 && qp->state() == QpState::rts; ++i) {
    while (adapter.pull_datagram(now, datagram)) {
      EXPECT_EQ(datagram.headers, Datagram::Headers::tcp);
      EXPECT_EQ(datagram.ip().destination, peer_gid);
    }
    now = adapter.next_deadline();
    ASSERT_FALSE(now.is_never());
    adapter.handle_deadline(now);
  }
  EXPECT_EQ(done(), (std::vector{CompletionStatus::retry_exceeded_error}));
  EXPECT_EQ(qp->state(), QpState::error);
}

TEST_F(Streams, SegmentsOfNoConnectionAreCounted) {
  wire::Tcp tcp;
  wire::IpUdp ip;
  adapter.handle_segment(Time::zero(), tcp, {nullptr, 10}, ip);
  EXPECT_EQ(adapter.counters().unknown_queue_pair, 1u);
}

}  // namespace
}  // namespace tulle::device

// Tests of the requester's direct path, with a driver that moves the bytes of transfers in steps.

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "rdma/transport/host_test.h"
#include "rdma/transport/rc/responses_test.h"

namespace tulle::transport::rc {
namespace {

using testing::Host;
using testing::Options;
using verbs::CompletionStatus;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::SendOpcode;
using wire::Operation;

// Moves at most `bytes_per_step` of a transfer in a step, as often as the test says, and refuses
// where it says so.
class Peer final : public DirectPath {
 public:
  static constexpr std::uint32_t token = 9;

  std::uint32_t bytes_per_step = 1 << 20;
  int steps_left = 1'000;
  std::uint32_t refuses_from = 1 << 30;  // bytes moved after which it allows no more
  bool is_near = true;
  std::vector<Transfer> submitted;  // without their pieces
  std::uint32_t moved = 0;          // bytes in all
  std::uint64_t pieces_bytes = 0;   // of the last step

  void expose(const verbs::MemoryRegion&) override {}
  void expose(const QueuePair&) override {}
  bool withdraw(const verbs::MemoryRegion&) override { return true; }
  void withdraw(const QueuePair&) override {}
  std::uint32_t connect(const QueuePair&) override { return is_near ? token : 0; }
  bool submit(const QueuePair& qp, std::uint32_t of, const Transfer& transfer,
              Ticket& ticket) override {
    ticket = {0, 1};
    submitted.push_back(transfer);
    submitted.back().pieces = {};
    return step(qp, of, transfer, ticket);
  }
  bool step(const QueuePair&, std::uint32_t of, const Transfer& transfer, Ticket& ticket) override {
    EXPECT_EQ(of, token);
    pieces_bytes = 0;
    for (const auto& piece : transfer.pieces) pieces_bytes += piece.size();
    if (ticket.moved >= refuses_from) return false;
    if (steps_left == 0) return true;
    --steps_left;
    const std::uint32_t bytes = std::min(bytes_per_step, transfer.length - ticket.moved);
    ticket.moved += bytes;
    moved += bytes;
    return true;
  }
};

struct HasPeer {
  Peer peer;
};

// The peer outlives the queue pair, which withdraws itself from it.
struct NearHost : HasPeer, Host {
  explicit NearHost(const Options& options = {}) : Host(options) { environment.direct = &peer; }
  // Lets the transfer that is under way move once more, when the host wants to be asked again.
  std::vector<testing::Pulled> step_on() {
    const Time due = qp->agenda().deadline;
    EXPECT_LE(due, now + Time::nanoseconds(1)) << "nobody would ask";
    pass(due > now ? due - now : Time::zero());
    peer.steps_left = 1;
    return pull();
  }
};

TEST(RcRequesterDirect, AWriteAndAReadMoveWithoutPackets) {
  for (const SendOpcode opcode : {SendOpcode::write, SendOpcode::read}) {
    NearHost host;
    host.connect();
    host.post(opcode, 1'000);
    EXPECT_TRUE(host.pull().empty());
    EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}}));
    ASSERT_EQ(host.peer.submitted.size(), 1u);
    EXPECT_EQ(host.peer.submitted[0].read, opcode == SendOpcode::read);
    EXPECT_EQ(host.peer.submitted[0].length, 1'000u);
    EXPECT_EQ(host.peer.pieces_bytes, 1'000u);
    EXPECT_EQ(host.counters().direct_transfers, 1u);
    EXPECT_EQ(host.counters().direct_bytes, 1'000u);
  }
}

TEST(RcRequesterDirect, OtherRequestsAndOtherPeersHavePackets) {
  NearHost host;
  host.connect();
  host.post(SendOpcode::send, 100);
  host.post(SendOpcode::write_with_immediate, 100);
  host.post(SendOpcode::write, 0);
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_only, 0},
                                       {Operation::write_only_with_immediate, 1},
                                       {Operation::write_only, 2}}));
  NearHost far;
  far.peer.is_near = false;
  far.connect();
  far.post(SendOpcode::write, 100);
  EXPECT_EQ(shape(far.pull()), (Shape{{Operation::write_only, 0}}));
  EXPECT_TRUE(host.peer.submitted.empty() && far.peer.submitted.empty());
}

// A WRITE that goes in packets may be to the same memory, a READ from it, and a SEND may invalidate
// its key.
TEST(RcRequesterDirect, BehindPacketsThatConcernMemoryAWriteIsAPacketToo) {
  for (const auto& [opcode, operation] :
       {std::pair{SendOpcode::write_with_immediate, Operation::write_only_with_immediate},
        std::pair{SendOpcode::fetch_add, Operation::fetch_add},
        std::pair{SendOpcode::send_with_invalidate, Operation::send_only_with_invalidate}}) {
    NearHost host;
    host.connect();
    const bool is_atomic = opcode == SendOpcode::fetch_add;
    host.post(opcode, is_atomic ? 8 : 100);
    host.post(SendOpcode::write, 100);
    EXPECT_EQ(shape(host.pull()), (Shape{{operation, 0}, {Operation::write_only, 1}}));
    EXPECT_TRUE(host.peer.submitted.empty());
    if (is_atomic) continue;
    host.deliver(ack(1));
    EXPECT_EQ(done(host).size(), 2u);
    host.post(SendOpcode::write, 100);
    EXPECT_TRUE(host.pull().empty());
    EXPECT_EQ(host.peer.submitted.size(), 1u);
    EXPECT_EQ(done(host), (Done{{2, CompletionStatus::success}}));
  }
}

TEST(RcRequesterDirect, BehindSendsATransferMovesAndCompletesAfterThem) {
  for (const SendOpcode opcode : {SendOpcode::write, SendOpcode::read}) {
    NearHost host;
    host.connect();
    host.post(SendOpcode::send, 100);
    host.post(SendOpcode::send_with_immediate, 100);
    host.post(opcode, 1'000);
    host.post(SendOpcode::send, 100);
    EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_only, 0},
                                         {Operation::send_only_with_immediate, 1},
                                         {Operation::send_only, 2}}));
    EXPECT_EQ(host.peer.moved, 1'000u);
    EXPECT_TRUE(done(host).empty());
    host.deliver(ack(0));
    EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}}));
    host.deliver(ack(1));
    EXPECT_EQ(done(host), (Done{{1, CompletionStatus::success}, {2, CompletionStatus::success}}));
    host.deliver(ack(2));
    EXPECT_EQ(done(host), (Done{{3, CompletionStatus::success}}));
    EXPECT_EQ(host.counters().direct_bytes, 1'000u);
  }
}

// Requests that are sent again do not move the transfer's bytes again.
TEST(RcRequesterDirect, WhenSendsAreSentAgainATransferBetweenThemIsNot) {
  NearHost host;
  host.connect();
  host.post(SendOpcode::send, 100);
  host.post(SendOpcode::write, 1'000);
  host.post(SendOpcode::send, 100);
  EXPECT_EQ(host.pull().size(), 2u);
  host.deliver(nak(0, wire::NakCode::psn_sequence_error));
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_only, 0}, {Operation::send_only, 1}}));
  EXPECT_EQ(host.peer.moved, 1'000u);
  host.deliver(ack(1));
  EXPECT_EQ(done(host).size(), 3u);
  EXPECT_EQ(host.peer.submitted.size(), 1u);
}

// The cursor goes back while the transfer is between two steps.
TEST(RcRequesterDirect, ATransferUnderWayWaitsForSendsThatAreSentAgain) {
  NearHost host;
  host.peer.bytes_per_step = 400;
  host.peer.steps_left = 1;
  host.connect();
  host.post(SendOpcode::send, 100);
  host.post(SendOpcode::send, 100);
  host.post(SendOpcode::write, 1'000);
  EXPECT_EQ(host.pull().size(), 2u);
  EXPECT_EQ(host.peer.moved, 400u);
  host.deliver(nak(1, wire::NakCode::psn_sequence_error));
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}}));
  EXPECT_EQ(shape(host.step_on()), (Shape{{Operation::send_only, 1}}));
  EXPECT_EQ(host.peer.moved, 800u);
  host.deliver(ack(1));
  EXPECT_EQ(done(host), (Done{{1, CompletionStatus::success}}));
  host.step_on();
  EXPECT_EQ(host.peer.moved, 1'000u);
  EXPECT_EQ(done(host), (Done{{2, CompletionStatus::success}}));
  EXPECT_EQ(host.peer.submitted.size(), 1u);
}

// The receiver is not ready: nothing moves until the wait is over.
TEST(RcRequesterDirect, ATransferDoesNotOvertakeASendThatWaits) {
  NearHost host;
  host.connect();
  host.post(SendOpcode::send, 100);
  EXPECT_EQ(host.pull().size(), 1u);
  host.deliver(rnr_nak(0, 12));
  host.post(SendOpcode::write, 1'000);
  EXPECT_TRUE(host.pull().empty());
  EXPECT_EQ(host.peer.moved, 0u);
}

TEST(RcRequesterDirect, AnErrorOfASendFlushesTheTransferBehindIt) {
  NearHost host;
  host.connect();
  host.post(SendOpcode::send, 100);
  host.post(SendOpcode::write, 1'000);
  EXPECT_EQ(host.pull().size(), 1u);
  host.deliver(nak(0, wire::NakCode::remote_operational_error));
  EXPECT_EQ(done(host),
            (Done{{0, CompletionStatus::remote_operation_error}, {1, CompletionStatus::flushed}}));
}

TEST(RcRequesterDirect, ALongTransferMovesOnInTurnsAndHoldsBackWhatIsBehindIt) {
  NearHost host;
  host.peer.bytes_per_step = 400;
  host.peer.steps_left = 1;
  host.connect();
  host.post(SendOpcode::write, 1'000);
  host.post(SendOpcode::send, 10);
  EXPECT_TRUE(host.pull().empty());
  EXPECT_EQ(host.peer.moved, 400u);
  EXPECT_TRUE(host.step_on().empty());
  EXPECT_EQ(host.peer.moved, 800u);
  EXPECT_TRUE(done(host).empty());
  EXPECT_EQ(shape(host.step_on()), (Shape{{Operation::send_only, 0}}));
  EXPECT_EQ(host.peer.moved, 1'000u);
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}}));
  EXPECT_EQ(host.peer.submitted.size(), 1u);
}

// The peer's refusal decides nothing: its answer to packets does.
TEST(RcRequesterDirect, WhatIsRefusedGoesInPacketsAsAWhole) {
  for (const std::uint32_t refuses_from : {0u, 400u}) {
    NearHost host;
    host.peer.bytes_per_step = 400;
    host.peer.steps_left = 1;
    host.peer.refuses_from = refuses_from;
    host.connect();
    host.post(SendOpcode::write, 2 * testing::mtu);
    EXPECT_EQ(shape(host.pull()), (Shape{{Operation::write_first, 0}, {Operation::write_last, 1}}));
    EXPECT_EQ(host.peer.moved, refuses_from);
    EXPECT_TRUE(done(host).empty());
    EXPECT_EQ(host.counters().direct_transfers, 0u);
  }
}

// IBTA 10.3.1.7: in SQD what has started is finished, and nothing else starts.
TEST(RcRequesterDirect, ADrainingQueueFinishesItsTransferAndStartsNone) {
  NearHost host;
  host.peer.bytes_per_step = 400;
  host.peer.steps_left = 1;
  host.connect();
  host.post(SendOpcode::write, 500);
  host.post(SendOpcode::write, 300);
  EXPECT_TRUE(host.pull().empty());
  QueuePairAttributes to;
  to.sqd_async_notify = true;
  Host::must(host.step(to, QpState::sqd, QpAttribute::sqd_async_notify));
  EXPECT_TRUE(host.raised().empty()) << "a transfer is under way";
  host.step_on();
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}}));
  EXPECT_EQ(host.raised(), std::vector{verbs::EventType::send_queue_drained});
  host.peer.steps_left = 1;
  host.pull();
  EXPECT_EQ(host.peer.submitted.size(), 1u);
  Host::must(host.step({}, QpState::rts));
  host.pull();
  EXPECT_EQ(host.peer.submitted.size(), 2u);
}

// A transfer that the peer refuses half-way has not begun as far as the peer knows.
TEST(RcRequesterDirect, ADrainingQueueIsDrainedWhenItsTransferIsRefused) {
  NearHost host;
  host.peer.bytes_per_step = host.peer.refuses_from = 400;
  host.connect();
  host.peer.steps_left = 0;
  host.post(SendOpcode::write, 500);
  EXPECT_TRUE(host.pull().empty());
  QueuePairAttributes to;
  to.sqd_async_notify = true;
  Host::must(host.step(to, QpState::sqd, QpAttribute::sqd_async_notify));
  EXPECT_TRUE(host.step_on().empty());
  EXPECT_EQ(host.peer.moved, 400u);
  EXPECT_EQ(host.raised(), std::vector{verbs::EventType::send_queue_drained});
  EXPECT_TRUE(done(host).empty());
}

// IBTA 10.8.3.3.
TEST(RcRequesterDirect, WithoutDepthAReadIsRefusedAndAWriteIsNot) {
  Options options;
  options.depth = 0;
  NearHost host(options);
  host.connect();
  host.post(SendOpcode::write, 100);
  host.pull();
  EXPECT_EQ(host.peer.submitted.size(), 1u);
  host.post(SendOpcode::read, 100);
  host.pull();
  EXPECT_EQ(host.peer.submitted.size(), 1u);
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success},
                              {1, CompletionStatus::local_qp_operation_error}}));
}

// A region may be deregistered while a transfer is under way. The request then fails in packets.
TEST(RcRequesterDirect, EachStepAsksForTheLocalKeysAgain) {
  NearHost host;
  host.peer.bytes_per_step = 400;
  host.peer.steps_left = 1;
  host.connect();
  host.post(SendOpcode::write, 1'000);
  EXPECT_TRUE(host.pull().empty());
  host.environment.keys.remove(host.region);
  EXPECT_TRUE(host.step_on().empty());
  EXPECT_EQ(host.peer.moved, 400u);
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::local_protection_error}}));
}

}  // namespace
}  // namespace tulle::transport::rc

// Tests what each side of a reliable connection does about an error, where neither the requester's
// nor the responder's tests do. docs/error-classes.md lists the classes and the test of each.

#include <gtest/gtest.h>

#include "rdma/transport/host_test.h"
#include "rdma/transport/rc/requester.h"
#include "rdma/transport/rc/requests_test.h"
#include "rdma/transport/rc/responder.h"
#include "rdma/transport/rc/responses_test.h"

namespace tulle::transport::rc {
namespace {

using testing::bytes_of;
using testing::first_psn;
using testing::Host;
using testing::mtu;
using testing::Options;
using testing::Pulled;
using verbs::Access;
using verbs::CompletionStatus;
using verbs::EventType;
using verbs::QpState;
using verbs::SendOpcode;
using wire::AckKind;
using wire::NakCode;
using wire::Operation;

using Done = std::vector<std::pair<std::uint64_t, CompletionStatus>>;
Done done(Host& host) {
  Done out;
  for (const auto& each : host.completions()) out.emplace_back(each.wr_id, each.status);
  return out;
}

// Returns the only answer's syndrome, or a reserved one if there are none or several.
wire::Syndrome only_answer(Host& host) {
  const std::vector<Pulled> pulled = host.pull();
  const bool is_one =
      pulled.size() == 1 && wire::operation_of(pulled[0].packet.opcode) == Operation::acknowledge;
  return is_one ? pulled[0].packet.syndrome : wire::Syndrome{AckKind::reserved, 0};
}
wire::Syndrome nak(NakCode code) { return {AckKind::nak, static_cast<std::uint8_t>(code)}; }

// --- the requester ---

TEST(RcErrorClasses, AMisalignedAtomicIsRefusedByThePeer) {
  for (const SendOpcode opcode :
       {SendOpcode::fetch_add, SendOpcode::compare_swap, SendOpcode::atomic_write}) {
    Host host;
    host.connect();
    verbs::SendRequest misaligned;
    misaligned.opcode = opcode;
    misaligned.rkey = host.region.rkey();
    misaligned.remote_address = testing::iova + 4;
    host.post(misaligned, 8);
    const auto pulled = host.pull();
    ASSERT_EQ(pulled.size(), 1u);
    // The peer is a queue pair like this one.
    Host peer;
    peer.connect();
    wire::Packet arriving = pulled[0].packet;
    arriving.rkey = peer.region.rkey();
    peer.deliver(arriving, pulled[0].payload);
    const auto answers = peer.pull();
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].packet.syndrome, nak(NakCode::invalid_request));
    EXPECT_EQ(peer.raised(), (std::vector{EventType::qp_request_error}));
    EXPECT_EQ(peer.memory[4], Host::pattern(4));
    host.deliver(answers[0].packet);
    EXPECT_EQ(done(host), (Done{{0, CompletionStatus::remote_invalid_request_error}}));
  }
}

TEST(RcErrorClasses, TheBackOffOfTimersIsBounded) {
  // Returns the time of 6 tries, in which nothing is answered.
  const auto time_to_fail = [](std::uint8_t timeout, Time bound) {
    Options options;
    options.timeout = timeout;
    options.retry_count = 5;
    options.recovery.backed_off_timeout_max = bound;
    Host host(options);
    host.connect();
    host.post(SendOpcode::send, 10);
    const Time start = host.now;
    for (int tries = 0; tries < 6; ++tries) {
      EXPECT_EQ(host.pull().size(), 1u);
      host.pass(host.qp->agenda().deadline - host.now);
    }
    EXPECT_EQ(done(host), (Done{{0, CompletionStatus::retry_exceeded_error}}));
    return host.now - start;
  };
  const Time bound = ack_timeout(17);
  EXPECT_EQ(time_to_fail(18, bound), ack_timeout(18) * 6);
  EXPECT_EQ(time_to_fail(17, bound), ack_timeout(17) * 6);
  EXPECT_EQ(time_to_fail(16, bound), ack_timeout(16) * (1 + 2 * 5));
  EXPECT_EQ(time_to_fail(14, bound), ack_timeout(14) * (1 + 2 + 4 * 4));
  EXPECT_EQ(time_to_fail(18, Time::never()), ack_timeout(18) * (1 + 2 + 4 * 4));
}

TEST(RcErrorClasses, AShortTimerMayBackOffToTheBound) {
  Options options;
  options.timeout = 10;
  options.retry_count = 7;
  options.recovery.backed_off_timeout_max = ack_timeout(17);
  options.recovery.back_off_doublings = 7;
  Host host(options);
  host.connect();
  host.post(SendOpcode::send, 10);
  const Time start = host.now;
  for (int tries = 0; tries < 8; ++tries) {
    EXPECT_EQ(host.pull().size(), 1u);
    host.pass(host.qp->agenda().deadline - host.now);
  }
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::retry_exceeded_error}}));
  EXPECT_EQ(host.now - start, ack_timeout(10) * 255) << "a second, and not 0.1 s";
}

// A timer that is handled late shows that this end did not run. It runs on once, without a retry.
TEST(RcErrorClasses, TimeInWhichThisEndDidNotRunTakesNoRetry) {
  Options options;
  options.timeout = 14;
  options.retry_count = 0;
  options.recovery.late_after = Time::milliseconds(5);
  Host host(options);
  host.connect();
  host.post(SendOpcode::send, 10);
  host.post(SendOpcode::send, 10);
  EXPECT_EQ(host.pull().size(), 2u);
  const Time gap = Time::milliseconds(20);
  host.pass(host.qp->agenda().deadline - host.now + gap);
  EXPECT_EQ(host.counters().ack_timeouts, 0u);
  EXPECT_EQ(host.qp->agenda().deadline, host.now + gap);
  // Progress lets the next gap count again.
  host.deliver(ack(0));
  host.pass(host.qp->agenda().deadline - host.now + gap);
  EXPECT_EQ(host.counters().ack_timeouts, 0u);
  // Without progress, the second gap is the peer's fault.
  host.pass(host.qp->agenda().deadline - host.now + gap);
  EXPECT_EQ(host.counters().ack_timeouts, 1u);
  EXPECT_EQ(done(host),
            (Done{{0, CompletionStatus::success}, {1, CompletionStatus::retry_exceeded_error}}));
}

// --- the responder ---

TEST(RcErrorClasses, AKeyThatCannotBeInvalidatedIsNotAnsweredWithANak) {
  for (const bool asks : {true, false}) {
    Host host;
    host.connect();
    host.post_receive(10);
    host.post_receive(10);
    auto packet = request(Operation::send_only_with_invalidate, 0);
    packet.invalidate_rkey = host.region.rkey();  // a region's key is its owner's to invalidate
    packet.ack_request = asks;
    host.deliver(packet, bytes_of(3));
    EXPECT_EQ(done(host), (Done{{1'000, CompletionStatus::memory_window_bind_error},
                                {1'001, CompletionStatus::flushed}}));
    EXPECT_EQ(host.qp->state(), QpState::error);
    const auto pulled = host.pull();
    ASSERT_EQ(pulled.size(), asks ? 1u : 0u);
    if (asks) {
      EXPECT_EQ(pulled[0].packet.syndrome.kind, AckKind::ack);
      EXPECT_EQ(pulled[0].packet.psn, first_psn);
      EXPECT_EQ(pulled[0].packet.msn, 1u);
    }
    host.deliver(request(Operation::send_only, 1));
    EXPECT_TRUE(host.pull().empty()) << "a queue pair in error does not answer";
    EXPECT_EQ(host.counters().remote_errors_sent, 0u);
  }
}

TEST(RcErrorClasses, AWriteWithImmediateThatIsRefusedFailsItsReceive) {
  Host host;
  host.connect();
  host.post_receive(10);
  host.post_receive(10);
  auto write = remote(host, Operation::write_only_with_immediate, 0, 0, 8);
  write.rkey.value ^= 1;
  host.deliver(write, bytes_of(8));
  EXPECT_EQ(only_answer(host), nak(NakCode::remote_access_error));
  EXPECT_EQ(done(host), (Done{{1'000, CompletionStatus::local_access_error},
                              {1'001, CompletionStatus::flushed}}));
  EXPECT_TRUE(host.raised().empty()) << "the completion says it";
}

// The region goes away before the last packet, which names the receive request, or before the
// packet in front of it, which does not.
TEST(RcErrorClasses, AWriteWithImmediateThatIsRefusedInItsMiddle) {
  for (const bool at_its_end : {true, false}) {
    Host host;
    host.connect();
    host.post_receive(10);
    host.deliver(remote(host, Operation::write_first, 0, 0, 3 * mtu), bytes_of(mtu));
    if (at_its_end) host.deliver(request(Operation::write_middle, 1), bytes_of(mtu));
    host.environment.keys.renew(host.region);
    const auto refused = at_its_end ? request(Operation::write_last_with_immediate, 2)
                                    : request(Operation::write_middle, 1);
    host.deliver(refused, bytes_of(mtu));
    EXPECT_EQ(only_answer(host), nak(NakCode::remote_access_error));
    EXPECT_EQ(done(host), (Done{{1'000, at_its_end ? CompletionStatus::local_access_error
                                                   : CompletionStatus::flushed}}));
    const std::vector<EventType> raised =
        at_its_end ? std::vector<EventType>{} : std::vector{EventType::qp_access_error};
    EXPECT_EQ(host.raised(), raised);
    EXPECT_EQ(host.qp->state(), QpState::error);
  }
}

// The SEND that arrives while a READ is answered has no part in the READ's error.
TEST(RcErrorClasses, AReadThatCannotBeAnsweredFlushesTheReceiveOfAnotherMessage) {
  Host host;
  host.connect();
  host.post_receive(2 * mtu);
  host.deliver(remote(host, Operation::read_request, 0, 0, 8));
  host.deliver(request(Operation::send_first, 1), bytes_of(mtu));
  host.environment.keys.renew(host.region);
  EXPECT_EQ(only_answer(host), nak(NakCode::remote_access_error));
  EXPECT_EQ(done(host), (Done{{1'000, CompletionStatus::flushed}}));
  EXPECT_EQ(host.raised(), (std::vector{EventType::qp_access_error}));
}

// The address is aligned, but a region may begin anywhere in memory.
TEST(RcErrorClasses, AtomicsOnMemoryThatIsNotAligned) {
  for (const Operation operation : {Operation::fetch_add, Operation::atomic_write}) {
    Host host;
    host.connect();
    host.region.memory += 4;
    host.region.length -= 8;
    host.deliver(remote(host, operation, 0, 16, 8),
                 bytes_of(operation == Operation::atomic_write ? 8 : 0));
    EXPECT_EQ(only_answer(host), nak(NakCode::invalid_request));
    EXPECT_EQ(host.memory[20], Host::pattern(20));
  }
}

// IBTA 10.2.9: the local keys of receive requests belong to the protection domain of their queue.
TEST(RcErrorClasses, SharedReceivesUseTheDomainOfTheirQueue) {
  for (const bool of_queue_pair : {true, false}) {
    Options options;
    options.shared_receives = true;
    Host host(options);
    verbs::ProtectionDomain other;
    host.srq.pd = &other;
    verbs::MemoryRegion region;
    region.pd = &other;
    region.memory = host.memory.data();
    region.length = host.memory.size();
    region.iova = testing::iova;
    region.access = Access::local_write;
    host.environment.keys.add(region);
    host.connect();
    const verbs::Sge sge{testing::iova, 10, of_queue_pair ? host.region.lkey() : region.lkey()};
    Host::must(host.srq.queue.post({7, {&sge, 1}}));
    host.deliver(request(Operation::send_only, 0), bytes_of(10));
    if (of_queue_pair) {
      EXPECT_EQ(done(host), (Done{{7, CompletionStatus::local_protection_error}}));
      EXPECT_EQ(only_answer(host), nak(NakCode::remote_operational_error));
      EXPECT_EQ(host.memory[0], Host::pattern(0));
    } else {
      EXPECT_EQ(done(host), (Done{{7, CompletionStatus::success}}));
      EXPECT_EQ(host.memory[0], bytes_of(10)[0]);
      // Remote keys remain the queue pair's.
      host.deliver(remote(host, Operation::write_only, 1, 64, 8), bytes_of(8));
      EXPECT_EQ(host.memory[64], bytes_of(8)[0]);
      EXPECT_EQ(host.qp->state(), QpState::rts);
    }
    host.environment.keys.remove(region);
  }
}

}  // namespace
}  // namespace tulle::transport::rc

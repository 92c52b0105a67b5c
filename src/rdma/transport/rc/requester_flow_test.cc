// The requester while the responder is not ready, and the credits by which it knows beforehand.

#include <gtest/gtest.h>

#include "rdma/transport/host_test.h"
#include "rdma/transport/rc/requester.h"
#include "rdma/transport/rc/responses_test.h"

namespace tulle::transport::rc {
namespace {

using testing::bytes_of;
using testing::Host;
using testing::mtu;
using testing::Options;
using verbs::CompletionStatus;
using verbs::QpState;
using verbs::SendOpcode;
using wire::Operation;

constexpr Time ack_time = Time::nanoseconds(4'096) * 1'024;  // code 10

// --- receiver not ready ---

// IBTA 9.7.5.2.8: the RNR retries are those of one request, so any number of requests may each need
// all of them.
TEST(RcRequesterFlow, ProgressGivesTheRnrRetriesBack) {
  Options options;
  options.rnr_retry = 2;
  Host host(options);
  host.connect();
  for (int i = 0; i < 4; ++i) host.post(SendOpcode::send, 10);
  for (std::uint32_t i = 0; i < 4; ++i) {
    for (int retry = 0; retry < 2; ++retry) {
      host.pull();
      host.deliver(rnr_nak(i, 1));
      host.pass(rnr_timer(1));
    }
    host.pull();
    host.deliver(ack(i));
    ASSERT_EQ(done(host), (Done{{i, CompletionStatus::success}})) << i;
  }
  EXPECT_EQ(host.counters().rnr_naks_received, 8u);
}

// The RNR NAK of a SEND behind a READ says that the READ was executed. Its responses are lost, and
// the READ is asked for again at once: the SEND is not what the requester waits for.
TEST(RcRequesterFlow, AnRnrNakThatJumpsOverAReadImpliesItsLoss) {
  Host host;
  host.connect();
  host.post(SendOpcode::read, 10);
  host.post(SendOpcode::send, 10);
  EXPECT_EQ(host.pull().size(), 2u);
  host.deliver(rnr_nak(1, 12));
  EXPECT_EQ(host.counters().implied_naks, 1u);
  EXPECT_EQ(host.counters().rnr_naks_received, 0u);
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::read_request, 0}, {Operation::send_only, 1}}));
  host.deliver(answer(Operation::read_response_only, 0), bytes_of(10));
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}}));
}

// While the requester waits for the responder to be ready, it sends nothing, whatever else is
// missing. Thus no answer can be late, and the wait costs no retries and no congestion window.
TEST(RcRequesterFlow, AnImpliedNakDuringAnRnrWaitChangesNothing) {
  Options options;
  options.retry_count = 1;
  options.window = {true, 8, 64};
  Host host(options);
  host.connect();
  host.post(SendOpcode::send, 10);
  host.post(SendOpcode::read, 10);
  host.post(SendOpcode::send, 10);
  EXPECT_EQ(host.pull().size(), 3u);
  host.deliver(rnr_nak(0, 31));  // 491 ms, which is more than a hundred times the ACK timeout
  const std::uint32_t window = host.qp->congestion.window_packets();
  const Time end = host.qp->agenda().deadline;
  EXPECT_EQ(end, host.now + rnr_timer(31));
  host.deliver(ack(2));  // from before the wait: all has arrived, except for the READ's response
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}}));
  EXPECT_EQ(host.counters().implied_naks, 1u);
  EXPECT_EQ(host.qp->congestion.window_packets(), window + 1) << "one packet was acknowledged";
  for (int i = 0; i < 4; ++i) host.pass(ack_time * 8);
  EXPECT_TRUE(host.pull().empty());
  EXPECT_EQ(host.counters().ack_timeouts, 0u);
  EXPECT_EQ(host.qp->state(), QpState::rts);
  host.pass(end - host.now);
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::read_request, 1}, {Operation::send_only, 2}}));
}

// --- credits ---

// A responder that gets receive requests while nothing is under way repeats its last
// acknowledgement to tell of them (IBTA 9.7.7.2.5).
TEST(RcRequesterFlow, ARepeatedAckBringsNewCredits) {
  Host host;
  host.connect();
  for (int i = 0; i < 5; ++i) host.post(SendOpcode::send, 8);
  EXPECT_EQ(host.pull(2).size(), 2u);
  host.deliver(ack(0, 0));
  EXPECT_TRUE(host.pull().empty()) << "no credits, and one message in flight";
  host.deliver(ack(0, 3));  // three behind the first, of which one has started
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_only, 2}, {Operation::send_only, 3}}));
}

// IBTA 9.7.7.2: each packet with an AETH brings credits. The middle of a READ's responses has none.
TEST(RcRequesterFlow, ReadResponsesBringCredits) {
  Host host;
  host.connect();
  host.post(SendOpcode::send, 8);
  host.pull();
  host.deliver(ack(0, 1));
  host.post(SendOpcode::read, 3 * mtu);
  for (int i = 0; i < 6; ++i) host.post(SendOpcode::send, 8);
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::read_request, 1}, {Operation::send_only, 4}}));
  host.deliver(answer(Operation::read_response_first, 1, wire::AckKind::ack, 3), bytes_of(mtu));
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_only, 5}, {Operation::send_only, 6}}));
  host.deliver(answer(Operation::read_response_middle, 2, wire::AckKind::ack, 5), bytes_of(mtu));
  EXPECT_TRUE(host.pull().empty()) << "the field is not there";
  host.deliver(answer(Operation::read_response_last, 3, wire::AckKind::ack, 4), bytes_of(mtu));
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_only, 7}}));
}

TEST(RcRequesterFlow, AtomicResponsesBringCredits) {
  Host host;
  host.connect();
  host.post(SendOpcode::send, 8);
  host.pull();
  host.deliver(ack(0, 0));
  host.post(SendOpcode::fetch_add, 8);
  for (int i = 0; i < 3; ++i) host.post(SendOpcode::send, 8);
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::fetch_add, 1}}));
  host.deliver(answer(Operation::atomic_acknowledge, 1, wire::AckKind::ack, 2));
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_only, 2}, {Operation::send_only, 3}}));
}

// --- local operations ---

// A retry of the request before it may need the key still.
TEST(RcRequesterFlow, AnInvalidateWaitsForTheOneRequestBeforeIt) {
  Host host;
  host.connect();
  verbs::MemoryWindow window;
  window.pd = &host.pd;
  window.type = verbs::WindowType::type2;
  host.environment.keys.add(window);
  verbs::WindowBinding binding;
  binding.region = &host.region;
  binding.address = testing::iova;
  binding.length = 64;
  binding.access = verbs::Access::remote_write;
  ASSERT_TRUE(host.environment.keys.bind(window, host.pd, host.qp->number, binding));
  host.post(SendOpcode::send, 8);
  verbs::SendRequest invalidate;
  invalidate.opcode = SendOpcode::local_invalidate;
  invalidate.invalidate_rkey = window.rkey();
  host.post(invalidate, 0);
  EXPECT_EQ(host.pull().size(), 1u);
  EXPECT_NE(window.region, nullptr);
  host.deliver(ack(0));
  EXPECT_TRUE(host.pull().empty());
  EXPECT_EQ(window.region, nullptr);
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}, {1, CompletionStatus::success}}));
}

}  // namespace
}  // namespace tulle::transport::rc

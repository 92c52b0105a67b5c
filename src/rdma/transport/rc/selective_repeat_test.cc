// Tests of both ends of selective repeat, and of go-back-0.

#include <gtest/gtest.h>

#include "rdma/transport/host_test.h"
#include "rdma/transport/rc/requester.h"
#include "rdma/transport/rc/requests_test.h"
#include "rdma/transport/rc/responses_test.h"

namespace tulle::transport::rc {
namespace {

using testing::bytes_of;
using testing::first_psn;
using testing::Host;
using testing::mtu;
using testing::Options;
using testing::Pulled;
using verbs::CompletionStatus;
using verbs::SendOpcode;
using wire::AckKind;
using wire::NakCode;
using wire::Operation;

constexpr std::uint32_t receive_offset = 8'192;

Options with(Recovery kind, std::uint32_t window = 8) {
  Options options;
  options.recovery.kind = kind;
  options.recovery.window_packets = window;
  return options;
}

wire::Packet nack(std::uint32_t expected, std::uint32_t early) {
  wire::Packet out;
  out.opcode = wire::selective_acknowledge;
  out.psn = first_psn + expected;
  out.early_psn = first_psn + early;
  out.syndrome = {AckKind::nak, static_cast<std::uint8_t>(NakCode::psn_sequence_error)};
  return out;
}

std::vector<int> psns(const std::vector<Pulled>& pulled) {
  std::vector<int> out;
  out.reserve(pulled.size());
  for (const Pulled& each : pulled) out.push_back(each.packet.psn.distance_from(first_psn));
  return out;
}
using Psns = std::vector<int>;

// Returns the PSN of each answer, and for a NACK the PSN of the packet that came early.
std::vector<std::pair<int, int>> answers(Host& host) {
  std::vector<std::pair<int, int>> out;
  for (const Pulled& each : host.pull()) {
    const bool selective = each.packet.opcode == wire::selective_acknowledge;
    out.emplace_back(each.packet.psn.distance_from(first_psn),
                     selective ? each.packet.early_psn.distance_from(first_psn) : -1);
  }
  return out;
}
using Answers = std::vector<std::pair<int, int>>;

// --- the responder ---

TEST(SelectiveRepeat, SendPastExpectedFuture) {
  Host host(with(Recovery::selective_repeat));
  host.connect();
  for (std::uint32_t i = 0; i < 4; ++i) host.post_receive(100, receive_offset + 100 * i);
  host.deliver(request(Operation::send_only, 2), bytes_of(50, 2));
  host.deliver(request(Operation::send_only, 1), bytes_of(50, 1));
  EXPECT_EQ(answers(host), (Answers{{0, 2}, {0, 1}})) << "each that comes early";
  EXPECT_EQ(host.counters().sequence_naks_sent, 2u);
  EXPECT_TRUE(host.completions().empty());
  host.deliver(request(Operation::send_only, 0), bytes_of(50, 0));
  EXPECT_EQ(answers(host), (Answers{{2, -1}})) << "the gap has closed";
  const auto completions = host.completions();
  ASSERT_EQ(completions.size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(completions[i].wr_id, 1'000 + i) << "in order";
    const auto data = bytes_of(50, static_cast<int>(i));
    EXPECT_TRUE(std::equal(data.begin(), data.end(),
                           host.memory.begin() + receive_offset + 100 * std::ptrdiff_t{i}));
  }
  host.deliver(request(Operation::send_only, 1), bytes_of(50, 9));
  EXPECT_EQ(answers(host), (Answers{{2, -1}})) << "of the past";
  EXPECT_TRUE(host.completions().empty());
}

TEST(SelectiveRepeat, AnEarlyWriteDoesNotShowBeforeTheOnesBeforeIt) {
  Host host(with(Recovery::selective_repeat));
  host.connect();
  const auto data = bytes_of(mtu);
  host.deliver(remote(host, Operation::write_only, 2, 0, 4), bytes_of(4, 77));
  EXPECT_EQ(host.memory[0], Host::pattern(0));
  host.deliver(remote(host, Operation::write_first, 0, 0, mtu + 3), data);
  host.deliver(remote(host, Operation::write_last, 1, 0, 0), bytes_of(3, 5));
  EXPECT_EQ(host.memory[0], bytes_of(4, 77)[0]) << "the last of them";
  EXPECT_EQ(host.memory[5], data[5]);
  EXPECT_EQ(host.memory[mtu], bytes_of(3, 5)[0]);
  EXPECT_EQ(answers(host), (Answers{{2, -1}}));
}

TEST(SelectiveRepeat, NothingIsHeldBeyondTheWindow) {
  Host host(with(Recovery::selective_repeat, 4));
  host.connect();
  for (int i = 0; i < 2; ++i) host.post_receive(10);
  host.deliver(request(Operation::send_only, 4), bytes_of(10));
  host.deliver(request(Operation::send_only, 1), bytes_of(mtu + 1));
  EXPECT_TRUE(answers(host).empty());
  EXPECT_EQ(host.counters().dropped_packets, 2u);
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  EXPECT_EQ(answers(host), (Answers{{0, -1}}));
}

TEST(SelectiveRepeat, AHeldSendWithoutAReceiveIsAskedForAgain) {
  Host host(with(Recovery::selective_repeat));
  host.connect();
  host.post_receive(10);
  host.deliver(request(Operation::send_only, 1), bytes_of(10));
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  const auto pulled = host.pull();
  ASSERT_EQ(psns(pulled), (Psns{1}));
  EXPECT_EQ(pulled[0].packet.syndrome.kind, AckKind::rnr_nak);
  host.completions();
  host.post_receive(10);
  host.deliver(request(Operation::send_only, 1), bytes_of(10));
  EXPECT_EQ(answers(host), (Answers{{1, -1}}));
  EXPECT_EQ(host.completions().size(), 1u);
}

TEST(SelectiveRepeat, AHeldRequestThatIsWrongEndsTheConnectionInItsTurn) {
  Host host(with(Recovery::selective_repeat));
  host.connect();
  host.post_receive(10);
  host.deliver(request(Operation::send_middle, 1), bytes_of(mtu));
  answers(host);
  EXPECT_EQ(host.qp->state(), verbs::QpState::rts);
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  EXPECT_EQ(host.qp->state(), verbs::QpState::error);
  EXPECT_EQ(answers(host), (Answers{{1, -1}}));
}

// --- the requester ---

TEST(SelectiveRepeat, SendsAgainWhatIsMissingAndThenWhatIsNew) {
  Host host(with(Recovery::selective_repeat));
  host.connect();
  host.post(SendOpcode::write, 20 * mtu);
  EXPECT_EQ(psns(host.pull()), (Psns{0, 1, 2, 3, 4, 5, 6, 7})) << "the window";
  host.deliver(nack(2, 4));
  const auto again = host.pull();
  EXPECT_EQ(psns(again), (Psns{2, 3, 8, 9}));
  EXPECT_EQ(wire::operation_of(again[0].packet.opcode), Operation::write_middle);
  EXPECT_EQ(again[0].payload.front(), Host::pattern(2 * mtu));
  EXPECT_TRUE(again[0].packet.ack_request);
  EXPECT_EQ(host.counters().retransmitted_packets, 2u);
  host.deliver(nack(2, 5));
  EXPECT_TRUE(host.pull().empty()) << "each once";
  host.deliver(ack(7));
  EXPECT_EQ(psns(host.pull()).front(), 10);
}

TEST(SelectiveRepeat, NacksPastAndMalformed) {
  Host host(with(Recovery::selective_repeat));
  host.connect();
  host.post(SendOpcode::write, 20 * mtu);
  host.pull();
  host.deliver(ack(3));
  host.pull();
  host.deliver(nack(1, 2));    // a late NACK
  host.deliver(nack(4, 4));    // the early packet is the missing one
  host.deliver(nack(4, 100));  // the early packet was never sent
  host.deliver(nack(100, 101));
  EXPECT_TRUE(host.pull().empty());
  EXPECT_EQ(host.counters().retransmitted_packets, 0u);
}

TEST(SelectiveRepeat, TimesOutByHowMuchIsInFlight) {
  const RecoverySettings defaults;
  Host host(with(Recovery::selective_repeat));
  host.connect();
  host.post(SendOpcode::write, 3 * mtu);
  host.pull();
  host.pass(defaults.timeout_low);
  EXPECT_EQ(psns(host.pull()), (Psns{0})) << "one packet";
  host.deliver(ack(0));
  EXPECT_EQ(psns(host.pull()), (Psns{1})) << "the next that is missing";
  host.deliver(ack(2));
  EXPECT_EQ(host.completions().size(), 1u);
  host.post(SendOpcode::write, 4 * mtu);
  host.pull();
  host.pass(defaults.timeout_low);
  EXPECT_TRUE(host.pull().empty());
  host.pass(defaults.timeout_high - defaults.timeout_low);
  EXPECT_EQ(psns(host.pull()), (Psns{3}));
}

// Returns how long a queue pair with two retries keeps trying while its peer is silent.
Time time_to_failure(const Options& options) {
  Host host(options);
  host.connect();
  host.post(SendOpcode::write, 10);
  host.pull();
  const Time began = host.now;
  while (host.qp->state() == verbs::QpState::rts && host.now < began + ack_timeout(10) * 20) {
    host.pass(Time::microseconds(100));
    host.pull();
  }
  EXPECT_EQ(host.completions()[0].status, CompletionStatus::retry_exceeded_error);
  return host.now - began;
}

TEST(SelectiveRepeat, FailsWhenTheApplicationsTimeOutHasRunOutSoManyTimes) {
  Options options = with(Recovery::selective_repeat);
  options.recovery.backed_off_timeout_max = ack_timeout(10);
  const Time bounded = time_to_failure(options);
  EXPECT_GE(bounded, ack_timeout(10) * 3) << "a first time and two retries";
  EXPECT_LT(bounded, ack_timeout(10) * 4);
}

// A process that does not run for a while cannot answer as an adapter can.
TEST(SelectiveRepeat, TheApplicationsTimeOutGrowsWithEachRetry) {
  const Time time = time_to_failure(with(Recovery::selective_repeat));
  EXPECT_GE(time, ack_timeout(10) * (1 + 2 + 4));
  EXPECT_LT(time, ack_timeout(10) * 8);
}

TEST(SelectiveRepeat, AskForAReadThatWasLost) {
  Host host(with(Recovery::selective_repeat));
  host.connect();
  host.post(SendOpcode::read, 3 * mtu);
  host.post(SendOpcode::write, 10);
  EXPECT_EQ(psns(host.pull()), (Psns{0, 3}));
  host.deliver(nack(0, 3));
  const auto again = host.pull();
  ASSERT_EQ(psns(again), (Psns{0}));
  EXPECT_EQ(again[0].packet.dma_length, 3 * mtu);
}

// --- ends with different settings ---

TEST(SelectiveRepeat, ANackIsNothingToGoBackN) {
  Host host;
  host.connect();
  host.post(SendOpcode::write, 4 * mtu);
  host.pull();
  host.deliver(nack(1, 2));
  EXPECT_TRUE(host.pull().empty());
  EXPECT_EQ(host.counters().dropped_packets, 1u);
  EXPECT_EQ(host.qp->state(), verbs::QpState::rts);
}

TEST(SelectiveRepeat, AnswersANakOfGoBackNByGoingBack) {
  Host host(with(Recovery::selective_repeat));
  host.connect();
  host.post(SendOpcode::write, 5 * mtu);
  host.pull();
  host.deliver(nak(2, NakCode::psn_sequence_error));
  EXPECT_EQ(psns(host.pull()), (Psns{2, 3, 4}));
}

// --- go-back-0 ---

TEST(GoBack0, TheResponderBeginsTheMessageAnew) {
  Host host(with(Recovery::go_back_0, 0));
  host.connect();
  const auto data = bytes_of(mtu);
  host.deliver(remote(host, Operation::write_only, 0, 0, 4), bytes_of(4));
  host.deliver(remote(host, Operation::write_first, 1, 0, 4 * mtu), data);
  host.deliver(remote(host, Operation::write_middle, 2, 0, 0), data);
  answers(host);
  host.deliver(remote(host, Operation::write_last, 4, 0, 0), data);
  EXPECT_EQ(answers(host), (Answers{{1, -1}}));
  auto again = remote(host, Operation::write_first, 1, 0, 4 * mtu);
  again.ack_request = true;
  host.deliver(again, data);
  EXPECT_EQ(answers(host), (Answers{{1, -1}}));
}

TEST(GoBack0, TheRequesterBeginsTheMessageAnew) {
  Host host(with(Recovery::go_back_0, 0));
  host.connect();
  host.post(SendOpcode::write, mtu);
  host.post(SendOpcode::write, 3 * mtu);
  host.pull();
  for (int i = 0; i < 2; ++i) {
    host.deliver(ack(2));  // acknowledges a part
    host.deliver(nak(1, NakCode::psn_sequence_error));
    EXPECT_EQ(psns(host.pull()), (Psns{1, 2, 3}));
  }
  host.deliver(ack(3));
  EXPECT_EQ(host.completions().size(), 2u);
}

}  // namespace
}  // namespace tulle::transport::rc

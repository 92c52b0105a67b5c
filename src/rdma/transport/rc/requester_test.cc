#include "rdma/transport/rc/requester.h"

#include <gtest/gtest.h>

#include "rdma/transport/host_test.h"
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
using verbs::QpState;
using verbs::SendFlag;
using verbs::SendFlags;
using verbs::SendOpcode;
using wire::AckKind;
using wire::NakCode;
using wire::Operation;

constexpr Time ack_time = Time::nanoseconds(4'096) * 1'024;  // code 10

TEST(RcRequester, CutsMessagesIntoPackets) {
  Host host;
  host.connect();
  for (const std::uint32_t bytes : {0u, 1u, mtu, mtu + 1, 3 * mtu})
    host.post(SendOpcode::send, bytes);
  const auto pulled = host.pull();
  EXPECT_EQ(shape(pulled), (Shape{{Operation::send_only, 0},
                                  {Operation::send_only, 1},
                                  {Operation::send_only, 2},
                                  {Operation::send_first, 3},
                                  {Operation::send_last, 4},
                                  {Operation::send_first, 5},
                                  {Operation::send_middle, 6},
                                  {Operation::send_last, 7}}));
  for (const Pulled& each : pulled) {
    EXPECT_EQ(each.packet.ack_request, wire::info(each.packet.opcode).ends_message());
    EXPECT_EQ((each.payload.size() + each.packet.pad_count) % 4, 0u);
    EXPECT_EQ(each.packet.destination_qp, testing::peer_qp);
  }
  EXPECT_EQ(pulled[7].payload.front(), Host::pattern(2 * mtu));
}

TEST(RcRequester, AckPastExpectedFutureMalformed) {
  Host host;
  host.connect();
  for (int i = 0; i < 4; ++i) host.post(SendOpcode::send, 10);
  host.pull();
  host.deliver(ack(4));  // acknowledges a packet that was never sent
  EXPECT_TRUE(done(host).empty());
  host.deliver(ack(1));
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}, {1, CompletionStatus::success}}));
  host.deliver(ack(0));  // a late copy
  host.deliver(ack(1));
  host.deliver(answer(Operation::acknowledge, 2, AckKind::reserved));
  EXPECT_TRUE(done(host).empty());
  EXPECT_TRUE(host.pull().empty());
  host.deliver(ack(3));
  EXPECT_EQ(done(host).size(), 2u);
  EXPECT_EQ(host.qp->agenda().deadline, Time::never());
}

TEST(RcRequester, OnlySignaledOnesAreTold) {
  Host host;
  host.connect();
  host.post(SendOpcode::send, 1, {});
  host.post(SendOpcode::send, 1);
  host.post(SendOpcode::send, 1, {});
  host.pull();
  host.deliver(ack(2));
  EXPECT_EQ(done(host), (Done{{1, CompletionStatus::success}}));
}

TEST(RcRequester, AckWithinAMessageMovesTheStartOfARetry) {
  Host host;
  host.connect();
  host.post(SendOpcode::send, 5 * mtu);
  host.pull();
  host.deliver(ack(2));
  EXPECT_TRUE(done(host).empty());
  host.pass(ack_time);
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_middle, 3}, {Operation::send_last, 4}}));
}

// --- NAKs ---

TEST(RcRequester, SequenceErrorSendsAgainFromThereAndOnce) {
  Host host;
  host.connect();
  for (int i = 0; i < 4; ++i) host.post(SendOpcode::send, 10);
  host.pull();
  host.deliver(nak(2, NakCode::psn_sequence_error));
  EXPECT_EQ(done(host).size(), 2u) << "what lies before it has arrived";
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_only, 2}, {Operation::send_only, 3}}));
  host.deliver(nak(2, NakCode::psn_sequence_error));
  EXPECT_TRUE(host.pull().empty()) << "the network repeated it";
  host.deliver(nak(1, NakCode::psn_sequence_error));
  EXPECT_TRUE(host.pull().empty()) << "from the past";
  host.pass(ack_time);
  EXPECT_EQ(host.pull().size(), 2u);
  host.deliver(nak(2, NakCode::psn_sequence_error));
  EXPECT_EQ(host.pull().size(), 2u) << "lost again, and told again";
  EXPECT_EQ(host.counters().retransmitted_packets, 6u);
}

TEST(RcRequester, FatalNaks) {
  const std::pair<NakCode, CompletionStatus> table[] = {
      {NakCode::invalid_request, CompletionStatus::remote_invalid_request_error},
      {NakCode::remote_access_error, CompletionStatus::remote_access_error},
      {NakCode::remote_operational_error, CompletionStatus::remote_operation_error},
      {NakCode::invalid_rd_request, CompletionStatus::remote_invalid_request_error},
  };
  for (const auto& [code, status] : table) {
    Host host;
    host.connect();
    for (int i = 0; i < 4; ++i) host.post(SendOpcode::send, 10, {});
    host.post_receive(10);
    host.pull();
    host.deliver(nak(1, code));
    // Completions come in order: the request that failed, the requests behind it, then the receive
    // requests. They come although none was asked for.
    EXPECT_EQ(done(host), (Done{{1, status},
                                {2, CompletionStatus::flushed},
                                {3, CompletionStatus::flushed},
                                {1'000, CompletionStatus::flushed}}));
    EXPECT_EQ(host.qp->state(), QpState::error);
    EXPECT_TRUE(host.pull().empty());
    host.post(SendOpcode::send, 1);
    EXPECT_EQ(done(host), (Done{{4, CompletionStatus::flushed}}));
  }
}

TEST(RcRequester, ReservedNakCodesAreIgnored) {
  Host host;
  host.connect();
  host.post(SendOpcode::send, 10);
  host.pull();
  for (std::uint8_t code = 5; code < 32; ++code) {
    host.deliver(answer(Operation::acknowledge, 0, AckKind::nak, code));
  }
  EXPECT_TRUE(done(host).empty());
  EXPECT_EQ(host.qp->state(), QpState::rts);
}

// --- receiver not ready ---

TEST(RcRequester, RnrTimerTable) {
  // IBTA table 45, in microseconds.
  constexpr std::int64_t table[32] = {
      655'360, 10,     20,     30,     40,     60,      80,      120,     160,     240,    320,
      480,     640,    960,    1'280,  1'920,  2'560,   3'840,   5'120,   7'680,   10'240, 15'360,
      20'480,  30'720, 40'960, 61'440, 81'920, 122'880, 163'840, 245'760, 327'680, 491'520};
  for (std::uint8_t code = 0; code < 32; ++code) {
    EXPECT_EQ(rnr_timer(code), Time::microseconds(table[code])) << int{code};
    Host host;
    host.connect();
    host.post(SendOpcode::send, 10);
    host.pull();
    host.deliver(rnr_nak(0, code));
    EXPECT_EQ(host.qp->agenda().deadline, host.now + Time::microseconds(table[code]));
  }
}

TEST(RcRequester, AckTimeoutTable) {
  EXPECT_EQ(ack_timeout(0), Time::never());
  EXPECT_EQ(ack_timeout(1), Time::nanoseconds(8'192));
  EXPECT_EQ(ack_timeout(14), Time::nanoseconds(67'108'864));
  EXPECT_EQ(ack_timeout(31), Time::nanoseconds(std::int64_t{4'096} << 31));
}

TEST(RcRequester, WaitsForTheRnrTimer) {
  Host host;
  host.connect();
  host.post(SendOpcode::send, 10);
  host.post(SendOpcode::send, 10);
  host.pull();
  host.deliver(rnr_nak(0, 12));
  host.deliver(rnr_nak(0, 12));  // repeated by the network
  EXPECT_EQ(host.counters().rnr_naks_received, 1u);
  EXPECT_TRUE(host.pull().empty());
  host.deliver(nak(0, NakCode::psn_sequence_error));
  EXPECT_TRUE(host.pull().empty());
  host.pass(rnr_timer(12) - Time{1});
  EXPECT_TRUE(host.pull().empty());
  host.pass(Time{1});
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_only, 0}, {Operation::send_only, 1}}));
  host.deliver(ack(1));
  EXPECT_EQ(done(host).size(), 2u);
}

TEST(RcRequester, RnrRetriesRunOut) {
  for (const std::uint8_t retries : std::initializer_list<std::uint8_t>{0, 1, 6, 7}) {
    Options options;
    options.rnr_retry = retries;
    Host host(options);
    host.connect();
    host.post(SendOpcode::send, 10);
    const int most = retries == 7 ? 50 : retries;
    for (int i = 0; i < most; ++i) {
      EXPECT_EQ(host.pull().size(), 1u);
      host.deliver(rnr_nak(0, 1));
      EXPECT_TRUE(done(host).empty());
      host.pass(rnr_timer(1));
    }
    EXPECT_EQ(host.pull().size(), 1u);
    host.deliver(rnr_nak(0, 1));
    if (retries == 7) {
      EXPECT_TRUE(done(host).empty()) << "for ever";
    } else {
      EXPECT_EQ(done(host), (Done{{0, CompletionStatus::rnr_retry_exceeded_error}}));
      EXPECT_EQ(host.qp->state(), QpState::error);
    }
  }
}

// --- time ---

TEST(RcRequester, RetriesRunOut) {
  Options options;
  options.retry_count = 3;
  Host host(options);
  host.connect();
  host.post(SendOpcode::send, 10);
  host.post(SendOpcode::send, 10);
  EXPECT_EQ(host.pull().size(), 2u);
  // The timer doubles, up to four times its value (IBTA 9.7.6.1.3).
  for (const int factor : {1, 2, 4}) {
    EXPECT_EQ(host.qp->agenda().deadline, host.now + ack_time * factor);
    host.pass(ack_time * factor);
    EXPECT_EQ(host.pull().size(), 2u);
  }
  host.pass(ack_time * 4);
  EXPECT_EQ(done(host),
            (Done{{0, CompletionStatus::retry_exceeded_error}, {1, CompletionStatus::flushed}}));
  EXPECT_EQ(host.counters().ack_timeouts, 4u);
}

TEST(RcRequester, ProgressGivesTheRetriesBack) {
  Options options;
  options.retry_count = 1;
  Host host(options);
  host.connect();
  for (int i = 0; i < 5; ++i) host.post(SendOpcode::send, 10);
  for (std::uint32_t i = 0; i < 5; ++i) {
    host.pull();
    host.pass(ack_time);
    EXPECT_EQ(host.pull().size(), 5 - i);
    host.deliver(ack(i));
  }
  EXPECT_EQ(done(host).size(), 5u);
}

TEST(RcRequester, NoTimeoutNoTimer) {
  Options options;
  options.timeout = 0;
  Host host(options);
  host.connect();
  host.post(SendOpcode::send, 10);
  host.pull();
  EXPECT_EQ(host.qp->agenda().deadline, Time::never());
}

// --- READs and atomics ---

TEST(RcRequester, ReadResponsesPastExpectedFutureMalformed) {
  Host host;
  host.connect();
  host.post(SendOpcode::read, 2 * mtu + 10);
  const auto asked = host.pull();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].packet.dma_length, 2 * mtu + 10);
  const auto data = bytes_of(2 * mtu + 10);
  const auto part = [&](std::uint32_t i, std::uint32_t bytes) {
    return std::span<const std::byte>(data).subspan(i * mtu, bytes);
  };
  host.deliver(answer(Operation::read_response_first, 0), part(0, mtu));
  host.deliver(answer(Operation::read_response_first, 0), bytes_of(mtu, 99));  // again: not written
  // LAST comes before MIDDLE: MIDDLE was lost. The requester asks for it again, and for what
  // follows.
  host.deliver(answer(Operation::read_response_last, 2), part(2, 10));
  EXPECT_EQ(host.counters().implied_naks, 1u);
  const auto again = host.pull();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].packet.psn, first_psn + 1);
  EXPECT_EQ(again[0].packet.virtual_address, testing::iova + mtu);
  EXPECT_EQ(again[0].packet.dma_length, mtu + 10);
  host.deliver(answer(Operation::read_response_first, 1), part(1, mtu));
  host.deliver(answer(Operation::read_response_last, 2), part(2, 10));
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}}));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), host.memory.begin()));
  EXPECT_EQ(host.memory[data.size()], Host::pattern(data.size()));
}

TEST(RcRequester, BadReadResponses) {
  const auto status_after = [](const wire::Packet& response, std::uint32_t bytes,
                               SendOpcode opcode) {
    Host host;
    host.connect();
    host.post(opcode, 8);
    host.pull();
    host.deliver(response, bytes_of(bytes));
    const auto out = done(host);
    return out.size() == 1 ? out[0].second : CompletionStatus::success;
  };
  const auto only = answer(Operation::read_response_only, 0);
  EXPECT_EQ(status_after(only, 7, SendOpcode::read), CompletionStatus::bad_response_error);
  EXPECT_EQ(status_after(only, 9, SendOpcode::read), CompletionStatus::bad_response_error);
  EXPECT_EQ(status_after(only, 8, SendOpcode::send), CompletionStatus::bad_response_error);
  EXPECT_EQ(status_after(only, 8, SendOpcode::fetch_add), CompletionStatus::bad_response_error);
  EXPECT_EQ(status_after(answer(Operation::atomic_acknowledge, 0), 0, SendOpcode::read),
            CompletionStatus::bad_response_error);
}

TEST(RcRequester, AReadIsAskedForAgainUpToWhereItEndedBefore) {
  Options options;
  options.window = {true, 4, 64};
  options.depth = 4;
  Host host(options);
  host.connect();
  host.post(SendOpcode::read, 40 * mtu);
  EXPECT_EQ(host.pull()[0].packet.dma_length, 4 * mtu);
  const auto data = bytes_of(mtu);
  for (std::uint32_t i = 0; i < 4; ++i)
    host.deliver(answer(Operation::read_response_middle, i), data);
  const auto second = host.pull();
  ASSERT_EQ(second.size(), 1u);
  const std::uint32_t end = 4 + second[0].packet.dma_length / mtu;
  ASSERT_GT(end, 6u);
  host.deliver(answer(Operation::read_response_first, 4), data);
  host.pass(ack_time);
  const auto again = host.pull();
  ASSERT_GE(again.size(), 1u);
  EXPECT_EQ(again[0].packet.psn, first_psn + 5);
  EXPECT_EQ(again[0].packet.dma_length, (end - 5) * mtu);
}

TEST(RcRequester, ALongReadIsAskedForInPiecesIfSeveralMayBeInFlight) {
  for (const std::uint8_t depth : std::initializer_list<std::uint8_t>{1, 2}) {
    Options options;
    options.depth = depth;
    Host host(options);
    host.connect();
    host.post(SendOpcode::read, 40 * mtu);
    std::vector<std::uint32_t> pieces;
    for (const Pulled& each : host.pull()) pieces.push_back(each.packet.dma_length / mtu);
    EXPECT_EQ(pieces, depth == 1 ? std::vector{40u} : (std::vector{32u, 8u}));
  }
}

TEST(RcRequester, AnAckThatJumpsOverAReadImpliesItsLoss) {
  Host host;
  host.connect();
  host.post(SendOpcode::send, 10);
  host.post(SendOpcode::read, 10);
  host.post(SendOpcode::send, 10);
  EXPECT_EQ(host.pull().size(), 3u);
  host.deliver(ack(2));
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}}));
  EXPECT_EQ(host.counters().implied_naks, 1u);
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::read_request, 1}, {Operation::send_only, 2}}));
}

TEST(RcRequester, AtomicWritesCarryEightBytesAndTakeAnEmptyAnswer) {
  for (const bool has_value : {true, false}) {
    Host host;
    host.connect();
    verbs::SendRequest request;
    request.opcode = SendOpcode::atomic_write;
    request.remote_address = testing::iova + 64;
    request.rkey = RemoteKey{5};
    const auto value = bytes_of(8);
    const verbs::Sge sge = host.sge(0, 8);
    std::vector<std::byte> expected(host.memory.begin(), host.memory.begin() + 8);
    if (has_value) {
      std::memcpy(&request.compare_add, value.data(), 8);
      expected = value;
    } else {
      request.sges = {&sge, 1};
    }
    request.flags = verbs::SendFlag::signaled;
    Host::must(host.qp->post_send(request));
    for (int i = 0; i < 2; ++i) {  // the second time because no answer came
      const auto pulled = host.pull();
      ASSERT_EQ(pulled.size(), 1u);
      EXPECT_EQ(pulled[0].packet.opcode,
                wire::opcode(wire::TransportClass::rc, Operation::atomic_write));
      EXPECT_EQ(pulled[0].packet.virtual_address, testing::iova + 64);
      EXPECT_EQ(pulled[0].packet.dma_length, 8u);
      EXPECT_EQ(pulled[0].packet.psn, first_psn);
      EXPECT_TRUE(pulled[0].packet.ack_request);
      EXPECT_EQ(pulled[0].payload, expected);
      host.pass(ack_time);
    }
    host.pull();
    host.deliver(answer(Operation::read_response_only, 0));
    EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}}));
  }
}

TEST(RcRequester, BadAtomicWrites) {
  const auto status_of = [](std::uint32_t bytes, std::uint32_t answered) {
    Host host;
    host.connect();
    verbs::SendRequest request;
    request.opcode = SendOpcode::atomic_write;
    request.rkey = host.region.rkey();
    request.remote_address = testing::iova;
    host.post(request, bytes);
    host.pull();
    host.deliver(answer(Operation::read_response_only, 0), bytes_of(answered));
    return done(host).at(0).second;
  };
  EXPECT_EQ(status_of(8, 0), CompletionStatus::success);
  EXPECT_EQ(status_of(4, 0), CompletionStatus::local_qp_operation_error);
  EXPECT_EQ(status_of(16, 0), CompletionStatus::local_qp_operation_error);
  EXPECT_EQ(status_of(8, 8), CompletionStatus::bad_response_error);
}

TEST(RcRequester, AtomicsCarryTheirOperands) {
  Host host;
  host.connect();
  verbs::SendRequest request;
  request.opcode = SendOpcode::compare_swap;
  request.compare_add = 11;
  request.swap = 22;
  host.post(request, 8);
  request.opcode = SendOpcode::fetch_add;
  host.post(request, 8);
  const auto pulled = host.pull();
  ASSERT_EQ(pulled.size(), 2u);
  EXPECT_EQ(pulled[0].packet.compare, 11u);
  EXPECT_EQ(pulled[0].packet.swap_or_add, 22u);
  EXPECT_EQ(pulled[1].packet.swap_or_add, 11u);
  auto response = answer(Operation::atomic_acknowledge, 0);
  response.original = 0x1122'3344'5566'7788;
  host.deliver(response);
  std::uint64_t original = 0;
  std::memcpy(&original, host.memory.data(), sizeof original);
  EXPECT_EQ(original, response.original);
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}}));
  host.deliver(response);  // a duplicate
  EXPECT_TRUE(done(host).empty());
}

TEST(RcRequester, NoMoreReadsThanTheDepth) {
  Options options;
  options.depth = 2;
  Host host(options);
  host.connect();
  for (int i = 0; i < 4; ++i) host.post(i == 1 ? SendOpcode::fetch_add : SendOpcode::read, 8);
  EXPECT_EQ(host.pull().size(), 2u);
  host.deliver(answer(Operation::read_response_only, 0), bytes_of(8));
  EXPECT_EQ(host.pull().size(), 1u);
  options.depth = 0;
  Host none(options);
  none.connect();
  none.post(SendOpcode::read, 8);
  EXPECT_TRUE(none.pull().empty());
  EXPECT_EQ(done(none), (Done{{0, CompletionStatus::local_qp_operation_error}}));
}

// --- order among requests ---

TEST(RcRequester, AFenceWaitsForReads) {
  Host host;
  host.connect();
  host.post(SendOpcode::read, 8);
  host.post(SendOpcode::send, 8);
  host.post(SendOpcode::send, 8, SendFlags(SendFlag::fence) | SendFlag::signaled);
  EXPECT_EQ(host.pull().size(), 2u);
  host.deliver(answer(Operation::read_response_only, 0), bytes_of(8));
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_only, 2}}));
}

TEST(RcRequester, WindowsAreBoundAndInvalidatedInOrder) {
  Host host;
  host.connect();
  verbs::MemoryWindow window;
  window.pd = &host.pd;
  window.type = verbs::WindowType::type2;
  host.environment.keys.add(window);
  verbs::SendRequest bind;
  bind.opcode = SendOpcode::bind_window;
  bind.window = &window;
  bind.window_region = &host.region;
  bind.window_address = testing::iova;
  bind.window_length = 64;
  bind.window_access = verbs::Access::remote_write;
  bind.window_rkey = RemoteKey{window.key + 1};
  host.post(SendOpcode::send, 8);
  host.post(bind, 0);
  verbs::SendRequest invalidate;
  invalidate.opcode = SendOpcode::local_invalidate;
  invalidate.invalidate_rkey = bind.window_rkey;
  host.post(invalidate, 0);
  host.post(SendOpcode::send, 8);
  EXPECT_EQ(host.pull().size(), 1u) << "an invalidate waits for all before it";
  EXPECT_NE(window.region, nullptr);
  EXPECT_TRUE(done(host).empty()) << "bound, and told in its turn";
  host.deliver(ack(0));
  EXPECT_EQ(host.pull().size(), 1u);
  EXPECT_EQ(window.region, nullptr);
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success},
                              {1, CompletionStatus::success},
                              {2, CompletionStatus::success}}));
  host.post(invalidate, 0);
  host.deliver(ack(1));
  host.pull();
  EXPECT_EQ(done(host), (Done{{3, CompletionStatus::success},
                              {4, CompletionStatus::local_qp_operation_error}}));
}

TEST(RcRequester, ALocalErrorWaitsForThoseBeforeIt) {
  Host host;
  host.connect();
  host.post(SendOpcode::send, 8);
  verbs::Sge bad{testing::iova, 8, LocalKey{host.region.key ^ 1}};
  verbs::SendRequest request;
  request.wr_id = 50;
  request.sges = {&bad, 1};
  EXPECT_EQ(host.qp->post_send(request), verbs::VerbsStatus::ok);
  host.post(SendOpcode::send, 8);
  EXPECT_EQ(host.pull().size(), 1u);
  EXPECT_TRUE(done(host).empty());
  // The request before it is lost. It must still be sent again.
  host.pass(ack_time);
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_only, 0}}));
  host.deliver(ack(0));
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success},
                              {50, CompletionStatus::local_protection_error},
                              {1, CompletionStatus::flushed}}));
}

TEST(RcRequester, AnAtomicOfAnotherLengthFailsHere) {
  Host host;
  host.connect();
  host.post(SendOpcode::fetch_add, 4);
  EXPECT_TRUE(host.pull().empty());
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::local_qp_operation_error}}));
}

TEST(RcRequester, AnAnswerMayEndTheQueuePair) {
  // The answered request completes, and then the one behind it, which had failed locally.
  for (const bool atomic : {true, false}) {
    Host host;
    host.connect();
    host.post(atomic ? SendOpcode::fetch_add : SendOpcode::read, 8);
    host.post(SendOpcode::fetch_add, 4);  // an atomic has 8 bytes
    EXPECT_EQ(host.pull().size(), 1u);
    if (atomic) {
      host.deliver(answer(Operation::atomic_acknowledge, 0));
    } else {
      host.deliver(answer(Operation::read_response_only, 0), bytes_of(8));
    }
    EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success},
                                {1, CompletionStatus::local_qp_operation_error}}));
    EXPECT_TRUE(host.pull().empty());
  }
}

// --- flow ---

TEST(RcRequester, CreditTable) {
  // IBTA table 44.
  constexpr std::uint32_t table[31] = {
      0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
      256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};
  for (std::uint8_t code = 0; code < 31; ++code) {
    EXPECT_EQ(credits_of_code(code), table[code]);
    EXPECT_EQ(credit_code(table[code]), code);
    if (code > 0) {
      EXPECT_EQ(credit_code(table[code] - 1), code - 1) << "rounds down";
    }
  }
  EXPECT_EQ(credit_code(1u << 30), 30);
}

TEST(RcRequester, BeyondTheCreditsOneProbe) {
  Host host;
  host.connect();
  for (int i = 0; i < 6; ++i) host.post(SendOpcode::send, 8);
  EXPECT_EQ(host.pull(2).size(), 2u);
  host.deliver(ack(0, 2));  // behind the first, credits for two
  EXPECT_EQ(host.pull().size(), 1u);
  host.deliver(ack(2, 0));
  EXPECT_EQ(host.pull().size(), 1u) << "nothing is in flight: one may try";
  EXPECT_TRUE(host.pull().empty());
  host.deliver(ack(3, no_credits_code));
  EXPECT_EQ(host.pull().size(), 2u) << "without credits there is no limit";
}

TEST(RcRequester, CreditsAreOfReceives) {
  Host host;
  host.connect();
  host.post(SendOpcode::send, 8);
  host.pull();
  host.deliver(ack(0, 0));
  for (int i = 0; i < 3; ++i) host.post(SendOpcode::write, 8);
  EXPECT_EQ(host.pull().size(), 3u) << "a WRITE takes none";
}

TEST(RcRequester, NoMorePacketsThanTheWindow) {
  Options options;
  options.window = {true, 4, 64};
  Host host(options);
  host.connect();
  host.post(SendOpcode::send, 20 * mtu);
  const auto first = host.pull();
  EXPECT_EQ(first.size(), 4u);
  EXPECT_TRUE(first.back().packet.ack_request) << "nothing could follow without an answer";
  host.deliver(ack(3));
  EXPECT_EQ(host.pull().size(), 8u) << "slow start";
  host.pass(ack_time);
  EXPECT_EQ(host.pull().size(), 4u) << "halved by a loss";
}

// --- SQD ---

TEST(RcRequester, DrainFinishesWhatHasStarted) {
  Host host;
  host.connect();
  host.post(SendOpcode::send, 3 * mtu);
  host.post(SendOpcode::send, 8);
  EXPECT_EQ(host.pull(1).size(), 1u);
  QueuePairAttributes to;
  to.sqd_async_notify = true;
  Host::must(host.step(to, QpState::sqd, verbs::QpAttribute::sqd_async_notify));
  EXPECT_TRUE(host.qp->send_queue_draining());
  EXPECT_EQ(host.pull().size(), 2u) << "the rest of the message, and no other";
  EXPECT_TRUE(host.raised().empty());
  host.deliver(ack(2));
  EXPECT_EQ(host.raised(), (std::vector{verbs::EventType::send_queue_drained}));
  EXPECT_FALSE(host.qp->send_queue_draining());
  host.post(SendOpcode::send, 8);
  EXPECT_TRUE(host.pull().empty());
  host.deliver(ack(2));
  EXPECT_TRUE(host.raised().empty()) << "once";
  Host::must(host.step({}, QpState::rts));
  EXPECT_EQ(host.pull().size(), 2u);
}

TEST(RcRequester, DrainOfAnEmptyQueueIsToldAtOnce) {
  Host host;
  host.connect();
  QueuePairAttributes to;
  to.sqd_async_notify = true;
  Host::must(host.step(to, QpState::sqd, verbs::QpAttribute::sqd_async_notify));
  EXPECT_EQ(host.raised(), (std::vector{verbs::EventType::send_queue_drained}));
}

TEST(RcRequester, DrainedToErrorByTheApplication) {
  Host host;
  host.connect();
  host.post(SendOpcode::send, 8);
  host.post(SendOpcode::send, 8, {});
  host.post_receive(8);
  host.pull(1);
  Host::must(host.step({}, QpState::error));
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::flushed},
                              {1, CompletionStatus::flushed},
                              {1'000, CompletionStatus::flushed}}));
  host.deliver(ack(0));
  EXPECT_TRUE(done(host).empty());
  Host::must(host.step({}, QpState::reset));
  EXPECT_EQ(host.try_post({}, 8), verbs::VerbsStatus::invalid_state);
}

TEST(RcRequester, ResetForgetsEverything) {
  Host host;
  host.connect();
  host.post(SendOpcode::send, 8);
  host.post(SendOpcode::send, 8);
  host.post_receive(8);
  host.pull();
  host.deliver(ack(0));
  Host::must(host.step({}, QpState::reset));
  EXPECT_TRUE(done(host).empty()) << "what had completed, too";
  EXPECT_EQ(host.qp->agenda().deadline, Time::never());
  host.to_init();
  host.connect();
  host.post(SendOpcode::send, 8);
  EXPECT_EQ(shape(host.pull()), (Shape{{Operation::send_only, 0}}));
}

TEST(RcRequester, InlineDataIsCopied) {
  Host host;
  host.connect();
  std::vector<std::byte> data = bytes_of(20);
  const std::span<const std::byte> pieces[] = {{data.data(), 5}, {data.data() + 5, 15}};
  verbs::SendRequest request;
  request.flags = SendFlag::inline_data;
  request.inline_pieces = pieces;
  EXPECT_EQ(host.qp->post_send(request), verbs::VerbsStatus::ok);
  const auto sent = data;
  data.assign(data.size(), std::byte{0});
  EXPECT_EQ(host.pull()[0].payload, sent);
  request.opcode = SendOpcode::read;
  EXPECT_EQ(host.qp->post_send(request), verbs::VerbsStatus::invalid_argument);
  const auto too_long = bytes_of(65);
  const std::span<const std::byte> one[] = {too_long};
  request.opcode = SendOpcode::send;
  request.inline_pieces = one;
  EXPECT_EQ(host.qp->post_send(request), verbs::VerbsStatus::invalid_argument);
}

}  // namespace
}  // namespace tulle::transport::rc

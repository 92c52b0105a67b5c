#include "rdma/transport/rc/responder.h"

#include <gtest/gtest.h>

#include "rdma/transport/host_test.h"
#include "rdma/transport/rc/requester.h"
#include "rdma/transport/rc/requests_test.h"
#include "rdma/transport/rc/responder_answers_test.h"

namespace tulle::transport::rc {
namespace {

using namespace responder;
using testing::bytes_of;
using testing::first_psn;
using testing::Host;
using testing::mtu;
using testing::Options;
using verbs::Access;
using verbs::CompletionOpcode;
using verbs::CompletionStatus;
using verbs::EventType;
using verbs::QpState;
using wire::AckKind;
using wire::NakCode;
using wire::Operation;

constexpr std::uint32_t receive_offset = 8'192;

// --- SEND ---

TEST(RcResponder, SendPastExpectedFuture) {
  Host host;
  host.connect();
  host.post_receive(100);
  host.post_receive(100, 9'000);
  const auto data = bytes_of(50);
  host.deliver(request(Operation::send_only, 0), data);
  auto completions = host.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].wr_id, 1'000u);
  EXPECT_EQ(completions[0].byte_length, 50u);
  EXPECT_EQ(completions[0].opcode, CompletionOpcode::receive);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), host.memory.begin() + receive_offset));
  EXPECT_EQ(host.memory[receive_offset + 50], Host::pattern(receive_offset + 50));
  EXPECT_EQ(answers(host), (Answers{ack(0, 1, 1)}));
  // A packet of the past is acknowledged again, but not executed.
  host.deliver(request(Operation::send_only, 0), bytes_of(50, 9));
  EXPECT_EQ(answers(host), (Answers{ack(0, 1, 1)}));
  EXPECT_TRUE(host.completions().empty());
  EXPECT_TRUE(std::equal(data.begin(), data.end(), host.memory.begin() + receive_offset));
  // Packets of the future get one NAK for the gap, then silence until the missing packet comes.
  host.deliver(request(Operation::send_only, 2), data);
  host.deliver(request(Operation::send_only, 3), data);
  EXPECT_EQ(answers(host), (Answers{nak(1, NakCode::psn_sequence_error, 1)}));
  host.deliver(request(Operation::send_only, 2), data);
  EXPECT_TRUE(answers(host).empty());
  host.deliver(request(Operation::send_only, 1), data);
  EXPECT_EQ(answers(host), (Answers{ack(1, 2, 0)}));
  EXPECT_EQ(host.completions().size(), 1u);
  host.deliver(request(Operation::send_only, 3), data);
  EXPECT_EQ(answers(host), (Answers{nak(2, NakCode::psn_sequence_error, 2)})) << "a new gap";
}

// A NAK may be lost, and the requester's window may end before the gap.
TEST(RcResponder, DuplicatesAreAcknowledgedWhileAGapIsOpen) {
  Host host;
  host.connect();
  host.post_receive(10);
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  host.deliver(request(Operation::send_only, 2), bytes_of(10));
  answers(host);
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  EXPECT_EQ(answers(host), (Answers{ack(0, 1, 0)}));
}

// A NAK also acknowledges everything before it, so it may take the place of an acknowledgement, and
// never the other way round: the requester would wait for its timer.
TEST(RcResponder, ADuplicateDoesNotTakeThePlaceOfANakThatWaits) {
  Host host;
  host.connect();
  host.post_receive(10);
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  answers(host);
  host.deliver(request(Operation::send_only, 2), bytes_of(10));
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  EXPECT_EQ(answers(host), (Answers{nak(1, NakCode::psn_sequence_error, 1)}));
}

// Linux's rxe completes a READ without its data upon an acknowledgement with the READ's PSN.
TEST(RcResponder, DuplicatesOfBeforeAReadDoNotAcknowledgeTheRead) {
  Host host;
  host.connect();
  for (int i = 0; i < 3; ++i) host.post_receive(10);
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  host.deliver(remote(host, Operation::read_request, 1, 0, 2 * mtu));
  host.deliver(request(Operation::send_only, 3), bytes_of(10));
  host.deliver(request(Operation::send_only, 4), bytes_of(10));
  answers(host);
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  EXPECT_EQ(answers(host), (Answers{ack(0, 4, 0)}));
  host.deliver(request(Operation::send_only, 3), bytes_of(10));
  EXPECT_EQ(answers(host), (Answers{ack(4, 4, 0)})) << "behind the READ all at once";
}

TEST(RcResponder, LongSend) {
  Host host;
  host.connect();
  host.post_receive(1'000);
  const auto data = bytes_of(2 * mtu + 7);
  const std::span<const std::byte> all(data);
  host.deliver(request(Operation::send_first, 0), all.first(mtu));
  EXPECT_TRUE(answers(host).empty()) << "not asked for";
  host.deliver(request(Operation::send_middle, 1), all.subspan(mtu, mtu));
  auto last = request(Operation::send_last_with_immediate, 2);
  last.immediate = 0xAABBCCDD;
  last.solicited_event = true;
  host.deliver(last, all.subspan(2 * mtu));
  const auto completions = host.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_TRUE(completions[0].has_immediate);
  EXPECT_TRUE(completions[0].solicited);
  EXPECT_EQ(completions[0].immediate, 0xAABBCCDDu);
  EXPECT_EQ(completions[0].byte_length, data.size());
  EXPECT_TRUE(std::equal(data.begin(), data.end(), host.memory.begin() + receive_offset));
  EXPECT_EQ(answers(host), (Answers{ack(2, 1, 0)}));
}

TEST(RcResponder, AcknowledgementsCoalesce) {
  Host host;
  host.connect();
  for (int i = 0; i < 5; ++i) host.post_receive(10);
  for (std::uint32_t i = 0; i < 5; ++i) host.deliver(request(Operation::send_only, i));
  EXPECT_EQ(answers(host), (Answers{ack(4, 5, 0)}));
}

// --- malformed ---

struct Malformed {
  const char* what;
  std::vector<std::pair<Operation, std::uint32_t>> packets;  // the last one is wrong
};

TEST(RcResponder, MalformedRequests) {
  const Malformed cases[] = {
      {"middle without first", {{Operation::send_middle, mtu}}},
      {"last without first", {{Operation::send_last, 1}}},
      {"first after first", {{Operation::send_first, mtu}, {Operation::send_first, mtu}}},
      {"only after first", {{Operation::send_first, mtu}, {Operation::send_only, 1}}},
      {"WRITE goes on a SEND", {{Operation::send_first, mtu}, {Operation::write_middle, mtu}}},
      {"SEND goes on a WRITE", {{Operation::write_first, mtu}, {Operation::send_last, 1}}},
      {"READ in between", {{Operation::send_first, mtu}, {Operation::read_request, 0}}},
      {"atomic in between", {{Operation::send_first, mtu}, {Operation::fetch_add, 0}}},
      {"short first", {{Operation::send_first, mtu - 1}}},
      {"short middle", {{Operation::send_first, mtu}, {Operation::send_middle, mtu - 1}}},
      {"empty last", {{Operation::send_first, mtu}, {Operation::send_last, 0}}},
      {"long last", {{Operation::send_first, mtu}, {Operation::send_last, mtu + 1}}},
      {"long only", {{Operation::send_only, mtu + 1}}},
      {"WRITE only, other length", {{Operation::write_only, 9}}},
      {"WRITE last too early", {{Operation::write_first, mtu}, {Operation::write_last, 9}}},
      {"WRITE middle too late",
       {{Operation::write_first, mtu},
        {Operation::write_middle, mtu},
        {Operation::write_middle, mtu}}},
      {"resync", {{Operation::resync, 0}}},
      {"flush", {{Operation::flush, 0}}},
  };
  for (const Malformed& each : cases) {
    SCOPED_TRACE(each.what);
    Host host;
    host.connect();
    host.post_receive(2'000);
    std::uint32_t psn = 0;
    for (const auto& [operation, bytes] : each.packets) {
      auto packet = remote(host, operation, psn++, 0, 2 * mtu + 100);
      host.deliver(packet, bytes_of(bytes));
    }
    EXPECT_EQ(answers(host),
              (Answers{nak(static_cast<int>(psn) - 1, NakCode::invalid_request, 0)}));
    EXPECT_EQ(host.qp->state(), QpState::error);
    const auto completions = host.completions();
    ASSERT_EQ(completions.size(), 1u) << "the receive, once";
    EXPECT_NE(completions[0].status, CompletionStatus::success);
    // A queue pair in error does not answer.
    host.deliver(request(Operation::send_only, psn - 1));
    EXPECT_TRUE(answers(host).empty());
  }
}

TEST(RcResponder, AMessageTooLongForItsReceive) {
  Host host;
  host.connect();
  host.post_receive(mtu + 10);
  host.post_receive(10);
  host.deliver(request(Operation::send_first, 0), bytes_of(mtu));
  host.deliver(request(Operation::send_last, 1), bytes_of(11));
  const auto completions = host.completions();
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[0].status, CompletionStatus::local_length_error);
  EXPECT_EQ(completions[1].status, CompletionStatus::flushed);
  EXPECT_EQ(host.memory[receive_offset + mtu + 10], Host::pattern(receive_offset + mtu + 10));
  EXPECT_EQ(answers(host), (Answers{nak(1, NakCode::invalid_request, 0)}));
  EXPECT_TRUE(host.raised().empty()) << "the completion says it";
}

TEST(RcResponder, AReceiveWhoseMemoryIsNotItsOwn) {
  Host host;
  host.connect();
  const verbs::Sge bad{testing::iova, 100, LocalKey{host.region.key ^ 1}};
  Host::must(host.qp->post_receive({7, {&bad, 1}}));
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  const auto completions = host.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, CompletionStatus::local_protection_error);
  EXPECT_EQ(answers(host), (Answers{nak(0, NakCode::remote_operational_error, 0)}));
  EXPECT_EQ(host.memory[0], Host::pattern(0));
}

// --- receiver not ready ---

TEST(RcResponder, NoReceive) {
  Host host;
  host.connect();
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  const Answer not_ready{Operation::acknowledge, 0, {AckKind::rnr_nak, 12}, 0};
  EXPECT_EQ(answers(host), (Answers{not_ready}));
  host.deliver(request(Operation::send_only, 1), bytes_of(10));
  EXPECT_TRUE(answers(host).empty()) << "what follows is not answered";
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  EXPECT_EQ(answers(host), (Answers{not_ready})) << "each try is";
  host.post_receive(10);
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  EXPECT_EQ(answers(host), (Answers{ack(0, 1, 0)}));
  EXPECT_EQ(host.counters().rnr_naks_sent, 2u);
}

TEST(RcResponder, WriteWithImmediateNeedsAReceiveAtItsEnd) {
  Host host;
  host.connect();
  const auto data = bytes_of(mtu + 4);
  const std::span<const std::byte> all(data);
  host.deliver(remote(host, Operation::write_first, 0, 100, mtu + 4), all.first(mtu));
  host.deliver(request(Operation::write_last_with_immediate, 1), all.subspan(mtu));
  EXPECT_EQ(answers(host)[0].syndrome.kind, AckKind::rnr_nak);
  EXPECT_EQ(host.memory[100 + mtu], Host::pattern(100 + mtu)) << "nothing of it is executed yet";
  host.post_receive(0);
  host.deliver(request(Operation::write_last_with_immediate, 1), all.subspan(mtu));
  const auto completions = host.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].opcode, CompletionOpcode::receive_write_with_immediate);
  EXPECT_EQ(completions[0].byte_length, data.size());
  EXPECT_TRUE(std::equal(data.begin(), data.end(), host.memory.begin() + 100));
}

// --- WRITE ---

TEST(RcResponder, WritePlacesBytesAndNothingElse) {
  Host host;
  host.connect();
  const auto data = bytes_of(mtu + 3);
  const std::span<const std::byte> all(data);
  host.deliver(remote(host, Operation::write_first, 0, 1'000, mtu + 3), all.first(mtu));
  host.deliver(request(Operation::write_last, 1), all.subspan(mtu));
  EXPECT_EQ(answers(host), (Answers{ack(1, 1, 0)}));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), host.memory.begin() + 1'000));
  EXPECT_EQ(host.memory[999], Host::pattern(999));
  EXPECT_EQ(host.memory[1'000 + data.size()], Host::pattern(1'000 + data.size()));
  EXPECT_TRUE(host.completions().empty());
  // A late copy must not undo what the application has done since.
  host.memory[1'000] = std::byte{0x5A};
  host.deliver(remote(host, Operation::write_first, 0, 1'000, mtu + 3), all.first(mtu));
  EXPECT_EQ(host.memory[1'000], std::byte{0x5A});
  EXPECT_EQ(answers(host), (Answers{ack(1, 1, 0)}));
}

TEST(RcResponder, AccessIsCheckedForTheWholeMessage) {
  const auto refused = [](auto change, Operation operation = Operation::write_only,
                          NakCode code = NakCode::remote_access_error,
                          EventType event = EventType::qp_access_error, Options options = {}) {
    Host host(options);
    host.connect();
    auto packet = remote(host, operation, 0, 0, operation == Operation::write_first ? 2 * mtu : 8);
    change(packet, host);
    const bool write = operation == Operation::write_only || operation == Operation::write_first;
    host.deliver(packet, bytes_of(operation == Operation::write_first ? mtu : write ? 8 : 0));
    EXPECT_EQ(answers(host), (Answers{nak(0, code, 0)}));
    EXPECT_EQ(host.raised(), (std::vector{event}));
    for (std::size_t i = 0; i < host.memory.size(); ++i) {
      if (host.memory[i] != Host::pattern(i)) return false;
    }
    return host.qp->state() == QpState::error;
  };
  const std::uint64_t end = testing::iova + 32'768;
  for (const Operation each : {Operation::write_only, Operation::read_request, Operation::fetch_add,
                               Operation::compare_swap}) {
    EXPECT_TRUE(refused([](wire::Packet& p, Host&) { p.rkey.value ^= 1; }, each));
    EXPECT_TRUE(refused([&](wire::Packet& p, Host&) { p.virtual_address = end; }, each));
    EXPECT_TRUE(
        refused([](wire::Packet& p, Host&) { p.virtual_address = testing::iova - 8; }, each));
    EXPECT_TRUE(refused([](wire::Packet& p, Host&) { p.virtual_address = ~7ull; }, each));
    EXPECT_TRUE(
        refused([](wire::Packet&, Host& h) { h.region.access = Access::local_write; }, each));
    Options options;
    options.access = {};
    EXPECT_TRUE(refused([](wire::Packet&, Host&) {}, each, NakCode::invalid_request,
                        EventType::qp_request_error, options));
  }
  // The first packet lies within, the message does not.
  EXPECT_TRUE(refused([&](wire::Packet& p, Host&) { p.virtual_address = end - mtu; },
                      Operation::write_first));
}

// IBTA 9.7.7.1.2: no message is longer than 2^31 bytes.
TEST(RcResponder, LengthsBeyondAnyMessage) {
  for (const Operation operation : {Operation::write_first, Operation::read_request}) {
    Host host;
    host.connect();
    host.region.length = std::uint64_t{1} << 33;  // as if 8 GiB were registered
    auto packet = remote(host, operation, 0, 0, 0xFFFF'FFFF);
    host.deliver(packet, bytes_of(operation == Operation::write_first ? mtu : 0));
    EXPECT_EQ(answers(host), (Answers{nak(0, NakCode::invalid_request, 0)}));
  }
}

TEST(RcResponder, NoBytesNeedNoKey) {
  Host host;
  host.connect();
  auto write = remote(host, Operation::write_only, 0, 0, 0);
  write.rkey = RemoteKey{1};
  host.deliver(write);
  EXPECT_EQ(answers(host), (Answers{ack(0, 1, 0)}));
  auto read = remote(host, Operation::read_request, 1, 0, 0);
  read.rkey = RemoteKey{1};
  host.deliver(read);
  const auto pulled = host.pull();
  ASSERT_EQ(pulled.size(), 1u);
  EXPECT_EQ(wire::operation_of(pulled[0].packet.opcode), Operation::read_response_only);
}

TEST(RcResponder, ARegionThatGoesAwayInTheMiddle) {
  Host host;
  host.connect();
  host.deliver(remote(host, Operation::write_first, 0, 0, 2 * mtu), bytes_of(mtu));
  host.environment.keys.renew(host.region);
  host.deliver(request(Operation::write_last, 1), bytes_of(mtu));
  EXPECT_EQ(answers(host), (Answers{nak(1, NakCode::remote_access_error, 0)}));
  EXPECT_EQ(host.memory[mtu], Host::pattern(mtu));
}

// --- READ ---

TEST(RcResponder, ReadPastExpectedFutureMalformed) {
  Host host;
  host.connect();
  const std::uint32_t bytes = 2 * mtu + 5;
  host.deliver(remote(host, Operation::read_request, 1, 0, bytes));
  EXPECT_EQ(answers(host), (Answers{nak(0, NakCode::psn_sequence_error, 0)}));
  host.deliver(remote(host, Operation::read_request, 0, 64, bytes));
  auto pulled = host.pull();
  ASSERT_EQ(pulled.size(), 3u);
  std::vector<std::byte> data;
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pulled[i].packet.psn, first_psn + i);
    data.insert(data.end(), pulled[i].payload.begin(), pulled[i].payload.end());
  }
  EXPECT_TRUE(std::equal(data.begin(), data.end(), host.memory.begin() + 64));
  EXPECT_EQ(pulled[2].packet.msn, 1u);
  // The requester lost the last two and asks from there on.
  host.deliver(remote(host, Operation::read_request, 1, 64 + mtu, mtu + 5));
  pulled = host.pull();
  ASSERT_EQ(pulled.size(), 2u);
  EXPECT_EQ(wire::operation_of(pulled[0].packet.opcode), Operation::read_response_first);
  EXPECT_EQ(pulled[0].packet.psn, first_psn + 1);
  EXPECT_EQ(pulled[0].payload[0], host.memory[64 + mtu]);
  // A READ that was executed only in part must not be answered.
  host.deliver(remote(host, Operation::read_request, 1, 64 + mtu, 4 * mtu));
  EXPECT_TRUE(answers(host).empty());
  // The next READ follows the last response.
  host.deliver(remote(host, Operation::read_request, 3, 0, 1));
  EXPECT_EQ(host.pull()[0].packet.psn, first_psn + 3);
}

TEST(RcResponder, AnswersKeepTheirOrder) {
  Host host;
  host.connect();
  host.post_receive(10);
  host.post_receive(10);
  host.deliver(request(Operation::send_only, 0));
  host.deliver(remote(host, Operation::read_request, 1, 0, 2 * mtu));
  host.deliver(request(Operation::send_only, 3));
  const auto all = answers(host);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].operation, Operation::read_response_first);
  EXPECT_EQ(all[1].psn, 2);
  EXPECT_EQ(all[2], ack(3, 3, 0));
}

TEST(RcResponder, MoreThanTheDepth) {
  Options options;
  options.depth = 2;
  Host host(options);
  host.connect();
  std::uint32_t psn = 0;
  for (; psn < 4 && host.qp->state() == QpState::rts; ++psn) {
    host.deliver(remote(host, Operation::read_request, psn, 0, 1));
  }
  // The queue has one extra place, for a duplicate beside a full set.
  EXPECT_EQ(psn, 4u);
  const auto all = answers(host);
  EXPECT_EQ(all.back(), nak(3, NakCode::invalid_request, 3));
  options.depth = 0;
  Host none(options);
  none.connect();
  none.deliver(remote(none, Operation::read_request, 0, 0, 1));
  EXPECT_EQ(answers(none), (Answers{nak(0, NakCode::invalid_request, 0)}));
}

TEST(RcResponder, ARegionThatGoesAwayBeforeItIsRead) {
  Host host;
  host.connect();
  host.deliver(remote(host, Operation::read_request, 0, 0, 8));
  host.environment.keys.renew(host.region);
  EXPECT_EQ(answers(host), (Answers{nak(0, NakCode::remote_access_error, 1)}));
  EXPECT_EQ(host.raised(), (std::vector{EventType::qp_access_error}));
  EXPECT_EQ(host.qp->state(), QpState::error);
}

// --- atomics ---

std::uint64_t word_at(const Host& host, std::size_t offset) {
  std::uint64_t word = 0;
  std::memcpy(&word, host.memory.data() + offset, sizeof word);
  return word;
}

TEST(RcResponder, AtomicsAreExecutedOnceAndAnsweredAsOften) {
  Host host;
  host.connect();
  const std::uint64_t before = word_at(host, 16);
  auto add = remote(host, Operation::fetch_add, 0, 16, 0);
  add.swap_or_add = 5;
  for (int i = 0; i < 3; ++i) {
    host.deliver(add);
    const auto pulled = host.pull();
    ASSERT_EQ(pulled.size(), 1u);
    EXPECT_EQ(pulled[0].packet.original, before);
    EXPECT_EQ(pulled[0].packet.psn, first_psn);
  }
  EXPECT_EQ(word_at(host, 16), before + 5);
  auto swap = remote(host, Operation::compare_swap, 1, 16, 0);
  swap.compare = before;
  swap.swap_or_add = 77;
  host.deliver(swap);
  EXPECT_EQ(host.pull()[0].packet.original, before + 5);
  EXPECT_EQ(word_at(host, 16), before + 5) << "no match, no swap";
  swap.psn = first_psn + 2;
  swap.compare = before + 5;
  host.deliver(swap);
  host.deliver(swap);  // a duplicate, before the answer has left
  EXPECT_EQ(host.pull().size(), 1u);
  EXPECT_EQ(word_at(host, 16), 77u);
  host.deliver(swap);
  EXPECT_EQ(host.pull()[0].packet.original, before + 5);
  host.deliver(remote(host, Operation::fetch_add, 4, 16, 0));
  EXPECT_EQ(answers(host), (Answers{nak(3, NakCode::psn_sequence_error, 3)})) << "of the future";
}

TEST(RcResponder, AnAtomicWhoseResultIsGoneIsNotAnswered) {
  Options options;
  options.depth = 2;
  Host host(options);
  host.connect();
  for (std::uint32_t psn = 0; psn < 3; ++psn) {
    host.deliver(remote(host, Operation::fetch_add, psn, 16, 0));
    host.pull();
  }
  host.deliver(remote(host, Operation::fetch_add, 0, 16, 0));
  EXPECT_TRUE(host.pull().empty());
  host.deliver(remote(host, Operation::fetch_add, 1, 16, 0));
  EXPECT_EQ(host.pull().size(), 1u);
}

TEST(RcResponder, AtomicsAreAligned) {
  for (std::uint64_t offset = 1; offset < 8; ++offset) {
    Host host;
    host.connect();
    host.deliver(remote(host, Operation::fetch_add, 0, 16 + offset, 0));
    EXPECT_EQ(answers(host), (Answers{nak(0, NakCode::invalid_request, 0)}));
  }
}

TEST(RcResponder, AtomicWritesPastExpectedFuture) {
  Host host;
  host.connect();
  const auto value = bytes_of(8, 50), other = bytes_of(8, 90);
  auto write = remote(host, Operation::atomic_write, 0, 16, 8);
  for (int i = 0; i < 3; ++i) {
    host.deliver(write, i == 0 ? value : other);  // a duplicate is not written again
    const auto pulled = host.pull();
    ASSERT_EQ(pulled.size(), 1u);
    EXPECT_EQ(pulled[0].packet.opcode,
              wire::opcode(wire::TransportClass::rc, Operation::read_response_only));
    EXPECT_TRUE(pulled[0].payload.empty());
    EXPECT_EQ(pulled[0].packet.psn, first_psn);
    EXPECT_EQ(pulled[0].packet.msn, 1u);
    EXPECT_TRUE(std::equal(value.begin(), value.end(), host.memory.begin() + 16));
  }
  EXPECT_EQ(host.memory[24], Host::pattern(24));
  host.deliver(remote(host, Operation::atomic_write, 2, 16, 8), other);
  EXPECT_EQ(answers(host), (Answers{nak(1, NakCode::psn_sequence_error, 1)})) << "of the future";
  EXPECT_TRUE(std::equal(value.begin(), value.end(), host.memory.begin() + 16));
}

// In a simulation a payload may be a length without bytes.
TEST(RcResponder, AnAtomicWriteWithoutBytesIsAnsweredAndLeavesTheMemoryAsItIs) {
  Host host;
  host.connect();
  host.deliver(remote(host, Operation::atomic_write, 0, 16, 8),
               {static_cast<const std::byte*>(nullptr), 8});
  EXPECT_EQ(host.pull().size(), 1u);
  for (std::size_t i = 16; i < 24; ++i) EXPECT_EQ(host.memory[i], Host::pattern(i));
}

TEST(RcResponder, MalformedAtomicWrites) {
  struct Case {
    std::uint64_t offset;
    std::uint32_t dma_length, payload;
  };
  for (const Case& bad : {Case{17, 8, 8}, Case{16, 4, 8}, Case{16, 8, 4}, Case{16, 8, 0},
                          Case{16, 16, 16}, Case{20, 8, 8}}) {
    Host host;
    host.connect();
    host.deliver(remote(host, Operation::atomic_write, 0, bad.offset, bad.dma_length),
                 bytes_of(bad.payload));
    EXPECT_EQ(answers(host), (Answers{nak(0, NakCode::invalid_request, 0)}));
    EXPECT_EQ(host.memory[bad.offset], Host::pattern(bad.offset));
  }
  for (const bool by_key : {true, false}) {
    Options options;
    if (!by_key) options.access = verbs::AccessFlags(Access::remote_read) | Access::remote_atomic;
    Host host(options);
    host.connect();
    auto write = remote(host, Operation::atomic_write, 0, 16, 8);
    if (by_key) write.rkey = RemoteKey{write.rkey.value + 1};
    host.deliver(write, bytes_of(8));
    EXPECT_EQ(
        answers(host),
        (Answers{nak(0, by_key ? NakCode::remote_access_error : NakCode::invalid_request, 0)}));
    EXPECT_EQ(host.memory[16], Host::pattern(16));
  }
}

// --- windows ---

TEST(RcResponder, SendWithInvalidate) {
  for (const bool right_key : {true, false}) {
    Host host;
    host.connect();
    host.post_receive(10);
    verbs::MemoryWindow window;
    window.pd = &host.pd;
    window.type = verbs::WindowType::type2;
    host.environment.keys.add(window);
    verbs::WindowBinding binding{&host.region, testing::iova, 64, Access::remote_write,
                                 RemoteKey{window.key + 1}};
    ASSERT_TRUE(host.environment.keys.bind(window, host.pd, host.qp->number, binding));
    auto packet = request(Operation::send_only_with_invalidate, 0);
    packet.invalidate_rkey = RemoteKey{window.key + (right_key ? 0 : 1)};
    host.deliver(packet, bytes_of(3));
    const auto completions = host.completions();
    ASSERT_EQ(completions.size(), 1u);
    EXPECT_EQ(window.region == nullptr, right_key);
    if (right_key) {
      EXPECT_TRUE(completions[0].has_invalidate);
      EXPECT_EQ(completions[0].invalidated_rkey, packet.invalidate_rkey);
      EXPECT_EQ(answers(host), (Answers{ack(0, 1, 0)}));
    } else {
      EXPECT_EQ(completions[0].status, CompletionStatus::memory_window_bind_error);
      EXPECT_EQ(answers(host), (Answers{ack(0, 1, 0)})) << "the message has arrived";
      EXPECT_EQ(host.qp->state(), QpState::error);
    }
  }
}

// --- shared receive queue ---

TEST(RcResponder, SharedReceives) {
  Options options;
  options.shared_receives = true;
  Host host(options);
  host.connect();
  host.srq.limit = 2;
  for (int i = 0; i < 3; ++i) host.post_receive(10);
  host.deliver(request(Operation::send_only, 0));
  EXPECT_TRUE(host.raised().empty());
  const auto first = answers(host);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].syndrome.value, no_credits_code) << "shared receives are no credits";
  host.deliver(request(Operation::send_only, 1));
  EXPECT_EQ(host.raised(), (std::vector{EventType::srq_limit_reached}));
  host.deliver(request(Operation::send_only, 2));
  EXPECT_TRUE(host.raised().empty()) << "once armed, once told";
  // A message holds one receive request when the queue pair fails. The others belong to the shared
  // queue.
  host.post_receive(2 * mtu);
  host.post_receive(10);
  host.completions();
  host.deliver(request(Operation::send_first, 3), bytes_of(mtu));
  Host::must(host.step({}, QpState::error));
  const auto completions = host.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].wr_id, 1'003u);
  EXPECT_EQ(completions[0].status, CompletionStatus::flushed);
  EXPECT_EQ(host.raised(), (std::vector{EventType::last_wqe_reached}));
  EXPECT_EQ(host.srq.queue.size(), 1u);
  Host::must(host.step({}, QpState::error));
  EXPECT_TRUE(host.raised().empty()) << "the last receive is reached once";
}

// --- states ---

TEST(RcResponder, StatesThatReceive) {
  Host host;
  host.post_receive(10);
  host.deliver(request(Operation::send_only, 0));
  EXPECT_TRUE(host.completions().empty()) << "INIT";
  host.to_rtr();
  host.deliver(request(Operation::send_only, 0));
  EXPECT_EQ(host.completions().size(), 1u) << "RTR";
  EXPECT_EQ(host.raised(), (std::vector{EventType::communication_established}));
  EXPECT_EQ(answers(host), (Answers{ack(0, 1, 0)}));
  host.to_rts();
  host.post_receive(10);
  Host::must(host.step({}, QpState::sqd));
  host.deliver(request(Operation::send_only, 1));
  EXPECT_EQ(host.completions().size(), 1u) << "SQD";
  EXPECT_EQ(answers(host).size(), 1u);
  EXPECT_TRUE(host.raised().empty());
}

TEST(RcResponder, FromElsewhereOrOfAnotherTransport) {
  Host host;
  host.connect();
  host.post_receive(10);
  wire::IpUdp ip;
  ip.source = Gid::from_ipv4(0x0A00'0009);
  host.qp->handle_packet(host.now, request(Operation::send_only, 0), {}, ip);
  for (const auto transport : {wire::TransportClass::uc, wire::TransportClass::ud}) {
    host.deliver(testing::packet(transport, Operation::send_only, first_psn));
  }
  EXPECT_TRUE(host.completions().empty());
  EXPECT_TRUE(host.pull().empty());
  EXPECT_EQ(host.counters().dropped_packets, 3u);
}

TEST(RcResponder, AnOverrunQueueEndsTheQueuePair) {
  Options options;
  options.cq_entries = 1;
  Host host(options);
  host.connect();
  for (int i = 0; i < 3; ++i) host.post_receive(10);
  host.deliver(request(Operation::send_only, 0));
  host.deliver(request(Operation::send_only, 1));
  EXPECT_EQ(host.qp->state(), QpState::error);
  EXPECT_EQ(host.raised(), (std::vector{EventType::cq_error, EventType::qp_fatal}));
}

TEST(RcResponder, GhostPayloads) {
  Host host;
  host.region.memory = nullptr;
  host.connect();
  host.post_receive(100);
  auto packet = request(Operation::send_only, 0);
  packet.destination_qp = host.qp->number;
  wire::IpUdp ip;
  ip.source = testing::peer_gid;
  host.qp->handle_packet(host.now, packet, {nullptr, 90}, ip);
  EXPECT_EQ(host.completions()[0].byte_length, 90u);
  host.deliver(remote(host, Operation::read_request, 1, 0, 10));
  OutgoingPacket out;
  ASSERT_TRUE(host.qp->pull(host.now, out).packet);
  EXPECT_EQ(out.payload_bytes, 10u);
  EXPECT_EQ(out.piece_count, 0);
}

}  // namespace
}  // namespace tulle::transport::rc

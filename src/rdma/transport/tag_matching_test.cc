#include "rdma/transport/tag_matching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "rdma/transport/host_test.h"
#include "rdma/transport/rc/requester.h"
#include "rdma/wire/tag_matching.h"

namespace tulle::transport {
namespace {

using testing::Host;
using verbs::Completion;
using verbs::CompletionOpcode;
using verbs::CompletionStatus;
using verbs::SendOpcode;
using verbs::TagFlag;
using wire::Operation;
using wire::TagOperation;
using wire::TransportClass;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t exact = ~std::uint64_t{0};
constexpr std::uint32_t ordinary_bytes = 512;

// A host whose shared receive queue matches tags.
class TagMatchingTest : public ::testing::Test {
 protected:
  void SetUp() override { make({}); }

  void make(testing::Options options) {
    options.shared_receives = true;
    host = std::make_unique<Host>(options);
    host->srq.tags = std::make_unique<verbs::TagList>(16);
    host->srq.cq = &host->cq;
    const QueuePairInit init = host->qp->init;
    host->qp = make_queue_pair(TransportTable::standard(), options.number, init, host->environment);
    host->to_init();
    host->connect();
    next = testing::first_psn;
  }

  void expect(std::uint64_t wr_id, std::uint64_t tag, std::uint32_t bytes,
              std::uint64_t offset = 0) {
    const verbs::Sge data = host->sge(offset, bytes);
    std::uint32_t handle = 0;
    Host::must(host->srq.tags->add({wr_id, tag, exact, {&data, 1}}, handle));
  }
  void post_ordinary() { host->post_receive(ordinary_bytes); }

  static Bytes message(TagOperation operation, std::uint64_t tag, const Bytes& more,
                       std::uint32_t context = 0xC0FFEE) {
    wire::TagHeader header;
    header.operation = static_cast<std::uint8_t>(operation);
    header.context = context;
    header.tag = tag;
    Bytes out(sizeof header + more.size());
    std::memcpy(out.data(), &header, sizeof header);
    std::copy(more.begin(), more.end(), out.begin() + sizeof header);
    return out;
  }
  static Bytes where(std::uint64_t address, std::uint32_t key, std::uint32_t length) {
    wire::RendezvousHeader header;
    header.virtual_address = address;
    header.rkey = key;
    header.length = length;
    Bytes out(sizeof header);
    std::memcpy(out.data(), &header, sizeof header);
    return out;
  }

  // Delivers packet `n` of a SEND, counted from 0. Its first PSN is `next`.
  void send_packet(const Bytes& all, std::uint32_t n) {
    const auto bytes = static_cast<std::uint32_t>(all.size());
    const std::uint32_t count = packets_of(all);
    const std::uint32_t from = n * testing::mtu;
    const auto payload = std::span(all).subspan(from, std::min(bytes - from, testing::mtu));
    using enum Operation;
    const Operation operation = count == 1       ? send_only
                                : n == 0         ? send_first
                                : n + 1 == count ? send_last
                                                 : send_middle;
    wire::Packet packet = testing::packet(TransportClass::rc, operation, next + n);
    packet.ack_request = n + 1 == count;
    host->deliver(packet, payload);
  }
  static std::uint32_t packets_of(const Bytes& all) {
    return (static_cast<std::uint32_t>(all.size()) + testing::mtu - 1) / testing::mtu;
  }
  void send(const Bytes& all) {
    for (std::uint32_t n = 0; n < packets_of(all); ++n) send_packet(all, n);
    next = next + packets_of(all);
  }

  Completion only_completion() {
    const auto found = host->completions();
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? Completion{} : found.front();
  }
  Bytes memory(std::uint64_t offset, std::size_t bytes) const {
    const auto from = host->memory.begin() + static_cast<std::ptrdiff_t>(offset);
    return {from, from + static_cast<std::ptrdiff_t>(bytes)};
  }
  // Pulls all packets and returns those that are requests.
  std::vector<testing::Pulled> requests() {
    auto out = host->pull();
    std::erase_if(out, [](const auto& pulled) {
      return wire::info(pulled.packet.opcode).kind == wire::Kind::acknowledge;
    });
    return out;
  }
  void answer_read(const wire::Packet& read, const Bytes& data) {
    host->deliver(testing::packet(TransportClass::rc, Operation::read_response_only, read.psn),
                  data);
  }

  std::unique_ptr<Host> host;
  Psn next;
};

TEST_F(TagMatchingTest, EagerMessagesLandWithoutTheirHeader) {
  expect(5, 42, 1'000);
  const Bytes data = testing::bytes_of(700);
  send(message(TagOperation::eager, 42, data));
  const Completion completion = only_completion();
  EXPECT_EQ(completion.status, CompletionStatus::success);
  EXPECT_EQ(completion.opcode, CompletionOpcode::tag_receive);
  EXPECT_EQ(completion.wr_id, 5u);
  EXPECT_EQ(completion.byte_length, 700u);
  EXPECT_TRUE(completion.has(TagFlag::matched) && completion.has(TagFlag::data_valid));
  EXPECT_EQ(completion.tag, 42u);
  EXPECT_EQ(completion.tag_context, 0xC0FFEEu);
  EXPECT_EQ(memory(0, 700), data);
  EXPECT_EQ(memory(700, 1)[0], Host::pattern(700));
}

TEST_F(TagMatchingTest, AnEagerMessageMayBeEmpty) {
  expect(5, 42, 0);
  send(message(TagOperation::eager, 42, {}));
  EXPECT_EQ(only_completion().byte_length, 0u);
}

TEST_F(TagMatchingTest, LostAndRepeatedPacketsChangeNothing) {
  expect(5, 42, 1'000);
  expect(6, 42, 1'000, 4'096);
  const Bytes data = testing::bytes_of(600);
  const Bytes all = message(TagOperation::eager, 42, data);
  send_packet(all, 0);
  send_packet(all, 2);  // packet 1 was lost
  send_packet(all, 0);
  send_packet(all, 1);
  send_packet(all, 1);
  send_packet(all, 2);
  send_packet(all, 2);
  EXPECT_EQ(only_completion().wr_id, 5u);
  EXPECT_EQ(memory(0, 600), data);
  EXPECT_EQ(host->srq.tags->size(), 1u);
}

TEST_F(TagMatchingTest, UnexpectedMessagesComeWholeAndAreCounted) {
  const Bytes all = message(TagOperation::eager, 42, testing::bytes_of(100));
  send(all);  // no receive request: the sender must send it again
  EXPECT_TRUE(host->completions().empty());
  EXPECT_TRUE(host->srq.tags->is_synchronized());
  next = testing::first_psn;
  post_ordinary();
  send(all);
  const Completion completion = only_completion();
  EXPECT_EQ(completion.opcode, CompletionOpcode::tag_receive);
  EXPECT_EQ(completion.wr_id, 1'000u);
  EXPECT_EQ(completion.byte_length, 116u);
  EXPECT_EQ(completion.tag_flags, 0u);
  EXPECT_EQ(memory(8'192, 116), all);
  EXPECT_FALSE(host->srq.tags->is_synchronized());
}

TEST_F(TagMatchingTest, WhatFollowsARefusedMessageHasNoneOfItsTag) {
  send(message(TagOperation::eager, 42, testing::bytes_of(100)));  // no receive request
  post_ordinary();
  wire::Packet write =
      testing::packet(TransportClass::rc, Operation::write_only_with_immediate, testing::first_psn);
  write.virtual_address = testing::iova;
  write.rkey = host->region.rkey();
  write.dma_length = 8;
  host->deliver(write, testing::bytes_of(8));
  EXPECT_EQ(only_completion().opcode, CompletionOpcode::receive_write_with_immediate);
}

TEST_F(TagMatchingTest, WhatHasNoTagTakesNoTaggedRequest) {
  expect(5, 42, 1'000);
  const std::vector<Bytes> messages = {
      message(TagOperation::no_tag, 42, testing::bytes_of(20)),
      message(TagOperation::finished, 42, {}),
      message(TagOperation{9}, 42, {}),
      testing::bytes_of(15),                             // shorter than a header
      message(TagOperation::rendezvous, 42, Bytes(15)),  // an incomplete rendezvous header
  };
  for (const Bytes& each : messages) {
    post_ordinary();
    send(each);
    const Completion completion = only_completion();
    EXPECT_EQ(completion.opcode, CompletionOpcode::no_tag_receive);
    EXPECT_EQ(completion.byte_length, each.size());
    EXPECT_EQ(completion.tag_flags, 0u);
  }
  EXPECT_TRUE(host->srq.tags->is_synchronized());
  EXPECT_EQ(host->srq.tags->size(), 1u);
}

TEST_F(TagMatchingTest, AMessageTooLongForItsRequestFailsLikeAnyReceive) {
  expect(5, 42, 50);
  send(message(TagOperation::eager, 42, testing::bytes_of(51)));
  const Completion completion = only_completion();
  EXPECT_EQ(completion.wr_id, 5u);
  EXPECT_EQ(completion.status, CompletionStatus::local_length_error);
  EXPECT_EQ(host->qp->state(), verbs::QpState::error);
}

TEST_F(TagMatchingTest, ARendezvousReadsAndAnswers) {
  expect(5, 42, 1'000, 4'096);
  send(message(TagOperation::rendezvous, 42, where(0x1234'0000, 77, 200)));
  Completion completion = only_completion();
  EXPECT_EQ(completion.wr_id, 5u);
  EXPECT_TRUE(completion.has(TagFlag::matched) && !completion.has(TagFlag::data_valid));
  EXPECT_EQ(completion.tag, 42u);
  auto sent = host->pull();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(wire::info(sent[0].packet.opcode).kind, wire::Kind::acknowledge)
      << "the sender's request is done before it is told that the data was read";
  const wire::Packet read = sent[1].packet;
  EXPECT_EQ(wire::info(read.opcode).kind, wire::Kind::read_request);
  EXPECT_EQ(read.virtual_address, 0x1234'0000u);
  EXPECT_EQ(read.rkey, RemoteKey(77));
  EXPECT_EQ(read.dma_length, 200u);
  const Bytes data = testing::bytes_of(200, 9);
  answer_read(read, data);
  completion = only_completion();
  EXPECT_EQ(completion.wr_id, 5u);
  EXPECT_EQ(completion.opcode, CompletionOpcode::tag_receive);
  EXPECT_EQ(completion.tag_flags, static_cast<std::uint8_t>(TagFlag::data_valid));
  EXPECT_EQ(completion.byte_length, 200u);
  EXPECT_EQ(memory(4'096, 200), data);
  EXPECT_EQ(memory(4'296, 1)[0], Host::pattern(4'296));
  sent = requests();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(wire::operation_of(sent[0].packet.opcode), Operation::send_only);
  EXPECT_EQ(sent[0].payload, message(TagOperation::finished, 42, {}));
  host->deliver([&] {
    wire::Packet ack =
        testing::packet(TransportClass::rc, Operation::acknowledge, sent[0].packet.psn);
    ack.syndrome = {wire::AckKind::ack, rc::no_credits_code};
    return ack;
  }());
  EXPECT_TRUE(host->completions().empty()) << "the answer is the device's own";
  EXPECT_EQ(host->qp->send_queue.size(), 0u);
}

TEST_F(TagMatchingTest, ARendezvousLongerThanItsRequestIsNotRead) {
  for (const std::uint32_t length : {51u, ~0u}) {
    make({});
    expect(5, 42, 50);
    send(message(TagOperation::rendezvous, 42, where(0, 77, length)));
    EXPECT_EQ(only_completion().status, CompletionStatus::local_length_error);
    EXPECT_EQ(host->qp->state(), verbs::QpState::error);
  }
}

TEST_F(TagMatchingTest, OnlyItsOwnPlacesOfTheSendQueueAreTheDevices) {
  for (std::uint64_t i = 0; i < 12; ++i) {
    expect(i, i, 100);
    send(message(TagOperation::rendezvous, i, where(0, 77, 10)));
  }
  EXPECT_EQ(host->qp->send_queue.size(), 8u) << "the others wait";
  for (int i = 0; i < 32; ++i) host->post(SendOpcode::write, 8);
  verbs::SendRequest request;
  request.opcode = SendOpcode::write;
  EXPECT_EQ(host->try_post(request, 8), verbs::VerbsStatus::out_of_memory);
  (void)host->completions();
  // Every rendezvous that was matched but not read is flushed, in order, and so are the
  // application's requests.
  QueuePairAttributes to;
  Host::must(host->step(to, verbs::QpState::error));
  const auto flushed = host->completions();
  ASSERT_EQ(flushed.size(), 12u + 32u);
  std::vector<std::uint64_t> tagged;
  for (const Completion& each : flushed) {
    EXPECT_EQ(each.status, CompletionStatus::flushed);
    if (each.opcode == CompletionOpcode::tag_receive) tagged.push_back(each.wr_id);
  }
  EXPECT_EQ(tagged, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(host->qp->send_queue.size(), 0u);
}

TEST_F(TagMatchingTest, TheApplicationHasNoneOfTheDevicesPlaces) {
  verbs::SendRequest request;
  request.opcode = SendOpcode::write;
  for (std::uint32_t i = 0; i < host->qp->init.send_work_requests; ++i) {
    EXPECT_EQ(host->try_post(request, 8), verbs::VerbsStatus::ok);
  }
  EXPECT_EQ(host->try_post(request, 8), verbs::VerbsStatus::out_of_memory);
}

TEST_F(TagMatchingTest, AReadThatIsRefusedFailsItsRequest) {
  expect(5, 42, 100);
  send(message(TagOperation::rendezvous, 42, where(0, 77, 10)));
  (void)host->completions();
  const auto sent = requests();
  ASSERT_EQ(sent.size(), 1u);
  wire::Packet nak =
      testing::packet(TransportClass::rc, Operation::acknowledge, sent[0].packet.psn);
  nak.syndrome = {wire::AckKind::nak,
                  static_cast<std::uint8_t>(wire::NakCode::remote_access_error)};
  host->deliver(nak);
  const Completion completion = only_completion();
  EXPECT_EQ(completion.wr_id, 5u);
  EXPECT_EQ(completion.status, CompletionStatus::remote_access_error);
  EXPECT_EQ(host->qp->state(), verbs::QpState::error);
}

// No request of the application can tell why the queue pair fails if the device's own answer does.
TEST_F(TagMatchingTest, AnAnswerThatIsRefusedIsAnEvent) {
  expect(5, 42, 100);
  send(message(TagOperation::rendezvous, 42, where(0, 77, 10)));
  answer_read(requests().at(0).packet, testing::bytes_of(10));
  (void)host->completions();
  const auto sent = requests();
  ASSERT_EQ(sent.size(), 1u);
  wire::Packet nak =
      testing::packet(TransportClass::rc, Operation::acknowledge, sent[0].packet.psn);
  nak.syndrome = {wire::AckKind::nak,
                  static_cast<std::uint8_t>(wire::NakCode::remote_operational_error)};
  host->deliver(nak);
  EXPECT_EQ(host->raised().at(0), verbs::EventType::qp_fatal);
  EXPECT_TRUE(host->completions().empty());
  EXPECT_EQ(host->qp->state(), verbs::QpState::error);
}

// The device's own READ writes to memory that a receive request names.
TEST_F(TagMatchingTest, AReadUsesTheDomainOfTheQueue) {
  verbs::ProtectionDomain other;
  host->srq.pd = &other;
  host->region.pd = &other;
  expect(5, 42, 10);
  send(message(TagOperation::rendezvous, 42, where(0, 77, 10)));
  EXPECT_EQ(only_completion().status, CompletionStatus::success) << "matched";
  const auto sent = requests();
  ASSERT_EQ(sent.size(), 1u);
  const Bytes data = testing::bytes_of(10);
  host->deliver(
      testing::packet(TransportClass::rc, Operation::read_response_only, sent[0].packet.psn), data);
  EXPECT_EQ(only_completion().status, CompletionStatus::success);
  EXPECT_EQ(host->memory[0], data[0]);
}

TEST_F(TagMatchingTest, AResetForgetsWhatWasUnderWay) {
  expect(5, 42, 100);
  send(message(TagOperation::rendezvous, 42, where(0, 77, 10)));
  QueuePairAttributes to;
  Host::must(host->step(to, verbs::QpState::reset));
  EXPECT_TRUE(host->completions().empty());
  host->to_init();
  host->connect();
  next = testing::first_psn;
  EXPECT_TRUE(requests().empty());
  expect(6, 42, 100);
  send(message(TagOperation::eager, 42, testing::bytes_of(10)));
  EXPECT_EQ(only_completion().wr_id, 6u);
}

}  // namespace
}  // namespace tulle::transport

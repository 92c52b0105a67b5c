// Tests of READs that come again.

#include <gtest/gtest.h>

#include "rdma/transport/host_test.h"
#include "rdma/transport/rc/requests_test.h"
#include "rdma/transport/rc/responder_answers_test.h"

namespace tulle::transport::rc {
namespace {

using namespace responder;
using testing::bytes_of;
using testing::Host;
using testing::mtu;
using testing::Options;
using verbs::QpState;
using wire::NakCode;
using wire::Operation;

// Packets that the network delivers again take no room from new requests.
TEST(RcResponder, LateDuplicatesDoNotFillTheDepth) {
  Options options;
  options.depth = 1;
  Host host(options);
  host.connect();
  for (std::uint32_t psn = 0; psn < 3; ++psn) {
    host.deliver(remote(host, Operation::read_request, psn, 0, 1));
    host.pull();
  }
  for (std::uint32_t psn = 0; psn < 3; ++psn) {
    host.deliver(remote(host, Operation::read_request, psn, 0, 1));
  }
  host.deliver(remote(host, Operation::read_request, 3, 0, 1));
  EXPECT_EQ(host.qp->state(), QpState::rts);
  EXPECT_EQ(answers(host).back().psn, 3);
}

TEST(RcResponder, OneDuplicateGivesWayToANewRequestAndNothingElseDoes) {
  Options options;
  options.depth = 3;
  Host host(options);
  host.connect();
  for (std::uint32_t psn = 0; psn < 2; ++psn) {
    host.deliver(remote(host, Operation::read_request, psn, 0, 1));
    host.pull();
  }
  // Two requests wait, and duplicates of two that were answered: four are the depth and one more.
  for (const std::uint32_t psn : {2u, 3u, 0u, 1u, 4u}) {
    host.deliver(remote(host, Operation::read_request, psn, 0, 1));
  }
  std::vector<int> order;
  for (const Answer& each : answers(host)) order.push_back(each.psn);
  EXPECT_EQ(order, (std::vector{1, 2, 3, 4}));
  EXPECT_EQ(host.qp->state(), QpState::rts);
}

// The requester takes an answer that runs ahead of its turn as the loss of those before it.
TEST(RcResponder, RepeatsAreAnsweredInTheOrderOfTheirPsns) {
  Host host;
  host.connect();
  for (std::uint32_t psn = 0; psn < 2; ++psn) {
    host.deliver(remote(host, Operation::read_request, psn, 0, 1));
  }
  host.deliver(remote(host, Operation::fetch_add, 2, 16, 0));
  host.pull();
  host.deliver(remote(host, Operation::read_request, 3, 0, 1));
  host.deliver(remote(host, Operation::fetch_add, 2, 16, 0));
  host.deliver(remote(host, Operation::read_request, 0, 0, 1));
  host.deliver(remote(host, Operation::read_request, 1, 0, 1));
  std::vector<int> order;
  for (const Answer& each : answers(host)) order.push_back(each.psn);
  EXPECT_EQ(order, (std::vector{0, 1, 2, 3}));
}

// A request with a PSN of the past repeats a READ that was executed, or a part of it, or nothing.
TEST(RcResponder, WhatRepeatsNoReadIsNotAnswered) {
  Host host;
  host.connect();
  host.post_receive(100);
  host.deliver(request(Operation::send_only, 0), bytes_of(50));
  host.deliver(remote(host, Operation::read_request, 1, 64, 2 * mtu));
  host.pull();
  const auto is_answered = [&](std::uint32_t psn, std::uint64_t offset, std::uint32_t bytes,
                               std::uint32_t key = 0) {
    auto again = remote(host, Operation::read_request, psn, offset, bytes);
    again.rkey.value += key;
    host.deliver(again);
    return !host.pull().empty();
  };
  EXPECT_FALSE(is_answered(0, 64, 8)) << "a SEND had this PSN";
  EXPECT_TRUE(is_answered(1, 64, 2 * mtu));
  EXPECT_TRUE(is_answered(2, 64 + mtu, mtu)) << "a part";
  EXPECT_FALSE(is_answered(1, 63, mtu)) << "begins before it";
  EXPECT_FALSE(is_answered(2, 65 + mtu, mtu)) << "ends behind it";
  EXPECT_FALSE(is_answered(2, 64, 2 * mtu)) << "more packets than are left";
  EXPECT_FALSE(is_answered(1, 64, mtu, 1)) << "another key";
  EXPECT_EQ(host.qp->state(), QpState::rts);
}

TEST(RcResponder, ARepeatedReadNeedsTheRightThatItsQueuePairHasNow) {
  Host host;
  host.connect();
  const auto read = remote(host, Operation::read_request, 0, 0, 8);
  host.deliver(read);
  EXPECT_FALSE(host.pull().empty());
  QueuePairAttributes none;
  ASSERT_EQ(host.step(none, QpState::rts, verbs::QpAttribute::access_flags),
            verbs::VerbsStatus::ok);
  host.deliver(read);
  EXPECT_EQ(answers(host), (Answers{nak(0, NakCode::remote_access_error, 1)}));
  EXPECT_EQ(host.qp->state(), QpState::rts);
}

TEST(RcResponder, AQueuePairWithoutReadsAnswersNone) {
  Options options;
  options.access = {};
  options.depth = 0;
  Host host(options);
  host.connect();
  host.post_receive(100);
  host.deliver(request(Operation::send_only, 0), bytes_of(50));
  host.pull();
  host.deliver(remote(host, Operation::read_request, 0, 0, 8));
  EXPECT_TRUE(host.pull().empty());
}

// The memory of a READ that was answered long ago may be gone when a copy of it arrives.
TEST(RcResponder, ALateReadOfMemoryThatIsGone) {
  Host host;
  host.connect();
  const auto read = remote(host, Operation::read_request, 0, 0, 8);
  host.deliver(read);
  host.pull();
  host.environment.keys.renew(host.region);
  host.deliver(read);
  EXPECT_EQ(answers(host), (Answers{nak(0, NakCode::remote_access_error, 1)}));
  EXPECT_EQ(host.qp->state(), QpState::rts);
  EXPECT_TRUE(host.raised().empty());
}

// Delivers so many WRITEs of one packet, from a PSN on.
void write_many(Host& host, std::uint32_t from, std::uint32_t count) {
  auto write = remote(host, Operation::write_only, from, 0, 4);
  const auto data = bytes_of(4);
  for (std::uint32_t i = 0; i < count; ++i) {
    host.deliver(write, data);
    write.psn = write.psn + 1;
  }
  host.pull();
}

// The space of PSNs has 2^24, and an atomic of its last turn is not the one that is repeated.
TEST(RcResponder, ARepeatedAtomicIsTheLatestOfItsPsn) {
  Host host;
  host.connect();
  auto add = remote(host, Operation::fetch_add, 0, 16, 0);
  add.swap_or_add = 5;
  const auto original = [&] {
    host.deliver(add);
    const auto pulled = host.pull();
    return pulled.empty() ? ~0ull : pulled[0].packet.original;
  };
  const std::uint64_t first = original();
  write_many(host, 1, (1u << 24) - 1);
  EXPECT_EQ(original(), first + 5);
  EXPECT_EQ(original(), first + 5) << "the same once more";
}

// A connection may live without READs for long, and one acknowledgement answers all that came.
TEST(RcResponder, OneAnswerAcknowledgesManyDuplicatesHoweverLongAgoTheLastReadWas) {
  Host host;
  host.connect();
  constexpr std::uint32_t many = (1u << 23) + 100;
  write_many(host, 0, many);
  auto again = remote(host, Operation::write_only, many - 10, 0, 4);
  host.deliver(again, bytes_of(4));
  const auto all = answers(host);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].psn, static_cast<int>(many - 1) - (1 << 24));
}

}  // namespace
}  // namespace tulle::transport::rc

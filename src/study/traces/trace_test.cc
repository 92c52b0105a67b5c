#include "study/traces/trace.h"

#include <gtest/gtest.h>

#include "study/traces/expansion.h"
#include "study/traces/trace_test.h"

namespace tulle::traces {
namespace {

using Kind = Node::Kind;

// Builds traces of three ranks. The number of a node is that of its place.
class Builder {
 public:
  explicit Builder(const Limits& limits = {}) : trace_(3, limits) {
    trace_.add_file("t", Trace::Numbers::nodes);
  }

  Trace::Index computation(std::uint32_t rank, std::int64_t ns = 1) {
    Node node = at(Kind::computation, rank);
    node.duration = Time::nanoseconds(ns);
    return add(node);
  }
  Trace::Index send(std::uint32_t rank, std::uint32_t peer, std::uint64_t bytes = 1,
                    std::uint64_t tag = 0) {
    Node node = at(Kind::send, rank);
    node.peer = peer;
    node.bytes = bytes;
    node.tag = tag;
    return add(node);
  }
  Trace::Index receive(std::uint32_t rank, std::uint32_t peer, std::uint64_t tag = 0) {
    Node node = at(Kind::receive, rank);
    node.peer = peer;
    node.tag = tag;
    return add(node);
  }
  Trace::Index collective(std::uint32_t rank, std::uint64_t bytes,
                          workload::Collective kind = workload::Collective::all_reduce) {
    Node node = at(Kind::collective, rank);
    node.collective = kind;
    node.bytes = bytes;
    node.group = trace_.add_group({2, 0, 1}).value();
    return add(node);
  }
  void wait(Trace::Index node, Trace::Index before) { EXPECT_TRUE(trace_.wait(node, before)); }

  std::string build() const {
    auto graph = trace_.build(servers_of(3));
    if (!graph) return graph.error().message;
    auto right = graph->check();
    return right ? text_of(*graph) : right.error().message;
  }
  Trace& trace() { return trace_; }

 private:
  Node at(Kind kind, std::uint32_t rank) const {
    Node node;
    node.kind = kind;
    node.rank = rank;
    node.number = trace_.size();
    return node;
  }
  Trace::Index add(const Node& node) {
    auto index = trace_.add(node);
    EXPECT_TRUE(index);
    return index ? *index : 0;
  }

  Trace trace_;
};

TEST(Trace, ANodeMayWaitForOneThatComesLater) {
  Builder builder;
  const auto send = builder.send(0, 1, 10);
  const auto computation = builder.computation(0, 5);
  builder.wait(send, computation);
  builder.receive(1, 0);
  EXPECT_EQ(builder.build(), "0: 0 computes 5 ns\n1: 0->1 10 after 0\n");
}

TEST(Trace, AReceiveWaitsForTheMessageOfItsTag) {
  Builder builder;
  const auto second = builder.receive(1, 0, 7);
  const auto first = builder.receive(1, 0, 3);
  builder.send(0, 1, 30, 3);
  builder.send(0, 1, 70, 7);
  const auto before = builder.computation(1, 1);
  const auto after = builder.computation(1, 2);
  builder.wait(first, before);
  builder.wait(after, first);
  const auto last = builder.send(1, 2, 5);
  builder.wait(last, second);
  builder.receive(2, 1);
  // The receive of tag 3 begins behind a computation, so that it is over when both are.
  EXPECT_EQ(builder.build(),
            "0: 0->1 30\n1: 0->1 70\n2: 1 computes 1 ns\n3: 1 joins after 0 2\n"
            "4: 1->2 5 after 1\n5: 1 computes 2 ns after 3\n");
}

TEST(Trace, ANodeThatDoesNothingPassesOnWhatItWaitsFor) {
  Builder builder;
  const auto a = builder.computation(0, 1);
  Node nothing;
  nothing.number = 1;
  const auto b = builder.trace().add(nothing).value();
  const auto c = builder.computation(0, 2);
  builder.wait(b, a);
  builder.wait(c, b);
  EXPECT_EQ(builder.build(), "0: 0 computes 1 ns\n1: 0 computes 2 ns after 0\n");
}

TEST(Trace, WaitingForABeginningIsWaitingForWhatThatWaitsFor) {
  Builder builder;
  const auto a = builder.computation(0, 1);
  const auto b = builder.computation(0, 2);
  const auto c = builder.computation(0, 3);
  builder.wait(b, a);
  EXPECT_TRUE(builder.trace().wait_for_start(c, b));
  EXPECT_EQ(builder.build(),
            "0: 0 computes 1 ns\n1: 0 computes 2 ns after 0\n2: 0 computes 3 ns after 0\n");
}

TEST(Trace, ACollectiveBeginsAndEndsAtEachRankByItself) {
  Builder builder;
  const auto before = builder.computation(1, 4);
  for (const std::uint32_t rank : {0u, 1u, 2u}) {
    const auto call = builder.collective(rank, 9, workload::Collective::all_gather);
    if (rank == 1) builder.wait(call, before);
    if (rank == 2) builder.wait(builder.computation(2, 6), call);
  }
  // A ring of three ranks: each segment of 3 bytes goes on twice. Rank 1 sends nothing before it
  // has computed. Rank 2 goes on when all that it sends and receives has ended.
  EXPECT_EQ(builder.build(),
            "0: 1 computes 4 ns\n"
            "1: 0->1 3 by 1\n2: 1->2 3 by 1 after 0\n3: 2->0 3 by 1\n"
            "4: 0->1 3 by 1 after 3\n5: 1->2 3 by 1 after 1 0\n6: 2->0 3 by 1 after 2\n"
            "7: 0 joins after 1 4 6\n8: 1 joins after 2 4 5\n9: 2 joins after 3 5 6\n"
            "10: 2 computes 6 ns after 9\n");
}

TEST(Trace, WhatHasNoCounterpartIsNamed) {
  Builder sends;
  sends.computation(0);
  sends.send(0, 1, 10, 5);
  sends.receive(1, 0, 6);
  EXPECT_EQ(sends.build(),
            "t: node 1: rank 0 sends to rank 1 with tag 5, and rank 1 has no receive for it; give "
            "each message both");
  Builder receives;
  receives.receive(1, 0);
  receives.receive(1, 0);
  receives.send(0, 1);
  EXPECT_EQ(receives.build(),
            "t: node 1: rank 1 receives from rank 0 with tag 0, and rank 0 has no send for it; "
            "give each message both");
}

TEST(Trace, ACycleIsNamed) {
  Builder builder;
  const auto a = builder.computation(0), b = builder.computation(0), c = builder.computation(0);
  builder.wait(a, c);
  builder.wait(b, a);
  builder.wait(c, b);
  EXPECT_EQ(builder.build(),
            "t: node 0: waits for itself: it waits for t: node 2, which waits for t: node 1, which "
            "waits for t: node 0; remove one of 3 dependencies");
  Builder behind;
  behind.computation(0);
  const auto d = behind.computation(0), e = behind.computation(0);
  behind.wait(d, e);
  behind.wait(e, d);
  EXPECT_EQ(behind.build(),
            "t: node 1: waits for itself: it waits for t: node 2, which waits for t: node 1; "
            "remove one of 2 dependencies");
  // Each of two ranks sends when it has received.
  Builder ranks;
  ranks.wait(ranks.send(0, 1), ranks.receive(0, 1));
  ranks.wait(ranks.send(1, 0), ranks.receive(1, 0));
  EXPECT_TRUE(ranks.build().starts_with("t: node ")) << ranks.build();
  EXPECT_TRUE(ranks.build().ends_with("remove one of 4 dependencies")) << ranks.build();
}

TEST(Trace, RanksCallTheSameCollectives) {
  Builder kinds;
  kinds.collective(0, 9);
  kinds.collective(1, 9);
  kinds.collective(2, 9, workload::Collective::broadcast);
  EXPECT_EQ(kinds.build(),
            "t: node 2: broadcast meets all-reduce of rank 0 (t: node 0); the ranks of a group "
            "call the same collectives in the same order");
  Builder sizes;
  sizes.collective(0, 9);
  sizes.collective(1, 8);
  sizes.collective(2, 9);
  EXPECT_EQ(sizes.build(),
            "t: node 1: 8 bytes meet 9 of rank 0 (t: node 0); one collective has "
            "one size");
  Builder counts;
  counts.collective(0, 9);
  counts.collective(2, 9);
  EXPECT_EQ(counts.build(),
            "t: node 0: rank 1 does not take part in this all-reduce; each rank of "
            "the group calls it");
  Builder more;
  for (const std::uint32_t rank : {0u, 1u, 2u, 1u}) more.collective(rank, 9);
  EXPECT_EQ(more.build(),
            "t: node 3: rank 0 does not take part in this all-reduce; each rank of "
            "the group calls it");
}

TEST(Trace, ImpossibleNodesAreNamed) {
  Builder builder;
  const auto error_of = [&](const Node& node) { return builder.trace().add(node).error().message; };
  Node node;
  node.number = 4;
  node.kind = Kind::send;
  node.peer = 3;
  EXPECT_EQ(error_of(node), "t: node 4: there is no rank 3; ranks are 0 to 2");
  node.peer = 0;
  EXPECT_EQ(error_of(node), "t: node 4: rank 0 sends to itself; leave the message out");
  node.peer = 1;
  node.bytes = Node::bytes_max + 1;
  EXPECT_EQ(error_of(node), "t: node 4: 17592186044417 bytes are too many: 16 TiB at most");
  node = {};
  node.kind = Kind::computation;
  node.duration = Trace::computation_max;
  EXPECT_TRUE(builder.trace().add(node));
  node.duration = Time::picoseconds(1);
  EXPECT_EQ(error_of(node),
            "t: node 0: the computations of all ranks together last more than 50 days");
  EXPECT_EQ(builder.trace().add_group({0, 3}).error().message,
            "a group has rank 3, and ranks are 0 to 2");
  EXPECT_EQ(builder.trace().add_group({1, 1}).error().message, "a group has a rank twice");
}

TEST(Trace, CostsNoMoreThanItsLimits) {
  Limits limits;
  limits.nodes = 2;
  limits.dependencies = 1;
  Builder nodes(limits);
  const auto a = nodes.computation(0), b = nodes.computation(0);
  nodes.wait(b, a);
  EXPECT_EQ(nodes.trace().wait(b, a).error().message,
            "t: node 1: a trace has at most 1 dependencies");
  EXPECT_EQ(nodes.trace().add(Node()).error().message,
            "t: node 0: a trace has at most 2 nodes, all ranks together");
  limits = {};
  limits.tasks = 30;
  limits.members = 3;
  Builder tasks(limits);
  for (const std::uint32_t rank : {0u, 1u, 2u}) tasks.collective(rank, 9);
  EXPECT_TRUE(tasks.build().starts_with("t: node 0: the trace takes more than 30 messages"))
      << tasks.build();
  EXPECT_FALSE(tasks.trace().add_group({0, 1}));
}

// Messages of more than 1 GiB go in pieces.
TEST(Trace, LongMessagesAreCut) {
  Builder builder;
  builder.send(0, 1, (1u << 30) + 5);
  builder.receive(1, 0);
  EXPECT_EQ(builder.build(), "0: 0->1 1073741824\n1: 0->1 5\n");
}

TEST(Shape, FollowsTheServers) {
  workload::Servers servers;
  servers.servers = 4;
  servers.gpus = 8;
  servers.adapters = 4;
  const auto shape = [&](std::vector<std::uint32_t> ranks) {
    const workload::Servers made = shape_of(ranks, servers);
    return fmt::format("{} {} {}", made.servers, made.gpus, made.adapters);
  };
  EXPECT_EQ(shape({0, 1, 2, 3}), "1 4 2");
  EXPECT_EQ(shape({0, 8, 16, 24}), "4 1 1");
  EXPECT_EQ(shape({0, 2, 8, 10}), "2 2 2");
  EXPECT_EQ(shape({0, 1, 8}), "3 1 1") << "servers with different numbers of ranks";
  EXPECT_EQ(shape({0, 1, 8, 10}), "4 1 1") << "with different numbers of adapters";
}

}  // namespace
}  // namespace tulle::traces

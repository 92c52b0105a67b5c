#include "study/workload/flows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace tulle::workload {
namespace {

Flows made(Result<Flows> result) {
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : Flows{};
}

std::string error_of(const Result<Flows>& result) {
  EXPECT_FALSE(result);
  return result ? "" : result.error().message;
}

// Checks the rules that hold for every list of flows.
void check_list(const Flows& flows, std::uint32_t hosts) {
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const Flow& flow = flows[i];
    ASSERT_LT(flow.source, hosts);
    ASSERT_LT(flow.destination, hosts);
    ASSERT_NE(flow.source, flow.destination);
    ASSERT_GT(flow.bytes, 0u);
    ASSERT_GE(flow.start, Time::zero());
    ASSERT_LT(flow.after, static_cast<std::int32_t>(i));
    if (flow.after >= 0) {
      ASSERT_EQ(flows[static_cast<std::size_t>(flow.after)].destination, flow.source);
    }
  }
}

// Returns the length of the longest chain of flows in which each waits for the one before.
int depth_of(const Flows& flows) {
  std::vector<int> depths(flows.size());
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const std::int32_t after = flows[i].after;
    depths[i] = 1 + (after < 0 ? 0 : depths[static_cast<std::size_t>(after)]);
  }
  return flows.empty() ? 0 : *std::max_element(depths.begin(), depths.end());
}

// Counts how often each host is a destination.
std::map<std::uint32_t, int> arrivals_of(const Flows& flows) {
  std::map<std::uint32_t, int> arrivals;
  for (const Flow& flow : flows) ++arrivals[flow.destination];
  return arrivals;
}

TEST(Permutation, IsADerangement) {
  for (const std::uint32_t hosts : {2u, 3u, 7u, 128u}) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      SCOPED_TRACE(testing::Message() << hosts << " hosts, seed " << seed);
      const Flows flows = made(permutation({.hosts = hosts, .bytes = 1'000, .seed = seed}));
      check_list(flows, hosts);
      ASSERT_EQ(flows.size(), hosts);
      ASSERT_EQ(arrivals_of(flows).size(), hosts);
      for (std::uint32_t host = 0; host < hosts; ++host) ASSERT_EQ(flows[host].source, host);
    }
  }
}

TEST(Permutation, EveryDerangementIsAsLikely) {
  // Four hosts have nine derangements.
  std::map<std::vector<std::uint32_t>, int> seen;
  for (std::uint64_t seed = 0; seed < 9'000; ++seed) {
    std::vector<std::uint32_t> destinations;
    for (const Flow& flow : made(permutation({.hosts = 4, .bytes = 1, .seed = seed}))) {
      destinations.push_back(flow.destination);
    }
    ++seen[destinations];
  }
  ASSERT_EQ(seen.size(), 9u);
  for (const auto& [destinations, count] : seen) EXPECT_NEAR(count, 1'000, 150);
}

TEST(Permutation, SameSeedSameFlows) {
  const PermutationSettings settings{.hosts = 64, .bytes = 1, .seed = 9};
  PermutationSettings other = settings;
  other.seed = 10;
  EXPECT_EQ(made(permutation(settings)), made(permutation(settings)));
  EXPECT_NE(made(permutation(settings)), made(permutation(other)));
}

TEST(Permutation, IsTheSameEverywhere) {
  std::vector<std::uint32_t> destinations;
  for (const Flow& flow : made(permutation({.hosts = 8, .bytes = 1, .seed = 1}))) {
    destinations.push_back(flow.destination);
  }
  EXPECT_EQ(destinations, (std::vector<std::uint32_t>{3, 0, 4, 5, 7, 2, 1, 6}));
}

TEST(Shift, GoesRoundTheEnd) {
  const Flows flows =
      made(shift({.hosts = 5, .distance = 3, .bytes = 7, .start = Time::microseconds(2)}));
  check_list(flows, 5);
  ASSERT_EQ(flows.size(), 5u);
  EXPECT_EQ(flows[1], (Flow{1, 4, 7, Time::microseconds(2)}));
  EXPECT_EQ(flows[4], (Flow{4, 2, 7, Time::microseconds(2)}));
  EXPECT_EQ(arrivals_of(flows).size(), 5u);
}

TEST(Incast, IsOneReceiverAndDistinctSenders) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Flows flows = made(incast({.hosts = 20, .senders = 7, .bytes = 5, .seed = seed}));
    check_list(flows, 20);
    std::set<std::uint32_t> senders;
    for (const Flow& flow : flows) senders.insert(flow.source);
    EXPECT_EQ(senders.size(), 7u);
    EXPECT_EQ(arrivals_of(flows).size(), 1u);
  }
}

TEST(Incast, TakesTheReceiverThatItIsGiven) {
  const Flows flows =
      made(incast({.hosts = 33, .senders = 32, .receiver = 32, .bytes = 1'000'000}));
  check_list(flows, 33);
  ASSERT_EQ(flows.size(), 32u);
  for (std::uint32_t host = 0; host < 32; ++host) {
    EXPECT_EQ(flows[host], (Flow{host, 32, 1'000'000}));
  }
}

TEST(Incast, AGivenReceiverLeavesTheSendersDrawnFromTheRest) {
  const Flows flows = made(incast({.hosts = 9, .senders = 7, .receiver = 0, .bytes = 1}));
  check_list(flows, 9);
  EXPECT_EQ(arrivals_of(flows)[0], 7);
}

TEST(AllToAll, IsEachToEachOther) {
  using Rounds = AllToAllSettings::Rounds;
  for (const Rounds rounds : {Rounds::at_once, Rounds::staggered}) {
    const Flows flows = made(all_to_all({.hosts = 6, .bytes = 10, .rounds = rounds}));
    check_list(flows, 6);
    std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
    for (const Flow& flow : flows) pairs.insert({flow.source, flow.destination});
    EXPECT_EQ(flows.size(), 30u);
    EXPECT_EQ(pairs.size(), 30u);
    EXPECT_EQ(depth_of(flows), rounds == Rounds::at_once ? 1 : 5);
  }
}

TEST(AllToAll, InEachRoundEveryHostReceivesFromOne) {
  const Flows flows = made(all_to_all({.hosts = 6, .bytes = 10}));
  for (std::size_t round = 0; round < 5; ++round) {
    const auto begin = flows.begin() + static_cast<std::ptrdiff_t>(round * 6);
    EXPECT_EQ(arrivals_of(Flows(begin, begin + 6)).size(), 6u);
  }
}

PoissonSettings poisson_of(double load, SizeDistribution sizes, Time duration) {
  return {.hosts = 64,
          .link_bits_per_second = 100'000'000'000,
          .load = load,
          .sizes = std::move(sizes),
          .duration = duration,
          .seed = 21};
}

TEST(Poisson, ReachesItsLoad) {
  const struct {
    const char* name;
    SizeDistribution sizes;
    Time duration;
  } cases[] = {
      {"web search", SizeDistribution::web_search(), Time::milliseconds(500)},
      {"hadoop", SizeDistribution::hadoop(), Time::milliseconds(100)},
      {"fixed", *SizeDistribution::fixed(100'000), Time::milliseconds(20)},
  };
  for (const auto& [name, sizes, duration] : cases) {
    for (const double load : {0.3, 0.8}) {
      const PoissonSettings settings = poisson_of(load, sizes, duration);
      SCOPED_TRACE(testing::Message() << name << ", load " << load << ", seed " << settings.seed);
      const Flows flows = made(poisson(settings));
      check_list(flows, settings.hosts);
      double bytes = 0;
      for (const Flow& flow : flows) bytes += static_cast<double>(flow.bytes);
      const double capacity = 64 * (100e9 / 8) * duration.to_seconds();
      EXPECT_NEAR(bytes / capacity / load, 1, 0.03) << flows.size() << " flows";
    }
  }
}

TEST(Poisson, ArrivesInOrderWithinTheDurationAndEverywhere) {
  PoissonSettings settings =
      poisson_of(0.5, *SizeDistribution::fixed(10'000), Time::milliseconds(2));
  settings.start = Time::milliseconds(1);
  const Flows flows = made(poisson(settings));
  EXPECT_TRUE(std::is_sorted(flows.begin(), flows.end(),
                             [](const Flow& a, const Flow& b) { return a.start < b.start; }));
  EXPECT_GE(flows.front().start, Time::milliseconds(1));
  EXPECT_LT(flows.back().start, Time::milliseconds(3));
  std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (const Flow& flow : flows) pairs.insert({flow.source, flow.destination});
  EXPECT_GT(pairs.size(), 64u * 63 * 9 / 10);
}

TEST(Poisson, GapsAreExponential) {
  PoissonSettings settings =
      poisson_of(0.5, *SizeDistribution::fixed(10'000), Time::milliseconds(5));
  const Flows flows = made(poisson(settings));
  const double mean_ps = 10'000 / (0.5 * 64 * 100e9 / 8) * 1e12;
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 1; i < flows.size(); ++i) {
    const double gap = static_cast<double>((flows[i].start - flows[i - 1].start).ps) / mean_ps;
    sum += gap;
    squares += gap * gap;
  }
  const double count = static_cast<double>(flows.size() - 1);
  EXPECT_NEAR(sum / count, 1, 0.01);
  EXPECT_NEAR(squares / count, 2, 0.05);  // the variance is the square of the mean
}

TEST(Poisson, SameSeedSameFlows) {
  PoissonSettings settings = poisson_of(0.5, SizeDistribution::hadoop(), Time::milliseconds(1));
  const Flows flows = made(poisson(settings));
  EXPECT_EQ(flows, made(poisson(settings)));
  settings.seed += 1;
  EXPECT_NE(flows, made(poisson(settings)));
}

TEST(RingAllReduce, EachStepPassesOnWhatTheLastBrought) {
  const Flows flows = made(ring_all_reduce({.ring = {4, 0, 2, 5}, .bytes = 4'000}));
  check_list(flows, 6);
  ASSERT_EQ(flows.size(), 6u * 4);  // 2 (n - 1) steps of n flows
  EXPECT_EQ(depth_of(flows), 6);
  EXPECT_EQ(flows[0], (Flow{4, 0, 1'000}));
  EXPECT_EQ(flows[3], (Flow{5, 4, 1'000}));
  EXPECT_EQ(flows[4], (Flow{4, 0, 1'000, Time::zero(), 3}));  // waits for the flow from host 5
  for (const Flow& flow : flows) {
    if (flow.after >= 0) {
      EXPECT_EQ(flows[static_cast<std::size_t>(flow.after)].bytes, flow.bytes);
    }
  }
}

TEST(RingAllReduce, EachHostSendsItsShareWhateverTheCut) {
  for (const std::uint32_t hosts : {2u, 3u, 8u}) {
    for (const auto& [rings, chunks] : {std::pair(1u, 1u), std::pair(2u, 1u), std::pair(3u, 4u)}) {
      constexpr std::uint64_t bytes = 1'000'003;
      RingAllReduceSettings settings{.ring = {}, .bytes = bytes, .rings = rings, .chunks = chunks};
      for (std::uint32_t host = 0; host < hosts; ++host) settings.ring.push_back(host);
      const Flows flows = made(ring_all_reduce(settings));
      check_list(flows, hosts);
      const std::uint32_t steps = 2 * (hosts - 1);
      EXPECT_EQ(flows.size(), std::size_t{steps} * hosts * rings * chunks);
      EXPECT_EQ(depth_of(flows), static_cast<int>(steps));
      std::uint64_t sum = 0;
      for (const Flow& flow : flows) sum += flow.bytes;
      EXPECT_EQ(sum, bytes * steps);  // in every step the hosts together send the buffer once
    }
  }
}

TEST(Jitter, IsBelowItsBoundAndFromTheSeed) {
  const Flows flows = made(permutation({.hosts = 500, .bytes = 1, .start = Time::nanoseconds(5)}));
  const JitterSettings settings{.jitter = Time::microseconds(1), .seed = 3};
  Flows one = flows;
  Flows two = flows;
  ASSERT_TRUE(add_jitter(one, settings));
  ASSERT_TRUE(add_jitter(two, settings));
  EXPECT_EQ(one, two);
  double sum_ns = 0;
  for (const Flow& flow : one) {
    ASSERT_GE(flow.start, Time::nanoseconds(5));
    ASSERT_LT(flow.start, Time::nanoseconds(1'005));
    sum_ns += static_cast<double>(flow.start.to_nanoseconds());
  }
  EXPECT_NEAR(sum_ns / 500, 505, 50);
}

TEST(Jitter, PerHostDelaysAllOfAHostAlike) {
  Flows flows = made(all_to_all({.hosts = 20, .bytes = 1}));
  ASSERT_TRUE(add_jitter(
      flows, {.jitter = Time::microseconds(1), .per = JitterSettings::Per::host, .seed = 3}));
  std::map<std::uint32_t, Time> starts;
  std::set<std::int64_t> distinct;
  for (const Flow& flow : flows) {
    EXPECT_EQ(starts.emplace(flow.source, flow.start).first->second, flow.start);
    distinct.insert(flow.start.ps);
  }
  EXPECT_EQ(distinct.size(), 20u);
}

TEST(Jitter, OfNothingChangesNothing) {
  Flows flows = made(shift({.hosts = 4, .bytes = 1}));
  const Flows before = flows;
  ASSERT_TRUE(add_jitter(flows, {}));
  EXPECT_EQ(flows, before);
  EXPECT_FALSE(add_jitter(flows, {.jitter = Time::picoseconds(-1)}));
  flows[0].start = Time::never();
  EXPECT_FALSE(add_jitter(flows, {.jitter = Time::nanoseconds(1)}));
}

TEST(Append, MovesWhatWaits) {
  Flows flows = made(shift({.hosts = 4, .bytes = 1}));
  ASSERT_TRUE(append(flows, made(ring_all_reduce({.ring = {0, 1, 2, 3}, .bytes = 400}))));
  check_list(flows, 4);
  EXPECT_EQ(flows.size(), 4u + 24);
  EXPECT_EQ(flows[4].after, -1);
  EXPECT_EQ(flows[8].after, 4 + 3);
  ASSERT_TRUE(append(flows, flows));
  check_list(flows, 4);
  EXPECT_EQ(flows.size(), 56u);
}

TEST(Generators, SayInOneLineWhatIsWrong) {
  const PoissonSettings good = poisson_of(0.5, SizeDistribution::hadoop(), Time::milliseconds(1));
  const auto poisson_with = [&good](auto change) {
    PoissonSettings settings = good;
    change(settings);
    return error_of(poisson(settings));
  };
  const std::pair<std::string, const char*> cases[] = {
      {error_of(permutation({.hosts = 1, .bytes = 1})), "permutation: at least 2 hosts"},
      {error_of(permutation({.hosts = 4})), "permutation: a flow needs"},
      {error_of(permutation({.hosts = 4, .bytes = 1, .start = Time::picoseconds(-1)})),
       "permutation: the start"},
      {error_of(permutation({.hosts = 100'000'001, .bytes = 1})), "permutation: these settings"},
      {error_of(shift({.hosts = 4, .distance = 8, .bytes = 1})), "shift: a distance of 8"},
      {error_of(shift({.hosts = 4, .distance = 0, .bytes = 1})), "shift: a distance of 0"},
      {error_of(incast({.hosts = 4, .senders = 0, .bytes = 1})), "incast: 0 senders"},
      {error_of(incast({.hosts = 4, .senders = 4, .bytes = 1})), "incast: 4 senders"},
      {error_of(incast({.hosts = 4, .senders = 2, .receiver = 4, .bytes = 1})),
       "incast: receiver 4"},
      {error_of(all_to_all({.hosts = 0, .bytes = 1})), "all_to_all: at least 2"},
      {error_of(all_to_all({.hosts = 70'000, .bytes = 1})), "all_to_all: these settings"},
      {poisson_with([](auto& s) { s.hosts = 1; }), "poisson: at least 2"},
      {poisson_with([](auto& s) { s.link_bits_per_second = 0; }), "poisson: the link rate"},
      {poisson_with([](auto& s) { s.load = 0; }), "poisson: the load"},
      {poisson_with([](auto& s) { s.load = 1.1; }), "poisson: the load"},
      {poisson_with([](auto& s) { s.load = 0.0 / 0.0; }), "poisson: the load"},
      {poisson_with([](auto& s) { s.duration = Time::zero(); }), "poisson: the duration"},
      {poisson_with([](auto& s) { s.duration = Time::seconds(3'600); }), "poisson: these settings"},
      {poisson_with([](auto& s) {
         s.start = Time::seconds(1);
         s.duration = Time::never();
       }),
       "poisson: the end"},
      {error_of(ring_all_reduce({.ring = {3}, .bytes = 100})), "ring_all_reduce: at least 2"},
      {error_of(ring_all_reduce({.ring = {3, 1, 3}, .bytes = 100})), "ring_all_reduce: host 3"},
      {error_of(ring_all_reduce({.ring = {3, 1}, .bytes = 1})), "ring_all_reduce: 1 bytes"},
      {error_of(ring_all_reduce({.ring = {3, 1}, .bytes = 9, .rings = 0})),
       "ring_all_reduce: at least 1 ring"},
      {error_of(ring_all_reduce({.ring = {3, 1}, .bytes = 9, .chunks = 0})),
       "ring_all_reduce: at least 1 chunk"},
      {error_of(ring_all_reduce(
           {.ring = {3, 1}, .bytes = 9, .rings = 4'000'000'000, .chunks = 4'000'000'000})),
       "ring_all_reduce: these settings"},
  };
  for (const auto& [message, begins] : cases) {
    EXPECT_TRUE(message.starts_with(begins)) << message << "\nnot " << begins;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Split, PartsAddUpAndWaitForTheSamePart) {
  Flows flows = {
      {0, 1, 10, Time::nanoseconds(5)}, {1, 2, 7, Time::zero(), 0}, {2, 0, 2, Time::zero(), 1}};
  auto first = split(flows, 3);
  ASSERT_TRUE(first);
  EXPECT_EQ(*first, (std::vector<std::uint32_t>{0, 3, 6, 8}));  // two bytes give at most two parts
  const Flows expected = {
      {0, 1, 4, Time::nanoseconds(5)}, {0, 1, 3, Time::nanoseconds(5)},
      {0, 1, 3, Time::nanoseconds(5)}, {1, 2, 3, Time::zero(), 0},
      {1, 2, 2, Time::zero(), 1},      {1, 2, 2, Time::zero(), 2},
      {2, 0, 1, Time::zero(), 3},      {2, 0, 1, Time::zero(), 4},
  };
  EXPECT_EQ(flows, expected);
}

TEST(Split, OnePartIsTheFlow) {
  Flows flows = {{0, 1, 10}, {1, 2, 7, Time::zero(), 0}};
  const Flows before = flows;
  ASSERT_TRUE(split(flows, 1));
  EXPECT_EQ(flows, before);
}

TEST(Split, RefusesNoPartsAndTooMany) {
  Flows flows = {{0, 1, 1'000'000'000}, {0, 1, 1'000'000'000}};
  EXPECT_FALSE(split(flows, 0));
  EXPECT_FALSE(split(flows, flows_max));
  EXPECT_EQ(flows.size(), 2u);
}

}  // namespace
}  // namespace tulle::workload

#include "study/workload/collectives.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "study/workload/protocol.h"

namespace tulle::workload {
namespace {

CollectiveSettings settings_of(Collective collective, Algorithm algorithm, std::uint32_t servers,
                               std::uint32_t gpus, std::uint64_t bytes = 1u << 20) {
  CollectiveSettings settings;
  settings.collective = collective;
  settings.algorithm = algorithm;
  settings.bytes = bytes;
  settings.servers.servers = servers;
  settings.servers.gpus = settings.servers.adapters = gpus;
  return settings;
}

TaskGraph make(const CollectiveSettings& settings) {
  auto graph = make_collective(settings);
  EXPECT_TRUE(graph) << graph.error().message;
  EXPECT_TRUE(graph->check());
  return std::move(*graph);
}

struct Sent {
  std::vector<std::uint64_t> by;        // by rank
  std::vector<std::uint64_t> received;  // by rank
  std::uint64_t between_servers = 0;
};
Sent sent_in(const TaskGraph& graph, const Servers& servers) {
  Sent sent{std::vector<std::uint64_t>(graph.ranks()), std::vector<std::uint64_t>(graph.ranks())};
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    sent.by[graph[i].rank] += graph[i].bytes;
    sent.received[graph[i].peer] += graph[i].bytes;
    if (!servers.is_scale_up(graph[i].rank, graph[i].peer)) sent.between_servers += graph[i].bytes;
  }
  return sent;
}

// Returns for each rank whose data it may have at the end: its own, and what the messages to it
// carry, which is what their senders had received in the messages that they waited for.
std::vector<std::set<std::uint32_t>> known_in(const TaskGraph& graph) {
  std::vector<std::set<std::uint32_t>> carried(graph.size());
  std::vector<std::set<std::uint32_t>> known(graph.ranks());
  for (std::uint32_t rank = 0; rank < graph.ranks(); ++rank) known[rank].insert(rank);
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    carried[i].insert(graph[i].rank);
    for (const auto before : graph.waits_for(i)) {
      carried[i].insert(carried[before].begin(), carried[before].end());
    }
    known[graph[i].peer].insert(carried[i].begin(), carried[i].end());
  }
  return known;
}

struct Case {
  Collective collective;
  Algorithm algorithm;
  std::uint32_t servers, gpus;
};
class EachCollective : public testing::TestWithParam<Case> {};

TEST_P(EachCollective, AllRanksHaveTheDataOfAllAtTheEnd) {
  const auto& [collective, algorithm, servers, gpus] = GetParam();
  const auto settings = settings_of(collective, algorithm, servers, gpus);
  const TaskGraph graph = make(settings);
  const auto known = known_in(graph);
  for (std::uint32_t rank = 0; rank < graph.ranks(); ++rank) {
    if (collective == Collective::broadcast) {
      EXPECT_TRUE(known[rank].contains(0)) << rank;
    } else {
      EXPECT_EQ(known[rank].size(), graph.ranks()) << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Collectives, EachCollective,
    testing::Values(Case{Collective::all_reduce, Algorithm::ring, 3, 4},
                    Case{Collective::all_reduce, Algorithm::ring, 4, 8},
                    Case{Collective::all_reduce, Algorithm::ring, 5, 1},
                    Case{Collective::all_reduce, Algorithm::tree, 1, 8},
                    Case{Collective::all_reduce, Algorithm::tree, 7, 2},
                    Case{Collective::all_reduce, Algorithm::tree, 8, 2},
                    Case{Collective::all_reduce, Algorithm::tree, 13, 1},
                    Case{Collective::all_reduce, Algorithm::hierarchical, 1, 4},
                    Case{Collective::all_reduce, Algorithm::hierarchical, 5, 4},
                    Case{Collective::all_reduce, Algorithm::halving_doubling, 2, 8},
                    Case{Collective::all_reduce, Algorithm::direct, 3, 2},
                    Case{Collective::reduce_scatter, Algorithm::ring, 3, 2},
                    Case{Collective::reduce_scatter, Algorithm::halving_doubling, 4, 2},
                    Case{Collective::all_gather, Algorithm::ring, 3, 2},
                    Case{Collective::all_gather, Algorithm::hierarchical, 3, 2},
                    Case{Collective::all_gather, Algorithm::halving_doubling, 4, 2},
                    Case{Collective::broadcast, Algorithm::ring, 3, 4},
                    Case{Collective::all_to_all, Algorithm::direct, 3, 4}),
    [](const testing::TestParamInfo<Case>& info) {
      std::string name = std::string(name_of(info.param.collective)) + "_by_" +
                         std::string(name_of(info.param.algorithm)) + "_" +
                         std::to_string(info.param.servers) + "x" + std::to_string(info.param.gpus);
      for (char& letter : name) letter = letter == '-' ? '_' : letter;
      return name;
    });

TEST(Collectives, ARingSendsTwiceTheBufferButForOnePart) {
  const auto settings = settings_of(Collective::all_reduce, Algorithm::ring, 4, 8, 32 << 20);
  const Sent sent = sent_in(make(settings), settings.servers);
  for (std::uint32_t rank = 0; rank < 32; ++rank) {
    EXPECT_EQ(sent.by[rank], 2u * 31 * (32 << 20) / 32);
    EXPECT_EQ(sent.received[rank], sent.by[rank]);
  }
}

// Each channel leaves a server once and enters it once, by the same adapter on both sides, and all
// adapters have the same work.
TEST(Collectives, RingsUseAllAdaptersAndStayOnTheirRails) {
  const auto settings = settings_of(Collective::all_reduce, Algorithm::ring, 4, 8, 32 << 20);
  const TaskGraph graph = make(settings);
  std::vector<std::uint64_t> out(32), in(32);
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    const Servers& servers = settings.servers;
    if (servers.is_scale_up(graph[i].rank, graph[i].peer)) continue;
    EXPECT_EQ(servers.gpu_of(graph[i].rank), servers.gpu_of(graph[i].peer));
    out[servers.host_of(graph[i].rank)] += graph[i].bytes;
    in[servers.host_of(graph[i].peer)] += graph[i].bytes;
  }
  for (std::uint32_t host = 0; host < 32; ++host) {
    EXPECT_EQ(out[host], out[0]) << host;
    EXPECT_EQ(in[host], out[0]) << host;
  }
}

TEST(Collectives, AHierarchyNeedsLessOfTheNetworkThanHalvingAndDoubling) {
  const auto by = [](Algorithm algorithm) {
    const auto settings = settings_of(Collective::all_reduce, algorithm, 4, 8, 32 << 20);
    return sent_in(make(settings), settings.servers).between_servers;
  };
  EXPECT_EQ(by(Algorithm::hierarchical), std::uint64_t{32} * 2 * 3 * (32 << 20) / 8 / 4);
  EXPECT_GT(by(Algorithm::halving_doubling), 3 * by(Algorithm::hierarchical));
}

// Inside of one tree, leaf of the other: each server sends and receives about its share.
TEST(Collectives, TheTwoTreesShareTheWork) {
  for (const std::uint32_t servers : {8u, 16u, 7u, 15u}) {
    const auto settings = settings_of(Collective::all_reduce, Algorithm::tree, servers, 1);
    const Sent sent = sent_in(make(settings), settings.servers);
    for (std::uint32_t rank = 0; rank < servers; ++rank) {
      EXPECT_LE(sent.by[rank], 5u * (1 << 20) / 2) << servers << ": " << rank;
    }
  }
}

TEST(Collectives, AnAllToAllSendsEachOtherRankItsPart) {
  const auto settings = settings_of(Collective::all_to_all, Algorithm::direct, 2, 4, 8'000);
  const TaskGraph graph = make(settings);
  EXPECT_EQ(graph.size(), 8u * 7);
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) EXPECT_EQ(graph[i].bytes, 1'000u);
}

TEST(Collectives, LongMessagesAreCut) {
  const auto settings =
      settings_of(Collective::all_to_all, Algorithm::direct, 2, 1, std::uint64_t{5} << 30);
  EXPECT_EQ(make(settings).size(), 2u * 3);
}

TEST(Collectives, WhatDoesNotFitIsRefusedInOneLine) {
  const auto error = [](const CollectiveSettings& settings) {
    auto graph = make_collective(settings);
    return graph ? "" : graph.error().message;
  };
  EXPECT_EQ(error(settings_of(Collective::all_reduce, Algorithm::ring, 1, 1)),
            "a collective needs at least 2 GPUs");
  EXPECT_EQ(error(settings_of(Collective::all_to_all, Algorithm::tree, 2, 2)),
            "all-to-all is not done by tree");
  EXPECT_EQ(error(settings_of(Collective::all_reduce, Algorithm::halving_doubling, 3, 2)),
            "halving-doubling needs a power of two of GPUs, and not 6");
  EXPECT_EQ(error(settings_of(Collective::all_reduce, Algorithm::ring, 2, 2, 7)),
            "7 bytes cannot be cut for 4 GPUs in 2 channels; take more");
  EXPECT_NE(error(settings_of(Collective::all_to_all, Algorithm::direct, 20'000, 1)), "");
  auto uneven = settings_of(Collective::all_reduce, Algorithm::ring, 2, 4);
  uneven.servers.adapters = 3;
  EXPECT_EQ(error(uneven), "3 adapters cannot be dealt to the 4 GPUs of a server evenly");
}

TEST(Collectives, HaveTheBytesOfTheirProtocol) {
  auto settings = settings_of(Collective::all_reduce, Algorithm::ring, 2, 2, 16 * 120);
  settings.channels = 1;
  const auto bytes_by = [&](Protocol protocol) {
    settings.protocol = protocol;
    const TaskGraph graph = make(settings);
    std::uint64_t bytes = 0;
    for (TaskGraph::Index i = 0; i < graph.size(); ++i) bytes += graph[i].bytes;
    return bytes;
  };
  const std::uint64_t simple = bytes_by(Protocol::simple);
  EXPECT_EQ(simple, 6u * 16 * 120);
  EXPECT_EQ(bytes_by(Protocol::ll), 2 * simple);
  EXPECT_EQ(bytes_by(Protocol::ll128), 6u * 16 * 128);
  EXPECT_EQ(wire_bytes(Protocol::ll128, 1), 2u);
}

TEST(Collectives, ProtocolsThatNcclHasNotAreRefused) {
  const auto error = [](Protocol protocol, Algorithm algorithm, std::uint32_t cores = 0) {
    const Collective collective =
        algorithm == Algorithm::direct ? Collective::all_to_all : Collective::all_reduce;
    auto settings = settings_of(collective, algorithm, 2, 2);
    settings.protocol = protocol;
    settings.servers.scale_up_reduce_bits_per_second = 1'000'000'000;
    settings.servers.cores = cores;
    auto graph = make_collective(settings);
    return graph ? "" : graph.error().message;
  };
  EXPECT_EQ(error(Protocol::simple, Algorithm::nvls), "");
  EXPECT_EQ(error(Protocol::ll, Algorithm::nvls), "nvls goes by the protocol simple alone");
  EXPECT_EQ(error(Protocol::ll, Algorithm::direct), "");
  EXPECT_EQ(error(Protocol::ll128, Algorithm::direct),
            "direct messages go by the protocols simple and ll");
  EXPECT_EQ(error(Protocol::ll, Algorithm::ring, 2),
            "ll is a protocol of GPUs, and these ranks are processes");
  auto settings = settings_of(Collective::all_reduce, Algorithm::ring, 2, 2);
  settings.protocol = Protocol::ll;
  Pieces pieces;
  auto live = make_collective(settings, &pieces);
  ASSERT_FALSE(live);
  EXPECT_EQ(live.error().message, "processes have no protocol but simple");
}

TEST(Collectives, HaveNamesAndFactorsOfNcclTests) {
  EXPECT_EQ(name_of(Collective::all_reduce), "all-reduce");
  EXPECT_EQ(name_of(Collective::all_gather), "all-gather");
  EXPECT_EQ(name_of(Collective::all_to_all), "all-to-all");
  EXPECT_EQ(name_of(Algorithm::tree), "tree");
  EXPECT_EQ(name_of(Algorithm::direct), "direct");
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 8), 1);
}

}  // namespace
}  // namespace tulle::workload

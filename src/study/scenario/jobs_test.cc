// [[jobs]]: who gets which servers, and what is refused.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/folder_test.h"
#include "study/scenario/text_test.h"

namespace tulle::scenario {
namespace {

// Eight servers of two GPUs and one adapter.
constexpr char eight_servers[] =
    "[topology]\nkind = \"single-switch\"\nhosts = 8\nlink_rate = \"100Gbps\"\n"
    "[traffic]\nservers = { gpus = 2 }\n";

std::string sum(const std::string& keys) {
  return "[[jobs]]\nworkload = \"allreduce:1MiB\"\n" + keys + "\n";
}

using Places = std::vector<std::uint32_t>;

Places places_of(const Setup& setup, std::size_t job) { return setup.jobs[job].servers.places; }

TEST(JobsOfAScenario, PackedOnesFollowEachOther) {
  const auto setup = built(eight_servers + sum("gpus = 4") + sum("servers = \"1, 6\"") +
                           sum("gpus = 6\nplacement = \"packed\""));
  ASSERT_EQ(setup.jobs.size(), 3u);
  EXPECT_EQ(places_of(setup, 0), (Places{0, 2}));
  EXPECT_EQ(places_of(setup, 1), (Places{1, 6}));
  EXPECT_EQ(places_of(setup, 2), (Places{3, 4, 5}));
}

TEST(JobsOfAScenario, SpreadOnesLieEvenly) {
  const auto setup = built(eight_servers + sum("gpus = 8\nplacement = \"spread\"") +
                           sum("gpus = 4\nplacement = \"spread\""));
  EXPECT_EQ(places_of(setup, 0), (Places{0, 2, 4, 6}));
  EXPECT_EQ(places_of(setup, 1), (Places{1, 5}));
}

TEST(JobsOfAScenario, RandomOnesFollowTheSeed) {
  const std::string text = eight_servers + sum("gpus = 6\nplacement = \"random\"") +
                           sum("gpus = 6\nplacement = \"random\"");
  std::set<Places> drawn;
  std::vector<int> times(8);
  for (int seed = 1; seed <= 64; ++seed) {
    const std::vector<std::string> set = {fmt::format("seed = {}", seed)};
    const auto setup = built(text, set);
    const Places first = places_of(setup, 0), second = places_of(setup, 1);
    EXPECT_EQ(first, places_of(built(text, set), 0)) << "seed " << seed;
    EXPECT_TRUE(std::ranges::is_sorted(first));
    std::set<std::uint32_t> all(first.begin(), first.end());
    all.insert(second.begin(), second.end());
    EXPECT_EQ(all.size(), 6u) << "seed " << seed;
    EXPECT_LT(*all.rbegin(), 8u);
    drawn.insert(first);
    for (const std::uint32_t server : first) ++times[server];
  }
  EXPECT_GT(drawn.size(), 30u) << "of 56";
  for (const int count : times) EXPECT_NEAR(count, 24, 14) << "of 64 draws of three of eight";
}

TEST(JobsOfAScenario, FlowsGoBetweenTheServersOfTheirJob) {
  const auto setup = built(eight_servers + sum("servers = \"6, 1-2\"") + sum("gpus = 6"));
  ASSERT_EQ(setup.kinds.size(), 2u);
  const std::size_t second = setup.kinds[1].first_message;
  ASSERT_GT(second, 0u);
  std::set<std::uint32_t> hosts[2];
  std::set<std::int32_t> connections[2];
  for (std::size_t i = 0; i < setup.flows.size(); ++i) {
    const workload::Flow& flow = setup.flows[i];
    hosts[i < second ? 0 : 1].insert({flow.source, flow.destination});
    connections[i < second ? 0 : 1].insert(flow.connection);
  }
  EXPECT_EQ(hosts[0], (std::set<std::uint32_t>{1, 2, 6}));
  EXPECT_EQ(hosts[1], (std::set<std::uint32_t>{0, 3, 4}));
  EXPECT_LT(*connections[0].rbegin(), *connections[1].begin()) << "no connection is shared";
  EXPECT_EQ(setup.jobs[1].first_task, setup.jobs[0].graph.size());
  // A list keeps its order, which is that of the ranks.
  EXPECT_EQ(setup.jobs[0].servers.host_of(0), 6u);
  EXPECT_EQ(setup.jobs[0].servers.host_of(2), 1u);
}

// In planes a message is several flows, and a port of an adapter is a host.
TEST(JobsOfAScenario, MessagesInPlanesAreThoseOfTheirJob) {
  const auto setup = built(
      "[topology]\nkind = \"rail-only\"\nservers = 4\nrails = 2\nplanes = 2\n"
      "[traffic]\nservers = { gpus = 2, adapters = 2 }\n" +
      sum("servers = \"3, 0\"") + "[[jobs]]\nworkload = \"alltoall:4KiB\"\ngpus = 4\n");
  ASSERT_EQ(setup.kinds.size(), 2u);
  const std::vector<std::uint32_t>& first = setup.first_parts;
  const std::size_t second = setup.kinds[1].first_message;
  ASSERT_LT(second, first.size());
  EXPECT_EQ(first[second], setup.jobs[1].first_flow);
  EXPECT_EQ(first.back(), setup.flows.size());
  EXPECT_EQ(setup.jobs[1].end_flow(), setup.flows.size());
  std::set<std::uint32_t> adapters[2];
  for (std::size_t message = 0; message + 1 < first.size(); ++message) {
    const std::size_t parts = first[message + 1] - first[message];
    EXPECT_EQ(parts, message < second ? 2u : 1u) << "4 KiB among four GPUs are one packet";
    for (std::size_t i = first[message]; i < first[message + 1]; ++i) {
      const workload::Flow& flow = setup.flows[i];
      EXPECT_EQ(flow.source % 4, flow.destination % 4) << "a rail and a plane";
      adapters[message < second ? 0 : 1].insert({flow.source / 2, flow.destination / 2});
    }
  }
  EXPECT_EQ(adapters[0], (std::set<std::uint32_t>{0, 1, 6, 7}));
  EXPECT_EQ(adapters[1], (std::set<std::uint32_t>{2, 3, 4, 5}));
  EXPECT_EQ(setup.jobs[0].servers.host_of(3), 2u) << "GPU 1 of server 0, in plane 0";
  EXPECT_TRUE(setup.jobs[1].servers.relays);
  EXPECT_EQ(setup.jobs[1].first_connection, setup.jobs[0].end_connection());
}

TEST(JobsOfAScenario, NamesAndDefaults) {
  const auto setup =
      built(eight_servers + sum("gpus = 4") + sum("gpus = 4") +
            sum("gpus = 4\nname = \"third\"\narrival = \"2ms\"\nalgorithm = \"ring\"") +
            "[[jobs]]\npattern = \"experts\"\noperation = \"dispatch\"\ngpus = 4\nexperts = 8\n");
  ASSERT_EQ(setup.jobs.size(), 4u);
  EXPECT_EQ(setup.jobs[0].name, "allreduce:1MiB");
  EXPECT_EQ(setup.jobs[1].name, "allreduce:1MiB #2");
  EXPECT_EQ(setup.jobs[2].name, "third");
  EXPECT_EQ(setup.jobs[3].name, "experts");
  EXPECT_EQ(setup.jobs[0].arrival, Time::zero());
  EXPECT_EQ(setup.jobs[2].arrival, Time::milliseconds(2));
  EXPECT_FALSE(setup.wants_alone);
  EXPECT_EQ(setup.kinds.size(), 4u);
}

// Jobs that are alike do not draw alike, unless they are told to.
TEST(JobsOfAScenario, SeedsAreTheirOwn) {
  Folder folder;
  folder.write("m.toml",
               "[model]\nlayers = 2\nhidden = 64\nfeed_forward = 64\nheads = 2\n"
               "key_value_heads = 2\n[gpu]\noperations_per_second = 1e12\n"
               "memory_bytes_per_second = 1e12\n[serve]\nrequests = 4\nrate = 10\nprompt = 10\n"
               "output = 2\n");
  const auto second_arrivals = [&](const std::string& keys) {
    const std::string job = "[[jobs]]\nworkload = \"serve:m.toml\"\ngpus = 4\n";
    const auto setup = built(eight_servers + job + job + keys, {}, 0, folder.path());
    return std::pair(setup.jobs[0].requests[1].arrival, setup.jobs[1].requests[1].arrival);
  };
  const auto [first, other] = second_arrivals("");
  EXPECT_NE(first, other);
  const auto [again, same] = second_arrivals("seed = 1\n");
  EXPECT_EQ(again, first);
  EXPECT_EQ(same, first);
}

TEST(JobsOfAScenario, RefusesWhatCannotBe) {
  const auto said = [](const std::string& jobs) { return wrong(eight_servers + jobs); };
  EXPECT_EQ(said(sum("gpus = 18")),
            "s.toml:9: jobs.gpus: 18 is out of range, must be a whole number from 1 to 16");
  EXPECT_EQ(said(sum("gpus = 12") + sum("gpus = 6")),
            "s.toml:12: jobs.gpus: the job needs 3 servers of 2 GPUs, but 2 of 8 are free: take "
            "fewer GPUs, or a larger topology");
  EXPECT_EQ(said(sum("gpus = 5")),
            "s.toml:9: jobs.gpus: 5 do not fill servers of 2: take a multiple");
  EXPECT_EQ(said(sum("name = \"a\"\nservers = \"0-3\"") + sum("name = \"b\"\nservers = \"3\"")),
            "s.toml:14: jobs.servers: server 3 is there twice, in \"a\" and in \"b\": a server "
            "has one job");
  EXPECT_TRUE(contains(said(sum("servers = \"1, 1\"")), "server 1 is there twice"));
  EXPECT_TRUE(
      contains(said(sum("servers = \"8\"")), "must be servers such as \"0-3, 8\", up to 7"));
  EXPECT_TRUE(contains(said(sum("servers = \"0-1\"\ngpus = 2")), "leave gpus out"));
  EXPECT_TRUE(contains(said(sum("servers = \"0-1\"\nplacement = \"packed\"")),
                       "jobs.placement: cannot be used with servers"));
  EXPECT_TRUE(contains(said(sum("gpus = 4\nplacement = \"best\"")),
                       "must be \"packed\", \"spread\" or \"random\""));
  EXPECT_TRUE(contains(said(sum("")), "jobs.gpus: is needed, or servers"));
  EXPECT_TRUE(contains(said(sum("gpus = 4\narrival = \"-1us\"")),
                       "jobs.arrival: must be a time such as \"1.5us\""));
  EXPECT_EQ(wrong("stop_at = \"1ms\"\n" + (eight_servers + sum("gpus = 4\narrival = \"2ms\""))),
            "s.toml:11: jobs.arrival: is after stop_at, 1 ms: the job would never begin");
  EXPECT_TRUE(contains(said(sum("gpus = 4\nname = \"x\"") + sum("gpus = 4\nname = \"x\"")),
                       "jobs.name: \"x\" is there twice"));
  EXPECT_TRUE(contains(said(sum("gpus = 4\nname = \"a,b\"")), "jobs.name: "));
  EXPECT_TRUE(contains(said(sum("gpus = 4\ncolour = 3")), "jobs.colour: is not a known key"));
}

TEST(JobsOfAScenario, RefusesWorkloadsThatAreNone) {
  const auto said = [](const std::string& keys) {
    return wrong(std::string(eight_servers) + "[[jobs]]\ngpus = 4\n" + keys + "\n");
  };
  EXPECT_TRUE(contains(said(""), "jobs.workload: is needed, or pattern: allreduce, "));
  EXPECT_TRUE(contains(said("workload = \"incast\""), "there is no \"incast\"; there are all"));
  EXPECT_TRUE(contains(said("workload = \"allreduce:x\""), "\"x\" is no amount of bytes"));
  EXPECT_TRUE(contains(said("workload = \"moe:x\""), "there is no moe:x; take moe:"));
  EXPECT_TRUE(contains(said("workload = \"step:none\""),
                       "jobs.step: there is no file \"models/none.toml\" in "));
  EXPECT_TRUE(contains(said("workload = \"none.et\""), "none.et: there is no such file"));
  EXPECT_TRUE(contains(said("workload = \"allreduce\"\npattern = \"collective\""),
                       "jobs.pattern: goes without workload"));
  EXPECT_TRUE(contains(said("pattern = \"incast\""), "jobs.pattern: must be \"collective\""));
  EXPECT_TRUE(contains(said("workload = \"allreduce:1MiB\"\nalgorithm = \"in-network\""),
                       "jobs.algorithm: "));
}

TEST(JobsOfAScenario, GoWithoutOtherTraffic) {
  const std::string topology =
      "[topology]\nkind = \"single-switch\"\nhosts = 8\nlink_rate = \"100Gbps\"\n";
  EXPECT_EQ(built(topology + sum("gpus = 8")).jobs.size(), 1u) << "[traffic] may be absent";
  EXPECT_TRUE(contains(wrong(topology + "[traffic]\npattern = \"incast\"\n" + sum("gpus = 8")),
                       "traffic.pattern: must be \"jobs\", or absent, with [[jobs]]"));
  EXPECT_TRUE(contains(wrong(topology + "[traffic]\npattern = \"jobs\"\n"),
                       "traffic.pattern: \"jobs\" needs the list [[jobs]]"));
  EXPECT_TRUE(contains(wrong(topology + "[traffic]\nbytes = \"1MB\"\n" + sum("gpus = 8")),
                       "traffic.bytes: is not a known key"));
  EXPECT_TRUE(contains(wrong(topology), "traffic: is required"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"report.alone = true"}), "report.alone: compares"));
  EXPECT_TRUE(contains(wrong("jobs = 3\n" + topology), "jobs: must be a list of tables: [[jobs]]"));
  std::string many = topology;
  for (int i = 0; i < 1'025; ++i) many += "[[jobs]]\n";
  EXPECT_TRUE(contains(wrong(many), "is in more than 1024 jobs"));
}

}  // namespace
}  // namespace tulle::scenario

// Tests the flow level beside packets, and what it refuses.

#include "study/experiment/flow_level.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/folder_test.h"
#include "study/experiment/flow_paths.h"
#include "study/experiment/outcome_test.h"
#include "study/report/results.h"

namespace tulle::experiment {
namespace {

constexpr char tree[] = R"([topology]
kind = "fat-tree"
k = 4
link_rate = "100Gbps"
)";
constexpr char web_search_on_it[] = R"([traffic]
pattern = "poisson"
sizes = "web-search"
load = 0.5
duration = "2ms"
)";
const std::string web_search = std::string(tree) + web_search_on_it;
constexpr char window[] = R"([fabric]
flow_control = "none"
[host]
recovery = "selective-repeat"
)";
constexpr char credits[] = R"([fabric]
kind = "infiniband"
)";

std::unique_ptr<FlowLevel> play_flows(const std::string& text, const std::string& folder = "",
                                      const std::vector<std::string>& set = {}) {
  auto setup = setup_of(text, folder, set);
  if (!setup) return nullptr;
  auto run = FlowLevel::prepare(std::move(*setup));
  if (!run) {
    ADD_FAILURE() << run.error().message;
    return nullptr;
  }
  auto played = (*run)->run([](const Progress&) { return true; });
  EXPECT_TRUE(played) << played.error().message;
  return std::move(*run);
}

double mean_slowdown(const report::Outcome& outcome) {
  double sum = 0;
  for (const report::Flow& flow : outcome.flows) sum += flow.slowdown;
  return sum / static_cast<double>(outcome.flows.size());
}

class BesidePackets : public testing::TestWithParam<std::string> {};

TEST_P(BesidePackets, TheMeanSlowdownOfWebSearchIsWithinTenPerCent) {
  const std::string text = web_search + GetParam();
  for (const char* seed : {"seed = 21", "seed = 22"}) {
    const std::vector<std::string> set = {seed, "topology.k = 8", "traffic.duration = \"500us\""};
    const double packets = mean_slowdown(outcome_of(text, "", set));
    const auto run = play_flows(text, "", set);
    ASSERT_NE(run, nullptr);
    const double flows = mean_slowdown(run->outcome({}));
    EXPECT_GT(packets, 1.2) << "flows meet";
    EXPECT_NEAR(flows / packets, 1, 0.1) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(FlowLevel, BesidePackets, testing::Values(window, credits));

// A frame of the other flow in front of the last one, or of the acknowledgement, is all that two
// flows may differ by.
TEST(FlowLevel, TwoFlowsToOneHostTakeAsLongAsTheirPackets) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,2,1000000,0\n1,2,1000000,20000\n");
  const std::string text = std::string(R"([topology]
kind = "single-switch"
hosts = 3
link_rate = "100Gbps"
[traffic]
pattern = "file"
file = "f.csv"
)") + window;
  const report::Outcome packets = outcome_of(text, folder.path());
  const auto run = play_flows(text, folder.path());
  ASSERT_NE(run, nullptr);
  const report::Outcome flows = run->outcome({});
  ASSERT_EQ(flows.flows.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(flows.flows[i].start, packets.flows[i].start);
    EXPECT_NEAR(flows.flows[i].slowdown / packets.flows[i].slowdown, 1, 0.05) << "flow " << i;
  }
}

TEST(FlowLevel, AFlowThatIsAloneHasTheTimeOfAnEmptyNetwork) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n3,12,300000,7.5\n");
  for (const char* fabric : {window, credits}) {
    const std::string text =
        std::string(tree) + "[traffic]\npattern = \"file\"\nfile = \"f.csv\"\n" + fabric;
    const auto run = play_flows(text, folder.path(), {"host.post_delay = \"1ns\""});
    ASSERT_NE(run, nullptr);
    const report::Outcome outcome = run->outcome({});
    EXPECT_EQ(outcome.flows[0].start, Time{7'500});
    EXPECT_DOUBLE_EQ(outcome.flows[0].slowdown, 1);
  }
}

// The links by which packets went have counted them.
void expect_paths_of_packets(const std::string& text) {
  auto setup = setup_of(text, "", {"seed = 5", "traffic.duration = \"300us\""});
  ASSERT_TRUE(setup);
  const fabric::Wiring wiring(setup->topology);
  auto routes = fabric::compute_routes(setup->topology, setup->routing);
  FlowPaths paths(*setup, wiring, *routes);
  std::vector<std::uint64_t> frames(2 * setup->topology.links.size());
  std::vector<std::uint32_t> started(setup->topology.hosts);
  const std::uint64_t mtu = setup->network.host.mtu_bytes;
  for (std::uint32_t i = 0; i < setup->flows.size(); ++i) {
    const workload::Flow& flow = setup->flows[i];
    const std::uint32_t connection = started[flow.source]++;
    const std::uint64_t packets = (flow.bytes + mtu - 1) / mtu;
    for (const auto direction : paths.of(i, connection)) frames[direction] += packets;
    for (const auto direction : paths.back(i, connection)) frames[direction] += packets;
  }
  const fabric::Topology topology = setup->topology;
  auto run = Run::prepare(std::move(*setup));
  ASSERT_TRUE(run);
  (*run)->run([](const Progress&) { return true; });
  const report::Outcome outcome = (*run)->outcome();
  std::size_t used = 0;
  for (std::size_t row = 0; row < outcome.links.rows.size(); ++row) {
    const std::vector<std::string>& names = outcome.links.rows[row].names;
    const std::uint32_t node = *topology.find(names[0]);
    const auto port = static_cast<std::uint16_t>(std::stoul(names[1]));
    const fabric::Link& link = topology.links[wiring.peer(node, port).link];
    const bool is_from_b = link.b == node && link.b_port == port;
    const std::uint64_t expected = frames[2 * wiring.peer(node, port).link + (is_from_b ? 1 : 0)];
    used += expected > 0 ? 1 : 0;
    // Acknowledgements may stand for several packets.
    EXPECT_EQ(count(outcome.links, row, "frames") > 0, expected > 0) << names[0] << " " << port;
    EXPECT_LE(count(outcome.links, row, "frames"), expected) << names[0] << " " << port;
  }
  EXPECT_GT(used, outcome.links.rows.size() / 2);
}

TEST(FlowPaths, AreThoseOfThePacketsOnEthernet) { expect_paths_of_packets(web_search + window); }

TEST(FlowPaths, AreThoseOfThePacketsOnInfiniband) {
  expect_paths_of_packets(web_search + credits + "[routing]\nlmc = 1\n");
}

TEST(FlowLevel, TheSameSeedHasTheSameResult) {
  const std::string text = web_search + window;
  const auto first = play_flows(text);
  const auto again = play_flows(text);
  const auto other = play_flows(text, "", {"seed = 2"});
  ASSERT_TRUE(first != nullptr && again != nullptr && other != nullptr);
  const std::string flows = report::flows_csv(first->outcome({}));
  EXPECT_EQ(flows, report::flows_csv(again->outcome({})));
  EXPECT_NE(flows, report::flows_csv(other->outcome({})));
}

TEST(FlowLevel, FiguresOfPacketsAreAbsent) {
  const auto run = play_flows(web_search + window);
  ASSERT_NE(run, nullptr);
  const report::Outcome outcome = run->outcome({});
  for (const char* key : {"marked", "pauses", "dropped", "events", "slowdown_error"}) {
    EXPECT_EQ(find(outcome, key), nullptr) << key;
  }
  EXPECT_GT(number(outcome, "goodput_gbps"), 0);
  EXPECT_NEAR(number(outcome, "offered_load"), 0.5, 0.25);
  EXPECT_TRUE(outcome.links.rows.empty());
}

void expect_beyond(const std::string& text, const std::vector<std::string>& set,
                   const std::string& what) {
  SCOPED_TRACE(what);
  auto setup = setup_of(text, "", set);
  ASSERT_TRUE(setup);
  auto run = FlowLevel::prepare(std::move(*setup));
  ASSERT_FALSE(run);
  EXPECT_NE(run.error().message.find(what), std::string::npos) << run.error().message;
  EXPECT_NE(run.error().message.find("--level packet"), std::string::npos);
  EXPECT_EQ(run.error().message.find('\n'), std::string::npos);
}

TEST(FlowLevel, SaysWhatItDoesNotModel) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"host.recovery = \"go-back-n\""}, "what a flow has in flight"},
      {{"host.transport = \"tcp\"", "host.recovery = \"go-back-n\""}, "another transport"},
      {{"fabric.path = \"packet\""}, "packet by packet"},
      {{"fabric.bit_error_rate = 1e-9"}, "faults, bit errors or losses"},
      {{"fabric.ecn = {}", "congestion.control = \"dcqcn\""}, "congestion control"},
      {{"host.service_levels = 2"}, "several classes"},
      {{"traffic.notify = true"}, "traffic.notify"},
      {{"report.sample = \"1us\""}, "report.sample"},
      {{"host.train = 4"}, "host.train"},
      {{"traffic.payload = \"bytes\"", "traffic.duration = \"10us\""}, "payloads"},
  };
  for (const auto& [set, what] : cases) expect_beyond(web_search + window, set, what);
  const std::string torus =
      "[topology]\nkind = \"torus\"\nsize = [3, 3]\n[routing]\nkind = \"up-down\"\n";
  expect_beyond(torus + web_search_on_it + window, {}, "topologies other than trees");
  const std::string ring = "[traffic]\npattern = \"ring-all-reduce\"\nbytes = \"1MB\"\n";
  expect_beyond(tree + ring + window, {}, "wait for other flows");
  const std::string fault =
      "[[fault]]\nkind = \"bit-errors\"\nlink = [\"host 0\", \"edge 0\"]\nrate = 1e-9\n";
  expect_beyond(web_search + window + fault, {}, "faults, bit errors or losses");
}

TEST(FlowLevel, RefusesQueuesAtWhichSwitchesWouldDrop) {
  auto setup = setup_of(web_search + window, "", {"fabric.buffer = \"500KB\""});
  ASSERT_TRUE(setup);
  auto run = FlowLevel::prepare(std::move(*setup));
  ASSERT_TRUE(run);
  auto played = (*run)->run([](const Progress&) { return true; });
  ASSERT_FALSE(played);
  EXPECT_NE(played.error().message.find("of the queues"), std::string::npos)
      << played.error().message;
}

const std::vector<ValidatedRange> some_ranges = {
    {fluid::Backlog::window, false, false, 16, 0, 0.6, 12, 0.05, 10},
    {fluid::Backlog::window, true, false, 16, 0, 0, 6, 0.04, 10},
    // More flows may share a bottleneck if they are long.
    {fluid::Backlog::window, true, false, 16, 10e6, 0, 15, 0.06, 10},
    {fluid::Backlog::credits, false, false, 16, 0, 0.3, 8, 0.08, 10},
};

std::string refusal(const std::string& text, const std::vector<std::string>& set) {
  const auto run = play_flows(text, "", set);
  if (run == nullptr) return "";
  auto range = run->range_among(some_ranges);
  return range ? "" : range.error().message;
}

TEST(FlowLevel, TheRangeOfARunSaysItsError) {
  const auto run = play_flows(web_search + window, "", {"traffic.load = 0.3"});
  ASSERT_NE(run, nullptr);
  auto range = run->range_among(some_ranges);
  ASSERT_TRUE(range) << range.error().message;
  EXPECT_EQ(range->error_max, 0.05);
  EXPECT_DOUBLE_EQ(number(run->outcome(*range), "slowdown_error"), 0.05);
}

TEST(FlowLevel, RefusesWhatLiesBeyondItsRanges) {
  EXPECT_NE(refusal(web_search + window, {"traffic.load = 0.95"}).find("loads up to 60 %"),
            std::string::npos);
  EXPECT_NE(refusal(web_search + credits, {}).find("loads up to 30 %"), std::string::npos);
  EXPECT_NE(refusal(web_search + window, {"topology.hosts_per_edge = 1"}).find("16 hosts and more"),
            std::string::npos);
  const std::string permutation = "[traffic]\npattern = \"permutation\"\nbytes = \"1MB\"\n";
  EXPECT_NE(refusal(tree + permutation + credits, {}).find("at once"), std::string::npos);
  EXPECT_EQ(refusal(tree + permutation + window, {}), "");
  // The last range is for longer flows.
  const std::string incast = "[traffic]\npattern = \"incast\"\nsenders = 12\nbytes = \"1MB\"\n";
  EXPECT_NE(refusal(tree + incast + window, {}).find("flows of 10000000 bytes and more"),
            std::string::npos);
  EXPECT_EQ(refusal(tree + incast + window, {"traffic.bytes = \"10MB\""}), "");
  const std::string many = "[traffic]\npattern = \"incast\"\nsenders = 15\nbytes = \"10MB\"\n";
  EXPECT_EQ(refusal(tree + many + window, {}), "");
}

}  // namespace
}  // namespace tulle::experiment

// Switches that reduce: what their collectives put on the links, on any topology, and what becomes
// of them when a link goes down.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "study/experiment/outcome_test.h"
#include "study/report/outcome.h"

namespace tulle::experiment {
namespace {

constexpr std::uint64_t buffer_bytes = 4 << 20;

constexpr char leaf_spine[] = "kind = \"leaf-spine\"\nleaves = 4\nspines = 2\nhosts_per_leaf = 4";

// Returns the text of an all-reduce among servers of one GPU, unless `traffic` says otherwise.
std::string text_of(const std::string& topology, const std::string& algorithm,
                    const std::string& traffic = "", const std::string& more = "") {
  return fmt::format(
      "stop_at = \"10s\"\n[topology]\n{}\nlink_rate = \"400Gbps\"\nlink_delay = \"100ns\"\n"
      "[traffic]\npattern = \"collective\"\nalgorithm = \"{}\"\nbytes = \"{}B\"\n{}\n"
      "[fabric]\nkind = \"infiniband\"\naggregation = true\n{}\n",
      topology, algorithm, buffer_bytes, traffic, more);
}

// Returns the bytes that each host's link carried towards the switch, headers included.
std::vector<double> sent_by_hosts(const report::Outcome& outcome) {
  std::vector<double> bytes;
  for (std::size_t i = 0; i < outcome.links.rows.size(); ++i) {
    if (!outcome.links.rows[i].names[0].starts_with("host ")) continue;
    bytes.push_back(static_cast<double>(count(outcome.links, i, "bytes")));
  }
  return bytes;
}

// A ring sends 2 (n - 1) / n of the buffer by each adapter. With switches that reduce, an adapter
// sends the buffer once.
TEST(InNetwork, AHostsLinkCarriesTheBufferOnce) {
  for (const double hosts : {4.0, 16.0}) {
    const auto topology = fmt::format(
        "kind = \"leaf-spine\"\nleaves = {}\nspines = 2\nhosts_per_leaf = 2", hosts / 2);
    const auto reduced = sent_by_hosts(outcome_of(text_of(topology, "in-network")));
    const auto ring = sent_by_hosts(outcome_of(text_of(topology, "ring")));
    ASSERT_EQ(reduced.size(), hosts);
    ASSERT_EQ(ring.size(), hosts);
    for (std::size_t host = 0; host < reduced.size(); ++host) {
      EXPECT_NEAR(reduced[host] / ring[host], hosts / (2 * (hosts - 1)), 0.01) << "host " << host;
      EXPECT_NEAR(reduced[host] / buffer_bytes, 1, 0.03) << "headers and acknowledgements";
    }
  }
}

struct Place {
  const char* name;
  const char* topology;
};
class OnAnyTopology : public testing::TestWithParam<Place> {};

// The time is that of one buffer, and the latencies of a tree as high as the topology needs.
TEST_P(OnAnyTopology, TheBufferTakesItsTimeOnce) {
  const auto outcome = outcome_of(text_of(GetParam().topology, "in-network"));
  EXPECT_EQ(report::unfinished(outcome), "");
  const double of_buffer_us = buffer_bytes / (400e9 / 8 * 4096 / 4124) * 1e6;
  EXPECT_GT(number(outcome, "job_us"), of_buffer_us);
  EXPECT_LT(number(outcome, "job_us"), 1.2 * of_buffer_us);
  for (const double bytes : sent_by_hosts(outcome)) EXPECT_NEAR(bytes / buffer_bytes, 1, 0.03);
}

INSTANTIATE_TEST_SUITE_P(
    InNetwork, OnAnyTopology,
    testing::Values(Place{"FatTree", "kind = \"fat-tree\"\nk = 4"},
                    Place{"Torus", "kind = \"torus\"\nsize = [4, 4]"},
                    Place{"Ring", "kind = \"torus\"\nsize = [5]"},
                    Place{"Dragonfly",
                          "kind = \"dragonfly\"\ngroups = 5\nrouters_per_group = 2\n"
                          "hosts_per_router = 2\nglobal_links = 2"}),
    [](const auto& info) { return info.param.name; });

std::string fault(const std::string& a, const std::string& b, const std::string& more = "") {
  return fmt::format("[[fault]]\nkind = \"link-down\"\nlink = [\"{}\", \"{}\"]\nat = \"20us\"\n{}",
                     a, b, more);
}
report::Outcome with_fault(const std::string& the_fault, const std::string& topology = leaf_spine) {
  return outcome_of(text_of(topology, "in-network", "", the_fault));
}

// The root is spine 0, the first switch that is as near to all leaves as can be.
TEST(InNetwork, AFaultBesideTheTreeCostsNothing) {
  const auto before = outcome_of(text_of(leaf_spine, "in-network"));
  const auto beside = with_fault(fault("leaf 1", "spine 1"));
  EXPECT_EQ(report::unfinished(beside), "");
  EXPECT_EQ(number(beside, "job_us"), number(before, "job_us"));
}

// Trees are not planned anew, so that the operation fails. It does so after the retries, and says
// how much was not done.
TEST(InNetwork, AFaultOnTheTreeIsReported) {
  for (const auto& [a, b] : {std::pair("leaf 1", "spine 0"), std::pair("host 5", "leaf 1")}) {
    const auto outcome = with_fault(fault(a, b));
    EXPECT_NE(report::unfinished(outcome).find("flows failed"), std::string::npos)
        << report::unfinished(outcome);
    EXPECT_EQ(report::unfinished(outcome).find('\n'), std::string::npos);
    EXPECT_EQ(find(outcome, "job_us"), nullptr) << "there is no time of what is not done";
  }
}

// Lost packets are sent again when the link is back and a time-out has come.
TEST(InNetwork, ALinkThatComesBackDelaysIt) {
  const auto outcome = with_fault(fault("leaf 1", "spine 0", "until = \"1ms\"\n"));
  EXPECT_EQ(report::unfinished(outcome), "");
  EXPECT_GT(number(outcome, "lost"), 0);
  EXPECT_GT(number(outcome, "job_us"), 1'000);
}

TEST(InNetwork, AParallelLinkTakesOver) {
  constexpr char doubled[] =
      "kind = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\nlinks_per_pair = 2";
  for (const char* parallel : {"parallel = 0\n", "parallel = 1\n"}) {
    const auto outcome = with_fault(fault("leaf 1", "spine 0", parallel), doubled);
    EXPECT_EQ(report::unfinished(outcome), "") << parallel;
  }
  // More messages wait for one connection than it has room for, and all of them fail.
  const auto none_left = with_fault(fault("leaf 1", "spine 0"), doubled);
  EXPECT_NE(report::unfinished(none_left).find("flows failed"), std::string::npos)
      << report::unfinished(none_left);
}

struct Refused {
  const char* name;
  const char* traffic;
  const char* more;
  const char* kind;  // of fabric
  const char* error;
};
class RefusedInNetwork : public testing::TestWithParam<Refused> {};

TEST_P(RefusedInNetwork, SaysWhatIsMissing) {
  const auto text = text_of("kind = \"single-switch\"\nhosts = 4", "in-network", GetParam().traffic,
                            GetParam().more);
  auto scenario = scenario::Scenario::parse(text, "s.toml", "",
                                            {fmt::format("fabric.kind = \"{}\"", GetParam().kind)});
  ASSERT_TRUE(scenario) << scenario.error().message;
  const auto setup = scenario->build(0);
  ASSERT_FALSE(setup);
  EXPECT_NE(setup.error().message.find(GetParam().error), std::string::npos)
      << setup.error().message;
  EXPECT_EQ(setup.error().message.find('\n'), std::string::npos) << setup.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    InNetwork, RefusedInNetwork,
    testing::Values(
        Refused{"AllToAll", "collective = \"all-to-all\"", "", "infiniband",
                "traffic.collective: all-to-all is not done by in-network"},
        Refused{"Broadcast", "collective = \"broadcast\"", "", "infiniband",
                "traffic.collective: broadcast is not done by in-network"},
        Refused{"Datagrams", "", "[host]\ntransport = \"srd\"\n", "roce",
                "traffic.algorithm: needs switches that reduce what reliable connections bring"},
        Refused{"Partitions", "", "[[partition]]\npkey = 5\nfull = \"0-3\"\n", "infiniband",
                "traffic.algorithm: goes without partitions"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tulle::experiment

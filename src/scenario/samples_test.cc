// Tests samples over time.

#include "scenario/samples.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "scenario/folder_test.h"
#include "scenario/outcome_test.h"
#include "scenario/results.h"

namespace tulle::scenario {
namespace {

// Two hosts send to a third at 100 Gb/s. Its link is full, and the queue before the link grows by a
// frame with each frame that leaves. A packet takes 4,178 bytes on a link (334.24 ns) and 4,158 in
// a buffer.
constexpr char two_to_one[] = R"([topology]
kind = "single-switch"
hosts = 3
link_rate = "100Gbps"
[traffic]
pattern = "incast"
receiver = 2
bytes = "819200B"
)";
constexpr std::uint64_t frame_bytes = 4'178;
constexpr std::uint64_t stored_bytes = 4'158;
constexpr char ten_frames[] = "report.sample = \"3342.4ns\"";

std::vector<Sample> of_port(const Samples& samples, const std::string& from,
                            const std::string& to) {
  std::vector<Sample> found;
  for (std::size_t i = 0; i < samples.samples.size(); ++i) {
    const SampledPort& port = samples.ports[i % samples.ports.size()];
    if (port.from == from && port.to == to) found.push_back(samples.samples[i]);
  }
  return found;
}

TEST(Samples, AreWhatAPortSentAndWhatWaits) {
  const Outcome outcome = outcome_of(two_to_one, "", {ten_frames});
  ASSERT_EQ(outcome.finished, 2u);
  EXPECT_EQ(outcome.samples.ports.size(), 3u) << "none named: the switch's";
  const std::vector<Sample> full = of_port(outcome.samples, "switch 0", "host 2");
  ASSERT_EQ(full.size(), 41u) << "the run ends after 140 us";
  for (std::size_t i = 1; i < 18; ++i) {
    EXPECT_EQ(full[i].bytes, 10 * frame_bytes) << i;
    EXPECT_EQ(full[i + 1].queue_bytes - full[i].queue_bytes, 10 * stored_bytes) << i;
  }
  EXPECT_EQ(full[25].bytes, 10 * frame_bytes);
  EXPECT_EQ(full[24].queue_bytes - full[25].queue_bytes, 10 * stored_bytes) << "senders are done";
  std::uint64_t bytes = 0;
  for (const Sample& sample : full) bytes += sample.bytes;
  for (const LinkOutcome& link : outcome.links) {
    if (link.to == "host 2") {
      EXPECT_LE(bytes, link.bytes);
      EXPECT_GT(bytes + 10 * frame_bytes, link.bytes) << "and what came after the last one";
    }
  }
}

TEST(Samples, AreOfAllClasses) {
  const Outcome outcome = outcome_of(two_to_one, "", {ten_frames, "host.service_levels = 2"});
  const std::vector<Sample> full = of_port(outcome.samples, "switch 0", "host 2");
  EXPECT_EQ(full[11].queue_bytes - full[10].queue_bytes, 10 * stored_bytes);
}

TEST(Samples, AreOfTheNodesThatAreNamed) {
  const Outcome outcome =
      outcome_of(two_to_one, "", {ten_frames, "report.nodes = [\"host 1\", \"host 2\"]"});
  ASSERT_EQ(outcome.samples.ports.size(), 2u);
  EXPECT_EQ(of_port(outcome.samples, "host 1", "switch 0")[1].bytes, 10 * frame_bytes);
  EXPECT_EQ(of_port(outcome.samples, "host 2", "switch 0")[1].queue_bytes, 0u);
}

TEST(Samples, ChangeNothing) {
  auto scenario = Scenario::parse(two_to_one, "s.toml", "", {});
  const Outcome without = outcome_of(two_to_one);
  const Outcome with = outcome_of(two_to_one, "", {"report.sample = \"100ns\""});
  const Outcome by_time = outcome_of(two_to_one, "", {"report.sample = \"100ns\""}, true);
  EXPECT_EQ(summary_json(*scenario, {without}), summary_json(*scenario, {with}));
  EXPECT_EQ(links_csv(without), links_csv(with));
  EXPECT_EQ(samples_csv(with.samples), samples_csv(by_time.samples));
  EXPECT_TRUE(without.samples.samples.empty());
}

TEST(Samples, Table) {
  Samples samples;
  samples.interval = Time::nanoseconds(800);
  samples.ports = {{"leaf 0", "host 1", 3, false}, {"host 1", "leaf 0", 0, true}};
  samples.samples = {{10'000, 77}, {1, 0}, {0, 0}, {0, 0}};
  EXPECT_EQ(samples_csv(samples),
            "time_ns,from,port,to,gbps,queue_bytes\n"
            "800,leaf 0,3,host 1,100.000,77\n"
            "800,host 1,0,leaf 0,0.010,\n"
            "1600,leaf 0,3,host 1,0.000,0\n"
            "1600,host 1,0,leaf 0,0.000,\n");
}

TEST(Samples, AreWrittenWhereThereAreSome) {
  Folder folder;
  auto scenario = Scenario::parse(two_to_one, "s.toml", "", {});
  const Outcome outcome = outcome_of(two_to_one, "", {ten_frames});
  ASSERT_TRUE(write_results(folder.path("with"), *scenario, {outcome}));
  EXPECT_EQ(folder.read("with/samples.csv"), samples_csv(outcome.samples));
  ASSERT_TRUE(write_results(folder.path("without"), *scenario, {outcome_of(two_to_one)}));
  EXPECT_FALSE(std::filesystem::exists(folder.path("without/samples.csv")));
}

TEST(Samples, WhatIsWrongIsSaid) {
  const auto wrong = [](const std::string& set) {
    auto scenario = Scenario::parse(two_to_one, "s.toml", "", {set});
    if (!scenario) return scenario.error().message;
    auto setup = scenario->build(0);
    return setup ? std::string() : setup.error().message;
  };
  EXPECT_EQ(wrong("report.sample = \"99ns\""),
            "--set: report.sample: must be at least 100ns, or 0ns for none");
  EXPECT_EQ(wrong("report.nodes = [\"leaf 0\"]"),
            "--set: report.nodes: there is no \"leaf 0\" here; nodes are called \"host 0\" to "
            "\"switch 0\"");
  EXPECT_NE(wrong("report.every = \"1us\"").find("report.every: is no key"), std::string::npos);
}

}  // namespace
}  // namespace tulle::scenario

// Tests samples over time.

#include "study/experiment/sampler.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/folder_test.h"
#include "study/experiment/outcome_test.h"
#include "study/report/results.h"

namespace tulle::experiment {
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

std::vector<report::Sample> of_port(const report::Samples& samples, const std::string& from,
                                    const std::string& to) {
  std::vector<report::Sample> found;
  for (std::size_t i = 0; i < samples.samples.size(); ++i) {
    const report::SampledPort& port = samples.ports[i % samples.ports.size()];
    if (port.from == from && port.to == to) found.push_back(samples.samples[i]);
  }
  return found;
}

TEST(Samples, AreWhatAPortSentAndWhatWaits) {
  const report::Outcome outcome = outcome_of(two_to_one, "", {ten_frames});
  ASSERT_EQ(count(outcome, "finished"), 2u);
  EXPECT_EQ(outcome.samples.ports.size(), 3u) << "none named: the switch's";
  const std::vector<report::Sample> full = of_port(outcome.samples, "switch 0", "host 2");
  ASSERT_EQ(full.size(), 41u) << "the run ends after 140 us";
  for (std::size_t i = 1; i < 18; ++i) {
    EXPECT_EQ(full[i].bytes, 10 * frame_bytes) << i;
    EXPECT_EQ(full[i + 1].queue_bytes - full[i].queue_bytes, 10 * stored_bytes) << i;
  }
  EXPECT_EQ(full[25].bytes, 10 * frame_bytes);
  EXPECT_EQ(full[24].queue_bytes - full[25].queue_bytes, 10 * stored_bytes) << "senders are done";
  std::uint64_t bytes = 0;
  for (const report::Sample& sample : full) bytes += sample.bytes;
  for (std::size_t i = 0; i < outcome.links.rows.size(); ++i) {
    if (outcome.links.rows[i].names[2] != "host 2") continue;
    EXPECT_LE(bytes, count(outcome.links, i, "bytes"));
    EXPECT_GT(bytes + 10 * frame_bytes, count(outcome.links, i, "bytes"))
        << "and what came after the last one";
  }
}

TEST(Samples, AreOfAllClasses) {
  const report::Outcome outcome =
      outcome_of(two_to_one, "", {ten_frames, "host.service_levels = 2"});
  const std::vector<report::Sample> full = of_port(outcome.samples, "switch 0", "host 2");
  EXPECT_EQ(full[11].queue_bytes - full[10].queue_bytes, 10 * stored_bytes);
}

TEST(Samples, AreOfTheNodesThatAreNamed) {
  const report::Outcome outcome =
      outcome_of(two_to_one, "", {ten_frames, "report.nodes = [\"host 1\", \"host 2\"]"});
  ASSERT_EQ(outcome.samples.ports.size(), 2u);
  EXPECT_EQ(of_port(outcome.samples, "host 1", "switch 0")[1].bytes, 10 * frame_bytes);
  EXPECT_EQ(of_port(outcome.samples, "host 2", "switch 0")[1].queue_bytes, 0u);
}

TEST(Samples, ChangeNothing) {
  const report::Outcome without = outcome_of(two_to_one);
  const report::Outcome with = outcome_of(two_to_one, "", {"report.sample = \"100ns\""});
  const report::Outcome by_time = outcome_of(two_to_one, "", {"report.sample = \"100ns\""}, true);
  EXPECT_EQ(report::summary_json({"", "", "", {without}}),
            report::summary_json({"", "", "", {with}}));
  EXPECT_EQ(report::sheet_csv(without.links), report::sheet_csv(with.links));
  EXPECT_EQ(report::samples_csv(with.samples), report::samples_csv(by_time.samples));
  EXPECT_TRUE(without.samples.samples.empty());
}

TEST(Samples, AreWrittenWhereThereAreSome) {
  Folder folder;
  const report::Outcome outcome = outcome_of(two_to_one, "", {ten_frames});
  auto with = OutputFolder::open(folder.path("with"));
  auto without = OutputFolder::open(folder.path("without"));
  ASSERT_TRUE(with && without);
  ASSERT_TRUE(report::write_results(*with, {"", "", "", {outcome}}, false));
  EXPECT_EQ(folder.read("with/samples.csv"), report::samples_csv(outcome.samples));
  ASSERT_TRUE(report::write_results(*without, {"", "", "", {outcome_of(two_to_one)}}, false));
  EXPECT_FALSE(std::filesystem::exists(folder.path("without/samples.csv")));
}

TEST(Samples, WhatIsWrongIsSaid) {
  const auto wrong = [](const std::string& set) {
    auto scenario = scenario::Scenario::parse(two_to_one, "s.toml", "", {set});
    if (!scenario) return scenario.error().message;
    auto setup = scenario->build(0);
    return setup ? std::string() : setup.error().message;
  };
  EXPECT_EQ(wrong("report.sample = \"99ns\""),
            "--set: report.sample: must be at least 100ns, or 0ns for none");
  EXPECT_EQ(wrong("report.nodes = [\"leaf 0\"]"),
            "--set: report.nodes: there is no \"leaf 0\" here; nodes are called \"host 0\" to "
            "\"switch 0\"");
  EXPECT_NE(wrong("report.every = \"1us\"").find("report.every: is not a known key"),
            std::string::npos);
}

}  // namespace
}  // namespace tulle::experiment

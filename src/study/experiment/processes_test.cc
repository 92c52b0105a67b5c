// A network in several processes, whose messages may be damaged.

#include "study/experiment/processes_test.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "sim/nodes.h"
#include "sim/round_message_test.h"
#include "study/experiment/alone.h"
#include "study/experiment/jobs_test.h"
#include "study/report/html_page.h"
#include "study/report/results.h"

namespace tulle::experiment {
namespace {

constexpr char leaves[] = R"(
[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 4
link_rate = "100Gbps"
[traffic]
pattern = "permutation"
bytes = "300KB"
[report]
sample = "3us"
)";

std::string page_of(const report::Outcome& outcome) {
  return report::html_page({"s", "S", "", {outcome}}, {"again", "variant", {{"", ""}}}) +
         report::samples_csv(outcome.samples);
}

TEST(Processes, SamplesTimelineAndPhasesAreThoseOfOneProcess) {
  for (const char* text : {leaves, two_jobs}) {
    auto setup = setup_of(text, "", {});
    ASSERT_TRUE(setup);
    setup->timeline = true;
    auto run = Run::prepare(std::move(*setup));
    (*run)->run([](const Progress&) { return true; });
    const report::Outcome alone = (*run)->outcome();
    EXPECT_GT(alone.timeline.moments.size(), 10u);
    for (const std::uint32_t processes : {2u, 3u, 8u}) {
      const report::Outcome outcome = outcome_of_processes(text, processes, 1, true);
      EXPECT_EQ(outcome.timeline.moments.size(), alone.timeline.moments.size());
      EXPECT_TRUE(page_of(outcome) == page_of(alone)) << text << processes << " processes";
    }
  }
}

TEST(Processes, JobsAloneTakeAsLongAsInOneProcess) {
  const report::Outcome one = compared(two_jobs);
  report::Outcome outcome;
  in_processes(3, [&](ProcessOfTest& process) {
    auto setup = setup_of(two_jobs, "", {"report.alone = true"});
    const auto goes_on = [](const Progress&) { return true; };
    EXPECT_TRUE(play_alone(*setup, 1, &process, goes_on));
    auto run = Run::prepare(std::move(*setup), 1, &process);
    (*run)->run(goes_on);
    if (process.number() == 0) outcome = (*run)->outcome();
  });
  for (const char* job : {"a", "b"}) {
    EXPECT_GT(of_job(one, job, "alone_us"), 0);
    EXPECT_EQ(of_job(outcome, job, "alone_us"), of_job(one, job, "alone_us"));
    EXPECT_EQ(of_job(outcome, job, "job_slowdown"), of_job(one, job, "job_slowdown"));
  }
}

// The process that is told to stop stops all others.
TEST(Processes, OneThatDoesNotGoOnEndsAll) {
  for (const std::uint32_t stops : {0u, 2u}) {
    std::atomic<int> ended = 0;
    in_processes(3, [&](ProcessOfTest& process) {
      auto setup = setup_of(leaves, "", {"traffic.bytes = \"3MB\""});
      auto run = Run::prepare(std::move(*setup), 1, &process);
      int asked = 0;
      (*run)->run([&](const Progress&) { return process.number() != stops || ++asked < 3; });
      if (process.number() == 0) {
        const report::Outcome outcome = (*run)->outcome();
        EXPECT_LT(count(outcome, "finished"), 8u);
      }
      ++ended;
    });
    EXPECT_EQ(ended, 3);
  }
}

// Returns how many of two processes notice that process 1's messages are changed from one on.
int failures_with(const MeetingRoom::Tamper& tamper, const char* text = leaves) {
  std::atomic<int> failed = 0;
  in_processes(
      2,
      [&](ProcessOfTest& process) {
        auto setup = setup_of(text, "", {});
        auto run = Run::prepare(std::move(*setup), 1, &process);
        if (!run) {
          EXPECT_TRUE(run.error().message.ends_with("rank 1 has sent a damaged message"))
              << run.error().message;
          ++failed;
          return;
        }
        try {
          (*run)->run([](const Progress&) { return true; });
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what() + sizeof "rank N has sent " - 1,
                       std::string(error.what()).ends_with("results") ? "damaged results"
                                                                      : "a damaged message");
          ++failed;
        }
      },
      tamper);
  return failed;
}

TEST(Processes, DamagedMessagesEndTheRunWithALine) {
  EXPECT_EQ(failures_with({}), 0);
  // An exception leaves the other process without answers, which it takes for damaged, too.
  const auto from_one = [](int first, auto change) {
    auto seen = std::make_shared<int>(0);
    return [seen, first, change](std::uint32_t from, std::uint32_t, Bytes& message) {
      if (from == 1 && !message.empty() && ++*seen >= first) change(message);
    };
  };
  for (const int first : {1, 2, 5, 20}) {
    EXPECT_GE(failures_with(from_one(first, [](Bytes& message) { message.clear(); })), 1);
    EXPECT_GE(failures_with(from_one(first, [](Bytes& message) { message.pop_back(); })), 1);
    EXPECT_GE(failures_with(from_one(first, [](Bytes& message) { message.resize(7); })), 1);
    EXPECT_GE(failures_with(from_one(first, [](Bytes& message) { message.push_back({}); })), 1);
    EXPECT_GE(
        failures_with(from_one(first, [](Bytes& message) { message.front() ^= std::byte{0x40}; })),
        1);
  }
}

// Returns a way to add something that crosses to part 0 to the third round's message of process 1.
MeetingRoom::Tamper adding(const sim::Crossing& crossing) {
  return [crossing](std::uint32_t from, std::uint32_t, Bytes& message) {
    if (from != 1) return;
    const auto read = sim::read_message(message);
    if (read && read->report.round == 3) sim::add_share(0, crossing, message);
  };
}

sim::Crossing alarm(std::uint32_t host, std::uint32_t token) {
  constexpr unsigned kind_bits = 4;
  const auto kind = static_cast<std::uint32_t>(sim::EventKind::application);
  sim::Crossing crossing;
  crossing.events.push_back(
      {.at = Time::microseconds(500).ps, .datum = token, .place = host << kind_bits | kind});
  return crossing;
}

sim::Crossing request(std::uint32_t host, std::uint32_t token, std::uint32_t note) {
  sim::Crossing crossing;
  crossing.requests.push_back({host, token, note});
  return crossing;
}

// Process 0 has the hosts 0 to 3, and host N sends flow N.
TEST(Processes, AlarmsAndRequestsThatNobodySendsAreRefused) {
  constexpr std::uint32_t of_task = 1u << 30, closes = 1u << 31, step = 1u << 27;
  const auto setup = setup_of(leaves, "", {});
  ASSERT_EQ(setup->flows[2].source, 2u);
  const std::uint32_t peer = setup->flows[2].destination;
  const std::vector<sim::Crossing> of_flows = {
      alarm(0, 8),  // there are flows 0 to 7
      alarm(0, 0x07FF'FFFF),
      alarm(1, 2),                        // flow 2 is not sent from there
      alarm((peer + 1) % 4, closes | 2),  // nor to there
      alarm(2, 1u << 29 | 2),             // only sockets hear of a read
      alarm(0, of_task),                  // there are no tasks
      alarm(4, 4),                        // host 4 is of process 1
      request(0, 8, 0x100),
      request((peer + 1) % 4, 2, 0x100),
      request(setup->flows[7].destination, 7, 1),  // there is one path, 0
      request(9, 0, 0),
  };
  for (std::size_t i = 0; i < of_flows.size(); ++i) {
    EXPECT_GE(failures_with(adding(of_flows[i])), 1) << i;
  }
  for (std::uint32_t number = 0; number < 8; ++number) {
    // Tasks within a server alone send alarms to other hosts, and these have none.
    EXPECT_GE(failures_with(adding(alarm(0, of_task | number * step)), two_jobs), 1) << number;
    EXPECT_GE(failures_with(adding(alarm(0, of_task | number * step | 0x07FF'FFFF)), two_jobs), 1);
  }
  EXPECT_EQ(failures_with(adding({}), two_jobs), 0);
  EXPECT_EQ(failures_with(adding(alarm(0, 0))), 0) << "this one might be sent";
}

}  // namespace
}  // namespace tulle::experiment

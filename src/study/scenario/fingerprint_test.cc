#include "study/scenario/fingerprint.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

namespace tulle::scenario {
namespace {

using workload::Task;
using workload::TaskGraph;

// Two messages from rank 0 to rank 1, and a computation there that waits for both.
struct Parts {
  Task first{.rank = 0, .peer = 1, .bytes = 100};
  Task second{.rank = 0, .peer = 1, .bytes = 200};
  Task sum{.kind = Task::Kind::computation, .rank = 1, .duration = Time::nanoseconds(5)};
  std::vector<TaskGraph::Index> before{0, 1};
  std::string phase = "reduce";
  workload::Flow flow{.source = 0, .destination = 1, .bytes = 100};
  fabric::Link link{};
  std::string name = "train";
  Time arrival = Time::zero();
  std::uint32_t ranks = 3;
};

std::uint64_t fingerprint_of(const Parts& parts) {
  workload::Job job{TaskGraph(parts.ranks), {}, {}, {}, {}};
  job.graph.add_phase(parts.phase);
  job.graph.add(parts.first);
  job.graph.add(parts.second);
  job.graph.add(parts.sum, parts.before);
  job.name = parts.name;
  job.arrival = parts.arrival;
  Setup setup;
  setup.topology.links.push_back(parts.link);
  setup.flows.push_back(parts.flow);
  setup.jobs.push_back(std::move(job));
  return fingerprint(setup);
}

// Returns setups' parts, each of which differs from Parts() in one thing.
std::vector<Parts> variations() {
  const std::vector<std::function<void(Parts&)>> changes = {
      [](Parts& parts) { parts.second.rank = 2; },
      [](Parts& parts) { parts.second.peer = 2; },
      [](Parts& parts) { parts.second.bytes = 201; },
      [](Parts& parts) { parts.second.channel = 1; },
      [](Parts& parts) { parts.second.reduces = true; },
      [](Parts& parts) { parts.second.by_host = true; },
      [](Parts& parts) { parts.second.phase = 1; },
      [](Parts& parts) { parts.sum.duration = Time::nanoseconds(6); },
      [](Parts& parts) { parts.sum.processor = 1; },
      [](Parts& parts) { parts.sum.exchanges = true; },
      [](Parts& parts) { parts.sum.rounds = 1; },
      [](Parts& parts) { parts.before = {0}; },
      [](Parts& parts) { parts.before = {1}; },
      [](Parts& parts) { parts.phase = "gather"; },
      [](Parts& parts) { parts.ranks = 4; },
      [](Parts& parts) { parts.name = "serve"; },
      [](Parts& parts) { parts.arrival = Time::nanoseconds(1); },
      [](Parts& parts) { parts.flow.source = 2; },
      [](Parts& parts) { parts.flow.destination = 2; },
      [](Parts& parts) { parts.flow.bytes = 101; },
      [](Parts& parts) { parts.flow.start = Time::nanoseconds(1); },
      [](Parts& parts) { parts.flow.after = 0; },
      [](Parts& parts) { parts.flow.connection = 0; },
      [](Parts& parts) { parts.link.b += 1; },
      [](Parts& parts) { parts.link.b_port += 1; },
      [](Parts& parts) { parts.link.bits_per_second += 1; },
      [](Parts& parts) { parts.link.delay = Time::nanoseconds(1); },
  };
  std::vector<Parts> all;
  for (const auto& change : changes) change(all.emplace_back());
  return all;
}

TEST(Fingerprint, IsThatOfAllThatIsPlayed) {
  EXPECT_EQ(fingerprint_of({}), fingerprint_of({}));
  std::set<std::uint64_t> seen{fingerprint_of({})};
  for (const Parts& parts : variations()) seen.insert(fingerprint_of(parts));
  EXPECT_EQ(seen.size(), variations().size() + 1);
}

TEST(Fingerprint, EmptyListsCount) {
  scenario::Setup none, flow, job;
  flow.flows.resize(1);
  job.jobs.push_back({TaskGraph(1), {}, {}, {}, {}});
  const std::set<std::uint64_t> all{fingerprint(none), fingerprint(flow), fingerprint(job)};
  EXPECT_EQ(all.size(), 3u);
}

}  // namespace
}  // namespace tulle::scenario

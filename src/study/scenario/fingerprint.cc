#include "study/scenario/fingerprint.h"

#include <string_view>

namespace tulle::scenario {
namespace {

class Hash {
 public:
  template <typename... Values>
  void mix(Values... values) {
    (mix_one(static_cast<std::uint64_t>(values)), ...);
  }
  std::uint64_t value() const { return value_; }

 private:
  void mix_one(std::uint64_t value) {
    value_ = (value_ ^ value) * 0x9E37'79B9'7F4A'7C15;
    value_ ^= value_ >> 32;
  }

  std::uint64_t value_ = 0;
};

void mix(Hash& hash, std::string_view text) {
  hash.mix(text.size());
  for (const char each : text) hash.mix(static_cast<unsigned char>(each));
}

void mix(Hash& hash, const fabric::Topology& topology) {
  hash.mix(topology.links.size());
  for (const fabric::Link& link : topology.links) {
    hash.mix(link.a, link.a_port, link.b, link.b_port, link.bits_per_second, link.delay.ps);
  }
}

void mix(Hash& hash, const workload::TaskGraph& graph) {
  hash.mix(graph.ranks(), graph.size(), graph.phases().size());
  for (const std::string& phase : graph.phases()) mix(hash, phase);
  for (workload::TaskGraph::Index i = 0; i < graph.size(); ++i) {
    const workload::Task& task = graph[i];
    hash.mix(task.kind, task.rank, task.peer, task.bytes, task.duration.ps, task.processor,
             task.exchanges, task.reduces, task.by_host, task.channel, task.phase, task.rounds);
    hash.mix(graph.waits_for(i).size());
    for (const workload::TaskGraph::Index before : graph.waits_for(i)) hash.mix(before);
  }
}

}  // namespace

std::uint64_t fingerprint(const Setup& setup) {
  Hash hash;
  mix(hash, setup.topology);
  hash.mix(setup.flows.size());
  for (const workload::Flow& flow : setup.flows) {
    hash.mix(flow.source, flow.destination, flow.bytes, flow.start.ps, flow.after, flow.connection);
  }
  hash.mix(setup.jobs.size());
  for (const workload::Job& job : setup.jobs) {
    mix(hash, job.name);
    hash.mix(job.arrival.ps);
    mix(hash, job.graph);
  }
  return hash.value();
}

}  // namespace tulle::scenario

#include "study/experiment/collect.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <vector>

namespace tulle::experiment {
namespace {

struct FlowLine {
  std::uint64_t flow = 0;
  workload::FlowResult result;
};

struct TaskLine {
  std::uint64_t task = 0;
  workload::TaskResult result;
};

// Packs those results in which something has happened.
template <typename Line, typename Results>
void pack_results(const Results& results, Packer& packer) {
  std::vector<Line> lines;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (has_happened(results[i])) lines.push_back({i, results[i]});
  }
  packer.add_list(lines);
}

template <typename Line, typename Player>
bool take_results(Unpacker& unpacker, Player& player) {
  std::vector<Line> lines;
  if (!unpacker.take_list(lines)) return false;
  for (const auto& [index, result] : lines) {
    if (index >= player.results().size()) return false;
    player.merge(static_cast<std::uint32_t>(index), result);
  }
  return true;
}

}  // namespace

Bytes packed(const Findings& findings) {
  Bytes bytes;
  Packer packer(bytes);
  findings.measured.pack(packer);
  packer.add(findings.player.counts());
  pack_results<FlowLine>(findings.player.results(), packer);
  for (std::size_t job = 0; findings.jobs != nullptr && job < findings.jobs->size(); ++job) {
    const workload::TaskPlayer& player = (*findings.jobs)[job];
    packer.add(std::uint64_t{player.parts_done()});
    pack_results<TaskLine>(player.results(), packer);
  }
  packer.add_list(findings.sampler.samples().samples);
  packer.add_list(findings.timeline.timeline().moments);
  return bytes;
}

bool add(std::uint32_t process, std::span<const std::byte> bytes, Findings& findings) {
  Unpacker unpacker(bytes);
  workload::FlowCounts counts;
  if (!findings.measured.take(process, unpacker) || !unpacker.take(counts)) return false;
  findings.player.add(counts);
  if (!take_results<FlowLine>(unpacker, findings.player)) return false;
  for (std::size_t job = 0; findings.jobs != nullptr && job < findings.jobs->size(); ++job) {
    workload::TaskPlayer& player = (*findings.jobs)[job];
    std::uint64_t done = 0;
    if (!unpacker.take(done) || done > player.parts_left()) return false;
    player.add_parts_done(done);
    if (!take_results<TaskLine>(unpacker, player)) return false;
  }
  std::vector<report::Sample> samples;
  std::vector<report::Moment> moments;
  return unpacker.take_list(samples) && findings.sampler.add(samples) &&
         unpacker.take_list(moments) && findings.timeline.add(moments) && unpacker.is_empty();
}

void collect(sim::Processes& processes, Findings findings) {
  std::vector<Bytes> to(processes.count()), from(processes.count());
  if (processes.number() > 0) to.front() = packed(findings);
  processes.exchange(to, from);
  if (processes.number() > 0) return;
  for (std::uint32_t process = 1; process < processes.count(); ++process) {
    if (!add(process, from[process], findings)) {
      throw std::runtime_error(fmt::format("rank {} has sent damaged results", process));
    }
    from[process] = {};
  }
}

}  // namespace tulle::experiment

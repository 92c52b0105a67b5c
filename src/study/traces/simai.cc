// SimAI's workloads. The first line names how the work is dealt out, the second the number of
// layers, and each layer has a line of twelve fields:
//
//   HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 … all_gpus: 4 …
//   1
//   NAME -1 FORWARD_NS COLLECTIVE BYTES INPUT_NS COLLECTIVE BYTES WEIGHT_NS COLLECTIVE BYTES
//   UPDATE_NS
//
// Each rank does the same: forward through all layers, then backward, input gradients before weight
// gradients. It waits for a collective, except for those of weight gradients, which overlap with
// what follows. Ranks are dealt as Megatron-LM does by default: tensor groups are innermost, then
// come expert groups, then what is left of the data's replicas, then the pipeline's stages.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "study/traces/formats.h"
#include "study/traces/words.h"

namespace tulle::traces {
namespace {

using workload::Collective;

// The ranks among which a collective is done.
enum class Scope : std::uint8_t { tensor, expert, data, data_of_expert };
constexpr std::size_t scopes = 4;

struct Pass {
  Time duration;
  std::optional<Collective> collective;
  Scope scope = Scope::tensor;
  std::uint64_t bytes = 0;
};

struct Layer {
  Pass forward, input, weight;
  Time update;
  std::uint64_t line = 0;
};

struct Dealing {
  std::uint64_t tensor = 1, expert = 1, pipeline = 1, ranks = 0;
};

class WorkloadReader {
 public:
  WorkloadReader(const File& file, const Settings& settings)
      : file_(file), settings_(settings), lines_(file.text) {}

  Result<Trace> read();

 private:
  Result<void> read_header();
  Result<void> check_dealing();
  Result<void> read_layers();
  Result<Time> read_time(std::size_t at) const;
  Result<Pass> read_pass(std::size_t at, Scope otherwise) const;
  Result<void> add_groups(Trace& trace);
  Result<void> add_rank(Trace& trace, std::uint32_t rank) const;
  Error error(const std::string& fault) const {
    return {fmt::format("{}:{}: {}", one_line(file_.name), lines_.line(), fault)};
  }

  const File& file_;
  const Settings& settings_;
  LineReader lines_;
  Dealing dealing_;
  std::vector<Layer> layers_;
  std::array<std::vector<std::uint32_t>, scopes> group_of_;  // by scope and rank
};

Result<void> WorkloadReader::read_header() {
  if (!lines_.next()) return error("the file is empty");
  const auto& words = lines_.words();
  if (words[0] != "HYBRID_TRANSFORMER_FWD_IN_BCKWD" && words[0] != "HYBRID_TRANSFORMER") {
    return error(fmt::format("{} is not read; SimAI's HYBRID_TRANSFORMER_FWD_IN_BCKWD is",
                             quoted(words[0])));
  }
  for (std::size_t i = 1; i < words.size(); i += 2) {
    std::string_view name = words[i];
    if (name.ends_with(':')) name.remove_suffix(1);
    const auto value =
        i + 1 < words.size() ? workload::parse_number<std::uint64_t>(words[i + 1]) : std::nullopt;
    if (!value) return error(fmt::format("{} needs a number", quoted(name)));
    if (name == "model_parallel_NPU_group") {
      dealing_.tensor = *value;
    } else if (name == "ep") {
      dealing_.expert = *value;
    } else if (name == "pp") {
      dealing_.pipeline = *value;
    } else if (name == "all_gpus") {
      dealing_.ranks = *value;
    } else if ((name == "checkpoints" || name == "checkpoint_initiates") && *value > 0) {
      return error("layers that are computed again (checkpoints) are not read; take 0");
    }
  }
  return check_dealing();
}

Result<void> WorkloadReader::check_dealing() {
  Dealing& dealing = dealing_;
  if (dealing.ranks == 0) dealing.ranks = settings_.servers.ranks();
  const std::string place = fmt::format("{}:{}", one_line(file_.name), lines_.line());
  if (auto right = check_ranks(place, dealing.ranks, settings_); !right) return right.error();
  for (const std::uint64_t part : {dealing.tensor, dealing.expert, dealing.pipeline}) {
    if (part == 0 || part > dealing.ranks) {
      return error(fmt::format("{} GPUs cannot be dealt into groups of {}", dealing.ranks, part));
    }
  }
  const std::uint64_t one = dealing.tensor * dealing.expert * dealing.pipeline;
  if (dealing.ranks % one != 0) {
    return error(
        fmt::format("{} GPUs cannot be dealt evenly to tensor groups of {}, expert groups "
                    "of {} and {} pipeline stages",
                    dealing.ranks, dealing.tensor, dealing.expert, dealing.pipeline));
  }
  return {};
}

Result<Time> WorkloadReader::read_time(std::size_t at) const {
  const auto number = workload::parse_number<std::int64_t>(lines_.words()[at]);
  if (!number || *number < 0 || *number > Trace::computation_max.to_nanoseconds()) {
    return error(
        fmt::format("{} is no time; give nanoseconds, up to 50 days", quoted(lines_.words()[at])));
  }
  return Time::nanoseconds(*number);
}

// Reads a time, a collective and its bytes.
Result<Pass> WorkloadReader::read_pass(std::size_t at, Scope otherwise) const {
  Pass pass;
  auto duration = read_time(at);
  if (!duration) return duration.error();
  pass.duration = *duration;
  const auto bytes = workload::parse_number<std::uint64_t>(lines_.words()[at + 2]);
  if (!bytes) {
    return error(fmt::format("{} is no number of bytes", quoted(lines_.words()[at + 2])));
  }
  pass.bytes = *bytes;
  std::string_view name = lines_.words()[at + 1];
  if (name == "NONE") return pass;
  pass.scope = otherwise;
  for (const auto& [suffix, scope] : {std::pair(std::string_view("_DP_EP"), Scope::data_of_expert),
                                      std::pair(std::string_view("_EP"), Scope::expert)}) {
    if (!name.ends_with(suffix)) continue;
    name.remove_suffix(suffix.size());
    pass.scope = scope;
    break;
  }
  for (const auto& [known, collective] :
       {std::pair(std::string_view("ALLREDUCE"), Collective::all_reduce),
        std::pair(std::string_view("ALLGATHER"), Collective::all_gather),
        std::pair(std::string_view("REDUCESCATTER"), Collective::reduce_scatter),
        std::pair(std::string_view("ALLTOALL"), Collective::all_to_all)}) {
    if (name == known) pass.collective = collective;
  }
  if (!pass.collective) {
    return error(
        fmt::format("there is no collective {}; there are NONE, ALLREDUCE, ALLGATHER, "
                    "REDUCESCATTER and ALLTOALL, with _EP or _DP_EP",
                    quoted(lines_.words()[at + 1])));
  }
  if (pass.bytes == 0) pass.collective.reset();
  return pass;
}

Result<void> WorkloadReader::read_layers() {
  if (!lines_.next()) return error("there is no number of layers");
  const auto count = workload::parse_number<std::uint64_t>(lines_.words()[0]);
  if (!count || lines_.words().size() != 1) return error("expected the number of layers");
  // A rank has two nodes for each of a layer's passes, and one for the update.
  constexpr std::uint64_t nodes = 7;
  const std::uint64_t most = settings_.limits.nodes / nodes / dealing_.ranks;
  if (*count > most) {
    return error(
        fmt::format("{} layers are too many for {} ranks: {} at most; take fewer GPUs or "
                    "layers",
                    *count, dealing_.ranks, most));
  }
  while (lines_.next()) {
    constexpr std::size_t fields = 12;
    if (lines_.words().size() != fields) {
      return error(fmt::format("a layer has {} fields, and not {}", fields, lines_.words().size()));
    }
    if (layers_.size() == *count) break;
    Layer layer;
    layer.line = lines_.line();
    const std::pair<Pass*, Scope> passes[] = {{&layer.forward, Scope::tensor},
                                              {&layer.input, Scope::tensor},
                                              {&layer.weight, Scope::data}};
    for (std::size_t i = 0; i < 3; ++i) {
      auto pass = read_pass(2 + 3 * i, passes[i].second);
      if (!pass) return pass.error();
      *passes[i].first = *pass;
    }
    auto update = read_time(fields - 1);
    if (!update) return update.error();
    layer.update = *update;
    layers_.push_back(layer);
  }
  if (layers_.size() == *count && lines_.words().empty()) return {};
  return error(fmt::format("the second line announces {} layers, and there are {}", *count,
                           lines_.words().empty() ? "fewer; the file may be cut" : "more"));
}

// A rank is ((stage * replicas + replica) * experts + expert) * tensor + place.
Result<void> WorkloadReader::add_groups(Trace& trace) {
  const auto ranks = static_cast<std::uint32_t>(dealing_.ranks);
  const auto tensor = static_cast<std::uint32_t>(dealing_.tensor);
  const auto expert = static_cast<std::uint32_t>(dealing_.expert);
  const auto stage = static_cast<std::uint32_t>(dealing_.ranks / dealing_.pipeline);
  struct Shape {
    std::uint32_t stride, size;
  };
  const std::array<Shape, scopes> shapes = {Shape{1, tensor}, Shape{tensor, expert},
                                            Shape{tensor, stage / tensor},
                                            Shape{tensor * expert, stage / (tensor * expert)}};
  for (std::size_t scope = 0; scope < scopes; ++scope) {
    const auto& [stride, size] = shapes[scope];
    group_of_[scope].resize(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (rank / stride % size != 0) continue;  // not the first of its group
      std::vector<std::uint32_t> members(size);
      for (std::uint32_t i = 0; i < size; ++i) members[i] = rank + i * stride;
      auto group = trace.add_group(members);
      if (!group) return error(group.error().message);
      for (const std::uint32_t member : members) group_of_[scope][member] = *group;
    }
  }
  return {};
}

// Adds what a rank does, one after the other.
Result<void> WorkloadReader::add_rank(Trace& trace, std::uint32_t rank) const {
  std::optional<Trace::Index> last;
  Error fault;
  const auto add = [&](const Node& node, bool is_waited_for) {
    auto index = trace.add(node);
    auto waits = index && last ? trace.wait(*index, *last) : Result<void>();
    if (!index || !waits) {
      fault = index ? waits.error() : index.error();
      return false;
    }
    if (is_waited_for) last = *index;
    return true;
  };
  // Returns false if there is a fault. A pass whose collective is not waited for ends in an update.
  const auto run = [&](const Layer& layer, const Pass& pass, bool is_waited_for) {
    Node node;
    node.rank = rank;
    node.number = layer.line;
    node.kind = Node::Kind::computation;
    node.duration = pass.duration;
    if (pass.duration > Time::zero() && !add(node, true)) return false;
    if (!pass.collective) return true;
    node.kind = Node::Kind::collective;
    node.duration = Time::zero();
    node.collective = *pass.collective;
    node.bytes = pass.bytes;
    node.group = group_of_[static_cast<std::size_t>(pass.scope)][rank];
    if (is_waited_for) return add(node, true);
    const std::optional<Trace::Index> before = last;
    if (!add(node, true)) return false;
    node.kind = Node::Kind::computation;
    node.bytes = 0;
    node.duration = layer.update;
    node.processor = 1;  // it holds the GPU's computations up in no way, as in SimAI
    const bool is_right = layer.update == Time::zero() || add(node, false);
    last = before;
    return is_right;
  };
  for (const Layer& layer : layers_) {
    if (!run(layer, layer.forward, true)) return fault;
  }
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const Layer& layer = layers_[i];
    if (!run(layer, layer.input, true) || !run(layer, layer.weight, false)) return fault;
  }
  return {};
}

Result<Trace> WorkloadReader::read() {
  if (auto right = read_header(); !right) return right.error();
  if (auto right = read_layers(); !right) return right.error();
  Trace trace(static_cast<std::uint32_t>(dealing_.ranks), settings_.limits);
  trace.add_file(file_.name, Trace::Numbers::lines);
  if (auto right = add_groups(trace); !right) return right.error();
  for (std::uint32_t rank = 0; rank < trace.ranks(); ++rank) {
    if (auto right = add_rank(trace, rank); !right) return right.error();
  }
  return trace;
}

}  // namespace

Result<Trace> read_simai(const File& file, const Settings& settings) {
  return WorkloadReader(file, settings).read();
}

}  // namespace tulle::traces

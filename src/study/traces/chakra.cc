#include "study/traces/chakra.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/json_text.h"
#include "base/quoted.h"
#include "study/traces/formats.h"

namespace tulle::traces {

using workload::Collective;

void set_attribute(ChakraNode& node, std::string_view name, double number, std::uint64_t whole) {
  if (name == "is_cpu_op") {
    node.is_of_host = number != 0;
  } else if (name == "num_ops") {
    node.operations = number;
  } else if (name == "comm_type") {
    node.collective = whole;
  } else if (name == "comm_size") {
    node.bytes = whole;
  } else if (name == "comm_src") {
    node.source = whole;
  } else if (name == "comm_dst") {
    node.destination = whole;
  } else if (name == "comm_tag") {
    node.tag = whole;
  }
}

namespace {

// The numbers are those of Chakra's CollectiveCommType.
enum class ChakraCollective : std::uint8_t {
  all_reduce,
  reduce,
  all_gather,
  gather,
  scatter,
  broadcast,
  all_to_all,
  reduce_scatter,
  reduce_scatter_block,
  barrier,
};

// Builds the trace of a job from the nodes of each rank.
class ChakraReader {
 public:
  ChakraReader(const Settings& settings, std::uint32_t ranks)
      : settings_(settings), trace_(ranks, settings.limits) {}

  Result<void> read_file(const File& file);
  Trace take() { return std::move(trace_); }

 private:
  // One node of the file that is read, for one rank.
  struct At {
    const ChakraNode& node;
    std::uint32_t rank;
    bool is_of_all;  // every rank has the same file
  };

  Result<void> keep(const ChakraNode& node);
  Result<void> read_groups(const ChakraNode& node);
  Result<void> add_rank(std::uint32_t rank, bool is_of_all);
  Result<void> add_waits(const ChakraNode& node, Trace::Index first, bool has_control);
  bool follows_control() const;
  Result<Node> convert(const At& at);
  Result<void> convert_message(const At& at, Node& node) const;
  Result<void> convert_collective(const At& at, Node& node);
  Result<std::uint32_t> group_of(const At& at);
  Result<std::uint32_t> find_group(const ChakraNode& node);
  Result<Time> duration_of(const ChakraNode& node) const;
  Error error(std::uint64_t node, std::string_view fault) const {
    return trace_.error(file_, node, fault);
  }

  const Settings& settings_;
  Trace trace_;
  // These belong to the file that is read.
  std::uint32_t file_ = 0;
  std::vector<ChakraNode> nodes_;
  std::unordered_map<std::uint64_t, std::uint32_t> place_of_;  // by id: index in nodes_
  std::size_t dependencies_ = 0;
  Groups groups_;
  std::map<std::string, std::uint32_t, std::less<>> group_numbers_;  // in the trace, by name
};

Result<void> ChakraReader::read_file(const File& file) {
  file_ = trace_.add_file(file.name, Trace::Numbers::nodes);
  nodes_.clear();
  place_of_.clear();
  dependencies_ = 0;
  groups_ = settings_.groups;
  group_numbers_.clear();
  const auto take = [this](const ChakraNode& node) { return keep(node); };
  bool is_kept = true;
  const auto note = [&](const ChakraNode& node) {
    auto right = take(node);
    is_kept = static_cast<bool>(right);
    return right;
  };
  auto read = format_of(file.name, file.text) == Format::chakra_json
                  ? read_chakra_json(file.text, note)
                  : read_chakra_protobuf(file.text, note);
  if (!read && !is_kept) return read.error();
  if (!read) return Error{fmt::format("{}: {}", one_line(file.name), read.error().message)};
  if (file.rank) return add_rank(*file.rank, false);
  for (std::uint32_t rank = 0; rank < trace_.ranks(); ++rank) {
    if (auto right = add_rank(rank, true); !right) return right.error();
  }
  return {};
}

Result<void> ChakraReader::keep(const ChakraNode& node) {
  if (nodes_.size() == settings_.limits.nodes) {
    return error(node.id, fmt::format("a trace has at most {} nodes", settings_.limits.nodes));
  }
  if (!place_of_.try_emplace(node.id, static_cast<std::uint32_t>(nodes_.size())).second) {
    return error(node.id, "is there twice; numbers of a file differ");
  }
  dependencies_ += node.data_dependencies.size() + node.control_dependencies.size();
  if (dependencies_ > settings_.limits.dependencies) {
    return error(node.id,
                 fmt::format("a trace has at most {} dependencies", settings_.limits.dependencies));
  }
  if (!node.group_list.empty()) {
    if (auto right = read_groups(node); !right) return right.error();
  }
  nodes_.push_back(node);
  nodes_.back().group_list.clear();
  return {};
}

// Reads the groups of a node of PyTorch's process groups: text that has a list of objects with
// pg_name and ranks. No ranks mean all.
Result<void> ChakraReader::read_groups(const ChakraNode& node) {
  const std::string_view text = node.group_list;
  const std::size_t begin = text.find("[{"), end = text.rfind("}]");
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  const auto list = parse_json<nlohmann::json>(text.substr(begin, end + 2 - begin));
  const auto wrong = [&] { return error(node.id, "its list of process groups is not understood"); };
  if (!list.is_array()) return wrong();
  for (const auto& each : list) {
    if (!each.is_object()) return wrong();
    const auto name = each.find("pg_name"), ranks = each.find("ranks");
    if (name == each.end() || !name->is_string() || ranks == each.end() || !ranks->is_array()) {
      return wrong();
    }
    std::vector<std::uint32_t> members;
    for (const auto& rank : *ranks) {
      const auto number =
          rank.is_number_unsigned() ? rank.get_ref<const std::uint64_t&>() : ~std::uint64_t{0};
      if (number >= trace_.ranks()) {
        return error(node.id, fmt::format("a process group has a rank that does not exist; ranks "
                                          "are 0 to {}",
                                          trace_.ranks() - 1));
      }
      members.push_back(static_cast<std::uint32_t>(number));
    }
    groups_[name->get_ref<const std::string&>()] = std::move(members);
  }
  return {};
}

bool ChakraReader::follows_control() const {
  if (settings_.control_dependencies != ControlDependencies::automatic) {
    return settings_.control_dependencies == ControlDependencies::order;
  }
  return std::all_of(nodes_.begin(), nodes_.end(), [&](const ChakraNode& node) {
    return std::all_of(node.control_dependencies.begin(), node.control_dependencies.end(),
                       [&](std::uint64_t id) { return place_of_.contains(id); });
  });
}

Result<void> ChakraReader::add_rank(std::uint32_t rank, bool is_of_all) {
  const auto first = static_cast<Trace::Index>(trace_.size());
  for (const ChakraNode& node : nodes_) {
    auto converted = convert({node, rank, is_of_all});
    if (!converted) return converted.error();
    auto added = trace_.add(*converted);
    if (!added) return added.error();
  }
  const bool has_control = follows_control();
  for (const ChakraNode& node : nodes_) {
    if (auto right = add_waits(node, first, has_control); !right) return right.error();
  }
  return {};
}

Result<void> ChakraReader::add_waits(const ChakraNode& node, Trace::Index first, bool has_control) {
  const Trace::Index index = first + place_of_.at(node.id);
  const auto add = [&](const std::vector<std::uint64_t>& ids) -> Result<void> {
    for (const std::uint64_t id : ids) {
      const auto before = place_of_.find(id);
      if (before == place_of_.end()) {
        return error(node.id, fmt::format("waits for node {}, which the file does not have", id));
      }
      if (auto right = trace_.wait(index, first + before->second); !right) return right.error();
    }
    return {};
  };
  if (auto right = add(node.data_dependencies); !right) return right.error();
  return has_control ? add(node.control_dependencies) : Result<void>();
}

// Returns the time of a computation: its duration, or the time of its operations.
Result<Time> ChakraReader::duration_of(const ChakraNode& node) const {
  const double most = Trace::computation_max.to_seconds();
  double seconds = node.duration_us * 1e-6;
  if (node.duration_us == 0 && node.type == ChakraType::computation && node.operations != 0) {
    if (!(settings_.operations_per_second > 0)) {
      return error(node.id, "has num_ops and no duration; give the GPU's operations_per_second");
    }
    seconds = node.operations / settings_.operations_per_second;
  }
  if (!(seconds >= 0 && seconds <= most)) {
    return error(node.id, "its duration is no time up to 50 days, in microseconds");
  }
  return Time::picoseconds(std::llround(seconds * 1e12));
}

Result<Node> ChakraReader::convert(const At& at) {
  Node node;
  node.rank = at.rank;
  node.file = file_;
  node.number = at.node.id;
  const bool communicates = at.node.type == ChakraType::send ||
                            at.node.type == ChakraType::receive ||
                            at.node.type == ChakraType::collective;
  if (at.node.type == ChakraType::invalid || at.node.type == ChakraType::metadata) return node;
  // The host's part of a communication is the call, which the GPU's follows.
  if (!communicates || at.node.is_of_host) {
    auto duration = duration_of(at.node);
    if (!duration) return duration.error();
    if (*duration == Time::zero()) return node;
    node.kind = Node::Kind::computation;
    node.duration = *duration;
    node.processor = at.node.is_of_host ? 1 : 0;
    return node;
  }
  auto right = at.node.type == ChakraType::collective ? convert_collective(at, node)
                                                      : convert_message(at, node);
  if (!right) return right.error();
  return node;
}

Result<void> ChakraReader::convert_message(const At& at, Node& node) const {
  const bool is_send = at.node.type == ChakraType::send;
  const auto own = is_send ? at.node.source : at.node.destination;
  const auto other = is_send ? at.node.destination : at.node.source;
  if (own.value_or(at.rank) != at.rank) {
    if (at.is_of_all) return {};  // another rank does it
    return error(at.node.id, fmt::format("{} is {}, and the file is that of rank {}",
                                         is_send ? "comm_src" : "comm_dst", *own, at.rank));
  }
  if (!other) {
    return error(at.node.id, fmt::format("has no {}", is_send ? "comm_dst" : "comm_src"));
  }
  if (is_send && !at.node.bytes) return error(at.node.id, "has no comm_size");
  node.kind = is_send ? Node::Kind::send : Node::Kind::receive;
  node.peer = static_cast<std::uint32_t>(std::min<std::uint64_t>(*other, 0xFFFF'FFFF));
  node.bytes = is_send ? *at.node.bytes : 0;
  node.tag = at.node.tag.value_or(0);
  return {};
}

Result<std::uint32_t> ChakraReader::group_of(const At& at) {
  if (at.node.leaves_dimension_out && !groups_.contains(at.node.group)) {
    return error(at.node.id, "involved_dim leaves a dimension out; name the ranks by a pg_name");
  }
  const auto known = group_numbers_.find(at.node.group);
  auto number =
      known != group_numbers_.end() ? Result<std::uint32_t>(known->second) : find_group(at.node);
  if (!number) return number.error();
  group_numbers_.emplace(at.node.group, *number);
  const std::vector<std::uint32_t>& members = trace_.group(*number);
  if (std::binary_search(members.begin(), members.end(), at.rank)) return *number;
  return error(at.node.id, fmt::format("rank {} is not in the group {}", at.rank,
                                       tulle::quoted(at.node.group)));
}

// Adds the group of a collective. Without a name, and for "0" unless it is described, it is all
// ranks, as in ASTRA-sim.
Result<std::uint32_t> ChakraReader::find_group(const ChakraNode& node) {
  const auto known = groups_.find(node.group);
  std::vector<std::uint32_t> members;
  if (known != groups_.end()) {
    members = known->second;
  } else if (!node.group.empty() && node.group != "0") {
    return error(node.id, fmt::format("nothing describes the group {}; name a file of groups",
                                      tulle::quoted(node.group)));
  }
  if (members.empty()) {
    members.resize(trace_.ranks());
    std::iota(members.begin(), members.end(), 0u);
  }
  auto number = trace_.add_group(std::move(members));
  if (!number) return error(node.id, number.error().message);
  return *number;
}

// Chakra counts the bytes that each rank has at first (ASTRA-sim's Ring), and CollectiveSettings
// the larger buffer: for an all-gather these are all ranks' bytes.
Result<void> ChakraReader::convert_collective(const At& at, Node& node) {
  auto group = group_of(at);
  if (!group) return group.error();
  node.kind = Node::Kind::collective;
  node.group = *group;
  const std::size_t ranks = trace_.group(*group).size();
  if (ranks == 1) return {};  // it is over at once, whatever it is
  if (!at.node.collective) return error(at.node.id, "has no comm_type");
  const std::uint64_t type = *at.node.collective;
  if (type != static_cast<std::uint64_t>(ChakraCollective::barrier) && !at.node.bytes) {
    return error(at.node.id, "has no comm_size");
  }
  node.bytes = at.node.bytes.value_or(0);
  if (node.bytes > Node::bytes_max) {
    return error(at.node.id, fmt::format("{} bytes are too many: 16 TiB at most", node.bytes));
  }
  switch (static_cast<ChakraCollective>(std::min<std::uint64_t>(type, 255))) {
    case ChakraCollective::all_reduce:
    case ChakraCollective::barrier:
      node.collective = Collective::all_reduce;
      return {};
    case ChakraCollective::all_gather:
      node.collective = Collective::all_gather;
      if (node.bytes > Node::bytes_max / ranks) {
        return error(at.node.id, fmt::format("{} bytes of each of {} ranks are too many: 16 TiB "
                                             "together at most",
                                             node.bytes, ranks));
      }
      node.bytes *= ranks;
      return {};
    case ChakraCollective::broadcast:
      node.collective = Collective::broadcast;
      return {};
    case ChakraCollective::all_to_all:
      node.collective = Collective::all_to_all;
      return {};
    case ChakraCollective::reduce_scatter:
    case ChakraCollective::reduce_scatter_block:
      node.collective = Collective::reduce_scatter;
      return {};
    default:
      return error(at.node.id, fmt::format("comm_type {} is not simulated; there are 0 "
                                           "(all-reduce), 2 (all-gather), 5 (broadcast), 6 "
                                           "(all-to-all), 7 and 8 (reduce-scatter) and 9 (barrier)",
                                           type));
  }
}

}  // namespace

Result<Trace> read_chakra(std::span<const File> files, const Settings& settings) {
  const bool is_of_all = !files[0].rank.has_value();
  const std::uint64_t ranks = is_of_all ? settings.servers.ranks() : files.size();
  const std::string place = one_line(files[0].name);
  if (is_of_all && files.size() > 1) return Error{place + ": each of several files is of one rank"};
  if (auto right = check_ranks(place, ranks, settings); !right) return right.error();
  std::vector<const File*> by_rank(files.size());
  for (const File& file : files) {
    const std::uint64_t rank = file.rank.value_or(0);
    if (rank >= files.size() || by_rank[rank] != nullptr) {
      return Error{
          fmt::format("{}: it is the trace of rank {}, and with {} files there are ranks "
                      "0 to {}, once each",
                      one_line(file.name), rank, files.size(), files.size() - 1)};
    }
    by_rank[rank] = &file;
  }
  ChakraReader reader(settings, static_cast<std::uint32_t>(ranks));
  for (const File* file : by_rank) {
    if (auto right = reader.read_file(*file); !right) return right.error();
  }
  return reader.take();
}

}  // namespace tulle::traces

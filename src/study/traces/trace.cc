#include "study/traces/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/quoted.h"
#include "study/traces/expansion.h"
#include "study/traces/matching.h"
#include "study/traces/order.h"

namespace tulle::traces {

std::uint32_t Trace::add_file(std::string_view name, Numbers numbers) {
  files_.push_back({one_line(name), numbers});
  return static_cast<std::uint32_t>(files_.size() - 1);
}

Result<std::uint32_t> Trace::add_group(std::vector<std::uint32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  if (ranks.empty()) return Error{"a group has no ranks"};
  if (ranks.back() >= ranks_) {
    return Error{fmt::format("a group has rank {}, and ranks are 0 to {}", ranks.back(),
                             std::int64_t{ranks_} - 1)};
  }
  if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) {
    return Error{"a group has a rank twice"};
  }
  const auto known = group_numbers_.find(ranks);
  if (known != group_numbers_.end()) return known->second;
  // Channels of collectives are numbered by group (study/traces/expansion.cc).
  constexpr std::size_t groups_max = 1u << 19;
  if (groups_.size() == groups_max || ranks.size() > limits_.members - members_) {
    return Error{
        fmt::format("more than {} groups, or {} ranks in them", groups_max, limits_.members)};
  }
  members_ += ranks.size();
  const auto number = static_cast<std::uint32_t>(groups_.size());
  groups_.push_back(&group_numbers_.emplace(std::move(ranks), number).first->first);
  return number;
}

Result<Trace::Index> Trace::add(const Node& node) {
  const auto wrong = [&](std::string_view fault) { return error(node.file, node.number, fault); };
  TULLE_CHECK(node.rank < ranks_);
  if (nodes_.size() == limits_.nodes) {
    return wrong(fmt::format("a trace has at most {} nodes, all ranks together", limits_.nodes));
  }
  if (node.kind == Node::Kind::send || node.kind == Node::Kind::receive) {
    if (node.peer >= ranks_) {
      return wrong(fmt::format("there is no rank {}; ranks are 0 to {}", node.peer, ranks_ - 1));
    }
    if (node.peer == node.rank) {
      return wrong(fmt::format("rank {} sends to itself; leave the message out", node.rank));
    }
  }
  if (node.bytes > Node::bytes_max) {
    return wrong(fmt::format("{} bytes are too many: 16 TiB at most", node.bytes));
  }
  if (node.duration < Time::zero() || node.duration > computation_max - computation_) {
    return wrong("the computations of all ranks together last more than 50 days");
  }
  computation_ += node.duration;
  nodes_.push_back(node);
  return static_cast<Index>(nodes_.size() - 1);
}

Result<void> Trace::wait(Index node, Index before) { return add_dependency({node, before, false}); }

Result<void> Trace::wait_for_start(Index node, Index before) {
  return add_dependency({node, before, true});
}

Result<void> Trace::add_dependency(const Dependency& dependency) {
  TULLE_CHECK(dependency.node < nodes_.size() && dependency.before < nodes_.size());
  if (dependencies_.size() == limits_.dependencies) {
    return error(dependency.node,
                 fmt::format("a trace has at most {} dependencies", limits_.dependencies));
  }
  dependencies_.push_back(dependency);
  return {};
}

Error Trace::error(std::uint32_t file, std::uint64_t number, std::string_view fault) const {
  return {fmt::format("{}: {}", place(file, number), fault)};
}

std::string Trace::place(std::uint32_t file, std::uint64_t number) const {
  const File& at = files_[file];
  if (at.numbers == Numbers::lines) return fmt::format("{}:{}", at.name, number);
  return fmt::format("{}: node {}", at.name, number);
}

Result<workload::TaskGraph> Trace::build(const workload::Servers& servers) const {
  TULLE_CHECK(servers.ranks() >= ranks_);
  Matching matching(*this);
  if (auto right = matching.match(); !right) return right.error();
  Order order(*this, matching);
  if (auto right = order.sort(); !right) return right.error();
  return Expansion(*this, matching, order, servers).expand();
}

}  // namespace tulle::traces

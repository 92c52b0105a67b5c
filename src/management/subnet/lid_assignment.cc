#include "management/subnet/lid_assignment.h"

#include <algorithm>
#include <array>
#include <set>

#include "rdma/wire/lrh.h"

namespace tulle::management::subnet {
namespace {

// Returns the LIDs that all ports take together, with those that alignment leaves unused.
std::uint64_t lids_of_all(const Graph& graph, unsigned lmc) {
  std::uint64_t lids = (std::uint64_t{1} << lmc) * 2;
  for (const GraphNode& node : graph.nodes) {
    lids += node.is_switch() ? 1 : std::uint64_t{1} << lmc;
  }
  return lids;
}

std::uint32_t count_of(const GraphNode& node) { return 1u << node.lmc; }

}  // namespace

bool LidAssignment::is_free(std::uint32_t lid, std::uint32_t count) const {
  if (lid == 0 || lid % count != 0 || lid + count - 1 > wire::unicast_lid_max) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (is_taken_[lid + i]) return false;
  }
  return true;
}

bool LidAssignment::claim(GraphNode& node, std::uint32_t lid) {
  const std::uint32_t count = count_of(node);
  if (!is_free(lid, count)) return false;
  for (std::uint32_t i = 0; i < count; ++i) is_taken_[lid + i] = true;
  top_ = std::max(top_, static_cast<std::uint16_t>(lid + count - 1));
  node.lid = static_cast<std::uint16_t>(lid);
  return true;
}

std::uint32_t LidAssignment::first_free(std::uint32_t count, std::uint32_t from) const {
  for (std::uint32_t lid = from; lid + count - 1 <= wire::unicast_lid_max; lid += count) {
    if (is_free(lid, count)) return lid;
  }
  return 0;
}

std::uint32_t LidAssignment::assign(Graph& graph, unsigned lmc) {
  while (lmc > 0 && lids_of_all(graph, lmc) > wire::unicast_lid_max) --lmc;
  for (GraphNode& node : graph.nodes) {
    node.lid = 0;
    node.lmc = static_cast<std::uint8_t>(node.is_switch() ? 0 : lmc);
  }
  is_taken_.assign(std::size_t{wire::unicast_lid_max} + 1, false);
  top_ = 0;
  if (remembered_.size() > remembered_max) forget_absent(graph);
  keep(graph);
  const std::vector<bool> kept = is_taken_;
  reserve_remembered();
  std::uint32_t without = give_new(graph);
  if (without > 0) {
    forget_absent(graph);
    is_taken_ = kept;
    for (const GraphNode& node : graph.nodes) {
      for (std::uint32_t i = 0; node.lid != 0 && i < count_of(node); ++i) {
        is_taken_[node.lid + i] = true;
      }
    }
    without = give_new(graph);
  }
  for (const GraphNode& node : graph.nodes) {
    if (node.lid != 0) remembered_[node.port_guid()] = node.lid;
  }
  return without;
}

// First come the ports that still have the LID that they were given, then those that have any, then
// those that had one.
void LidAssignment::keep(Graph& graph) {
  for (const int turn : {0, 1, 2}) {
    for (GraphNode& node : graph.nodes) {
      const auto found = remembered_.find(node.port_guid());
      const std::uint16_t before = found == remembered_.end() ? 0 : found->second;
      const std::uint16_t now = node.end_port().info.lid;
      const bool waits = node.lid != 0 || !node.end_port().is_known;
      if (waits || (turn == 0 && now != before)) continue;
      claim(node, turn == 2 ? before : now);
    }
  }
}

// Keeps new ports from the LIDs of ports that have gone, and may come back.
void LidAssignment::reserve_remembered() {
  for (const auto& [guid, lid] : remembered_) is_taken_[lid] = true;
}

std::uint32_t LidAssignment::give_new(Graph& graph) {
  std::uint32_t without = 0;
  std::array<std::uint32_t, 8> from{};  // by LMC: there is no free LID before this one
  for (GraphNode& node : graph.nodes) {
    if (node.lid != 0 || !node.end_port().is_known) continue;
    std::uint32_t& first = from[node.lmc];
    const std::uint32_t lid = first_free(count_of(node), std::max(first, count_of(node)));
    if (lid == 0) {
      ++without;
      continue;
    }
    first = lid;
    claim(node, lid);
  }
  return without;
}

void LidAssignment::forget_absent(const Graph& graph) {
  std::set<std::uint64_t> here;
  for (const GraphNode& node : graph.nodes) here.insert(node.port_guid());
  std::erase_if(remembered_, [&](const auto& each) { return !here.contains(each.first); });
}

}  // namespace tulle::management::subnet

#include "fabric/aggregation.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

#include "fabric/route_finders.h"

namespace tulle::fabric {
namespace {

constexpr std::uint32_t none = AggregationTree::none;

// A port to be added: where, and of which rate.
struct NewPort {
  std::uint32_t switch_node = 0;
  std::int64_t bits_per_second = 0;
};

// Plans trees on a topology to which no port was added yet.
class TreePlanner {
 public:
  explicit TreePlanner(const Topology& topology)
      : topology_(topology), graph_(topology), leaf_of_(topology.hosts, none) {
    host_rate_.resize(topology.hosts);
    for (const Link& link : topology.links) {
      const bool a_is_host = topology.is_host(link.a), b_is_host = topology.is_host(link.b);
      if (a_is_host == b_is_host) {
        if (!a_is_host) note_rate(link);
        continue;
      }
      const std::uint32_t host = std::min(link.a, link.b);
      leaf_of_[host] = std::max(link.a, link.b) - topology.hosts;
      host_rate_[host] = link.bits_per_second;
    }
  }

  Result<AggregationTree> plan(std::span<const std::uint32_t> hosts, std::uint32_t number);
  const std::vector<NewPort>& ports() const { return ports_; }

 private:
  // The rate between two switches is that of all links between them.
  void note_rate(const Link& link) { rate_[key(link.a, link.b)] += link.bits_per_second; }
  static std::pair<std::uint32_t, std::uint32_t> key(std::uint32_t a, std::uint32_t b) {
    return {std::min(a, b), std::max(a, b)};
  }
  std::uint32_t root(std::span<const std::uint32_t> leaves, std::uint32_t number) const;
  std::uint32_t add_port(std::uint32_t switch_node, std::int64_t bits_per_second) {
    ports_.push_back({switch_node, bits_per_second});
    return topology_.hosts + static_cast<std::uint32_t>(ports_.size()) - 1;
  }
  std::uint32_t add_node(AggregationTree& tree, std::uint32_t at, std::uint32_t parent);

  const Topology& topology_;
  SwitchGraph graph_;                   // switches from 0 on
  std::vector<std::uint32_t> leaf_of_;  // by host: its switch; none: it has no link
  std::vector<std::int64_t> host_rate_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> rate_;  // between switches
  std::vector<NewPort> ports_;
};

// Returns `none` if no switch reaches all leaves.
std::uint32_t TreePlanner::root(std::span<const std::uint32_t> leaves, std::uint32_t number) const {
  std::vector<std::uint32_t> farthest(graph_.size());
  for (const std::uint32_t leaf : leaves) {
    const std::vector<std::uint32_t> distance = graph_.distances(std::span(&leaf, 1));
    for (std::uint32_t node = 0; node < graph_.size(); ++node) {
      farthest[node] = std::max(farthest[node], distance[node]);
    }
  }
  const std::uint32_t least = *std::ranges::min_element(farthest);
  if (least == SwitchGraph::unreachable) return none;
  std::vector<std::uint32_t> roots;
  for (std::uint32_t node = 0; node < graph_.size(); ++node) {
    if (farthest[node] == least) roots.push_back(node);
  }
  return roots[number % roots.size()];
}

std::uint32_t TreePlanner::add_node(AggregationTree& tree, std::uint32_t at, std::uint32_t parent) {
  AggregationTree::Node node;
  node.switch_node = at + topology_.hosts;
  node.parent = parent;
  if (parent != none) {
    const std::uint32_t above = tree.nodes[parent].switch_node;
    const std::int64_t rate = rate_.at(key(node.switch_node, above));
    node.up_port = add_port(node.switch_node, rate);
    node.parent_port = add_port(above, rate);
  }
  tree.nodes.push_back(std::move(node));
  return static_cast<std::uint32_t>(tree.nodes.size()) - 1;
}

Result<AggregationTree> TreePlanner::plan(std::span<const std::uint32_t> hosts,
                                          std::uint32_t number) {
  std::vector<std::uint32_t> leaves;
  for (const std::uint32_t host : hosts) {
    if (leaf_of_[host] == none) {
      return Error{"host " + std::to_string(host) + " is at no switch, which could reduce"};
    }
    leaves.push_back(leaf_of_[host]);
  }
  std::ranges::sort(leaves);
  leaves.erase(std::unique(leaves.begin(), leaves.end()), leaves.end());
  const std::uint32_t top = root(leaves, number);
  if (top == none) return Error{"no switch reaches all hosts"};
  const std::vector<std::uint32_t> distance = graph_.distances(std::span(&top, 1));
  AggregationTree tree;
  std::vector<std::uint32_t> place(graph_.size(), none);  // by switch: its node
  place[top] = add_node(tree, top, none);
  for (const std::uint32_t leaf : leaves) {
    // From the leaf up to a switch that is on the tree, hop by hop.
    std::vector<std::uint32_t> way;
    std::uint32_t at = leaf;
    while (place[at] == none) {
      way.push_back(at);
      std::vector<std::uint32_t> closer;
      for (const SwitchGraph::Edge& edge : graph_.edges(at)) {
        if (distance[edge.to] + 1 == distance[at]) closer.push_back(edge.to);
      }
      at = closer[number % closer.size()];
    }
    for (std::size_t i = way.size(); i-- > 0;) {
      place[way[i]] = add_node(tree, way[i], place[at]);
      at = way[i];
    }
  }
  for (const std::uint32_t host : hosts) {
    AggregationTree::Node& node = tree.nodes[place[leaf_of_[host]]];
    node.members.push_back({host, add_port(node.switch_node, host_rate_[host])});
  }
  return tree;
}

// Makes room for hosts behind those that are there.
void shift_switches(Topology& topology, std::uint32_t by) {
  const std::uint32_t first = topology.hosts;
  for (Link& link : topology.links) {
    if (link.a >= first) link.a += by;
    if (link.b >= first) link.b += by;
  }
  topology.ports.insert(topology.ports.begin() + first, by, 0);
  topology.hosts += by;
  topology.aggregation_ports += by;
  if (auto* tiers = std::get_if<Tiers>(&topology.shape)) {
    for (Tiers::Tier& tier : tiers->tiers) tier.first += by;
  }
}

}  // namespace

Result<std::vector<AggregationTree>> add_aggregation_trees(
    Topology& topology, std::span<const std::vector<std::uint32_t>> groups, Time delay) {
  TreePlanner planner(topology);
  std::vector<AggregationTree> trees;
  for (const std::vector<std::uint32_t>& hosts : groups) {
    auto tree = planner.plan(hosts, static_cast<std::uint32_t>(trees.size()));
    if (!tree) return tree.error();
    trees.push_back(std::move(*tree));
  }
  const auto count = static_cast<std::uint32_t>(planner.ports().size());
  if (topology.nodes() + std::uint64_t{count} > max_nodes) {
    return Error{"the trees need " + std::to_string(count) +
                 " ports, more nodes than there can be"};
  }
  const std::uint32_t first = topology.hosts;
  shift_switches(topology, count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const NewPort& port = planner.ports()[i];
    const std::uint32_t at = port.switch_node + count;
    if (topology.ports[at] >= max_switch_ports) {
      return Error{topology.name(at) + " has no more ports for the trees"};
    }
    const auto at_port = static_cast<std::uint16_t>(topology.ports[at]++);
    topology.ports[first + i] = 1;
    topology.links.push_back({first + i, at, 0, at_port, port.bits_per_second, delay});
  }
  for (AggregationTree& tree : trees) {
    for (AggregationTree::Node& node : tree.nodes) node.switch_node += count;
  }
  return trees;
}

}  // namespace tulle::fabric

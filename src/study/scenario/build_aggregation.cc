// Switches that reduce what hosts send.

#include "fabric/aggregation.h"

#include <algorithm>
#include <vector>

#include "rdma/optional/transports.h"
#include "rdma/transport/transport.h"
#include "study/scenario/build.h"
#include "study/workload/collectives.h"

namespace tulle::scenario {
namespace {

// Returns why the fabric has no switches that reduce; empty if it has.
std::string_view missing(const Setup& setup) {
  const transport::Transport& transport = *transport::all_transports().find(setup.player.transport);
  if (transport.is_datagram || !transport.sends.has(verbs::SendOpcode::write_with_immediate)) {
    return "needs switches that reduce what reliable connections bring, and no other "
           "host.transport; take another algorithm";
  }
  if (!setup.switches_reduce) {
    return "needs switches that reduce, which this fabric has not; take a fabric with "
           "fabric.aggregation, such as infiniband, or another algorithm";
  }
  if (setup.topology.planes > 1) {
    return "goes with one plane, since the parts of a message go by several; take another "
           "algorithm";
  }
  if (!setup.network.pkeys.empty()) {
    return "goes without partitions, since aggregation nodes belong to none";
  }
  return "";
}

// Each adapter of a server has a tree with the adapters of its number in all servers.
std::vector<std::vector<std::uint32_t>> groups_of(const workload::Servers& servers) {
  std::vector<std::vector<std::uint32_t>> groups(servers.adapters);
  for (std::uint32_t host = 0; host < servers.servers * servers.adapters; ++host) {
    groups[host % servers.adapters].push_back(host);
  }
  return groups;
}

workload::AggregationNode node_of(const fabric::AggregationTree::Node& planned,
                                  std::uint32_t first) {
  workload::AggregationNode node;
  if (planned.parent != fabric::AggregationTree::none) node.parent = first + planned.parent;
  node.up_port = planned.up_port;
  node.parent_port = planned.parent_port;
  for (const auto& member : planned.members) node.members.push_back({member.host, member.port});
  return node;
}

}  // namespace

void build_aggregation(TableReader traffic, const std::string& folder, Setup& setup) {
  const std::string_view wanted = workload::name_of(workload::Algorithm::in_network);
  if (!traffic.is_given() || traffic.text("pattern", "") != "collective" ||
      traffic.text("algorithm", "") != wanted) {
    return;
  }
  const workload::Servers servers = read_servers(traffic, folder, setup.topology);
  if (traffic.findings().any() || servers.servers < 2) return;
  const std::string_view lacks = missing(setup);
  if (!lacks.empty()) return traffic.wrong("algorithm", lacks);
  // A quarter of the latency is in each of the two links inside of the switch, and in each of the
  // two ways between a node and its ports.
  workload::Aggregation& aggregation = setup.aggregation;
  constexpr Time least = Time::nanoseconds(1);
  Time delay{std::max(aggregation.latency.ps / 4, least.ps)};
  for (const fabric::Link& link : setup.topology.links) delay = std::min(delay, link.delay);
  delay = std::max(delay, least);
  aggregation.latency = Time{std::max<std::int64_t>(aggregation.latency.ps - 2 * delay.ps, 0)};
  auto trees = fabric::add_aggregation_trees(setup.topology, groups_of(servers), delay);
  if (!trees) return traffic.wrong("algorithm", trees.error().message);
  for (const fabric::AggregationTree& tree : *trees) {
    const std::uint32_t first = aggregation.nodes();
    aggregation.first_node.push_back(first);
    for (const auto& node : tree.nodes) aggregation.node.push_back(node_of(node, first));
  }
  aggregation.first_node.push_back(aggregation.nodes());
  setup.player.adapters = setup.topology.adapters();
}

}  // namespace tulle::scenario

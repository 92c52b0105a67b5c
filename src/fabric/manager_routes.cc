#include "fabric/manager_routes.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "fabric/topology.h"
#include "management/subnet/plan.h"

namespace tulle::fabric {
namespace {

using management::subnet::Graph;
using management::subnet::GraphNode;
using management::subnet::GraphPort;

constexpr std::uint8_t leads_nowhere = management::subnet::KnownTables::no_port;

class ManagerRoutes {
 public:
  explicit ManagerRoutes(Graph& graph) : graph_(graph), number_(graph.nodes.size()) {
    for (const bool switches : {false, true}) {
      for (std::uint32_t node = 0; node < graph.nodes.size(); ++node) {
        if (graph.nodes[node].is_switch() != switches) continue;
        number_[node] = static_cast<std::uint32_t>(nodes_.size());
        nodes_.push_back(node);
        (switches ? topology_.switches : topology_.hosts) += 1;
      }
    }
  }

  void write() {
    if (topology_.switches == 0) return;
    add_links();
    if (topology_.hosts > 0) write_routes_to_adapters();
    for (const std::uint32_t node : nodes_) fill_by_shortest_paths(node);
  }

 private:
  void add_links() {
    topology_.shape = Tiers{};
    for (const std::uint32_t node : nodes_) {
      const GraphNode& each = graph_.nodes[node];
      topology_.ports.push_back(each.is_switch() ? each.info.ports : 1u);
    }
    for (const std::uint32_t node : nodes_) {
      const GraphNode& each = graph_.nodes[node];
      for (std::size_t place = each.first_link(); place < each.ports.size(); ++place) {
        add_link(node, place);
      }
    }
  }

  void add_link(std::uint32_t node, std::size_t place) {
    const GraphPort& port = graph_.nodes[node].ports[place];
    if (!port.has_peer() || port.peer == node) return;
    const std::uint32_t a = number_[node], b = number_[port.peer];
    // Each link is seen from both ends, and two adapters have no switch between them.
    if (a > b || b < topology_.hosts) return;
    Link link;
    link.a = a;
    link.b = b;
    link.a_port = port_number(node, graph_.nodes[node].number(place));
    link.b_port = port_number(port.peer, port.peer_port);
    topology_.links.push_back(link);
  }

  // Ports of a topology are counted from 0, and each adapter there has one.
  std::uint16_t port_number(std::uint32_t node, std::uint8_t port) const {
    return graph_.nodes[node].is_switch() ? static_cast<std::uint16_t>(port - 1) : std::uint16_t{0};
  }

  Result<Routes> routes() const {
    auto tree = compute_routes(topology_, {.kind = RoutingKind::fat_tree, .partial = true});
    if (tree && reaches_all(*tree)) return tree;
    return compute_routes(topology_, {.kind = RoutingKind::up_down, .partial = true});
  }

  // True if each leaf has a route to each adapter. Links that are cut may leave a tree without.
  bool reaches_all(const Routes& routes) const {
    for (std::uint32_t leaf = 0; leaf < routes.leaves(); ++leaf) {
      for (std::uint32_t host = 0; host < topology_.hosts; ++host) {
        if (routes.port(routes.leaf_node(leaf), host) == Routes::no_port) return false;
      }
    }
    return true;
  }

  void write_routes_to_adapters() {
    auto found = routes();
    if (!found) return;
    for (std::uint32_t number = topology_.hosts; number < topology_.nodes(); ++number) {
      auto& table = graph_.nodes[nodes_[number]].linear;
      for (std::uint32_t host = 0; host < topology_.hosts; ++host) {
        const GraphNode& to = graph_.nodes[nodes_[host]];
        for (std::uint32_t path = 0; to.lid != 0 && path < 1u << to.lmc; ++path) {
          const std::uint16_t port = found->port(number, host, path);
          if (port == Routes::no_port) continue;
          table[to.lid + path] = static_cast<std::uint8_t>(port + 1);
        }
      }
    }
  }

  // Leads the switches to a node by shortest paths, where they have no route to it. The search goes
  // from the node outwards.
  void fill_by_shortest_paths(std::uint32_t to) {
    const GraphNode& target = graph_.nodes[to];
    if (target.lid == 0 || has_all_routes(target)) return;
    std::vector<bool> is_seen(graph_.nodes.size());
    std::vector<std::uint32_t> queue = {to};
    is_seen[to] = true;
    for (std::size_t next = 0; next < queue.size(); ++next) {
      const GraphNode& from = graph_.nodes[queue[next]];
      if (!from.is_switch() && queue[next] != to) continue;
      for (std::size_t place = from.first_link(); place < from.ports.size(); ++place) {
        const GraphPort& port = from.ports[place];
        if (!port.has_peer() || is_seen[port.peer]) continue;
        is_seen[port.peer] = true;
        queue.push_back(port.peer);
        GraphNode& peer = graph_.nodes[port.peer];
        for (std::uint32_t path = 0; peer.is_switch() && path < 1u << target.lmc; ++path) {
          std::uint8_t& entry = peer.linear[target.lid + path];
          if (entry == leads_nowhere) entry = port.peer_port;
        }
      }
    }
  }

  bool has_all_routes(const GraphNode& target) const {
    return std::all_of(nodes_.begin() + topology_.hosts, nodes_.end(), [&](std::uint32_t node) {
      return graph_.nodes[node].linear[target.lid] != leads_nowhere;
    });
  }

  Graph& graph_;
  Topology topology_;
  std::vector<std::uint32_t> number_;  // by node of the graph: its number in the topology
  std::vector<std::uint32_t> nodes_;   // by number: the node of the graph
};

}  // namespace

void route_subnet(Graph& graph) { ManagerRoutes(graph).write(); }

}  // namespace tulle::fabric

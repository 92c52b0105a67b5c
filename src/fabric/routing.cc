#include "fabric/routing.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "fabric/route_finders.h"

namespace tulle::fabric {
namespace {

struct KindName {
  RoutingKind kind;
  std::string_view name;
};
constexpr std::array kind_names = {
    KindName{RoutingKind::shortest, "shortest"},
    KindName{RoutingKind::up_down, "up_down"},
    KindName{RoutingKind::fat_tree, "fat_tree"},
    KindName{RoutingKind::dimension_ordered, "dimension_ordered"},
    KindName{RoutingKind::dragonfly_minimal, "dragonfly_minimal"},
};

template <typename Number>
std::uint64_t hash_of(std::span<const Number> numbers) {
  std::uint64_t hash = 0;
  for (const Number number : numbers) hash = (hash ^ number) * 0x9E37'79B9'7F4A'7C15;
  return hash ^ (hash >> 32);
}

struct PortsHash {
  std::size_t operator()(const std::vector<std::uint16_t>& ports) const {
    return hash_of(std::span<const std::uint16_t>(ports));
  }
};

}  // namespace

std::string_view to_string(RoutingKind kind) {
  return kind_names[static_cast<std::size_t>(kind)].name;
}

std::optional<RoutingKind> routing_kind(std::string_view name) {
  for (const KindName& known : kind_names) {
    if (known.name == name) return known.kind;
  }
  return std::nullopt;
}

std::vector<std::uint16_t> Routes::forwarding_table(std::uint32_t switch_node, unsigned lmc) const {
  std::vector<std::uint16_t> table;
  table.reserve(static_cast<std::size_t>(hosts_) << lmc);
  for (std::uint32_t host = 0; host < hosts_; ++host) {
    for (std::uint32_t path = 0; path < 1u << lmc; ++path) {
      table.push_back(port(switch_node, host, path));
    }
  }
  return table;
}

std::size_t Routes::bytes() const {
  const auto of = [](const auto& vector) { return vector.capacity() * sizeof(vector[0]); };
  return of(destinations_) + of(leaf_nodes_) + of(divisors_) + of(block_at_) + of(set_at_) +
         of(sets_) + of(every_port_);
}

// Routes under construction.
class RouteTable {
 public:
  RouteTable(const Topology& topology, const RoutingSettings& settings)
      : topology_(topology), settings_(settings), graph_(topology) {
    routes_.kind_ = settings.kind;
    routes_.hosts_ = topology.hosts;
  }

  Result<Routes> compute() {
    if (auto ok = plug_in_hosts(); !ok) return ok.error();
    set_divisors();
    if (auto ok = find_routes(); !ok) return ok.error();
    routes_.set_at_.shrink_to_fit();
    routes_.sets_.shrink_to_fit();
    return std::move(routes_);
  }

 private:
  static constexpr std::uint32_t block_leaves = Routes::block_leaves;

  Error error(const std::string& what) const {
    return Error{std::string(to_string(settings_.kind)) + " routing: " + what};
  }

  // Finds the leaves and the hosts' places at them.
  Result<void> plug_in_hosts() {
    std::vector<std::uint32_t> leaf_of_switch(topology_.switches);
    const std::vector<bool> has_ports = with_aggregation_ports();
    for (std::uint32_t node = topology_.hosts; node < topology_.nodes(); ++node) {
      const bool is_leaf = graph_.level(node - topology_.hosts) == 0;
      if (!is_leaf && !has_ports[node - topology_.hosts]) continue;
      leaf_of_switch[node - topology_.hosts] = routes_.leaves_++;
      routes_.leaf_nodes_.push_back(node);
    }
    std::uint32_t columns = routes_.leaves_;
    auto& destinations = routes_.destinations_;
    destinations.resize(topology_.hosts);
    const auto plug_in = [&](std::uint32_t host, std::uint32_t to, std::uint16_t port) {
      if (!topology_.is_host(host) || topology_.is_host(to)) return;
      destinations[host].leaf = leaf_of_switch[to - topology_.hosts];
      destinations[host].leaf_node = to;
      destinations[host].leaf_port = port;
    };
    for (const Link& link : topology_.links) {
      plug_in(link.a, link.b, link.b_port);
      plug_in(link.b, link.a, link.a_port);
    }
    for (std::uint32_t host = 0; host < topology_.hosts; ++host) {
      if (destinations[host].leaf_node != Routes::no_node) continue;
      if (!settings_.partial && topology_.switches > 0) {
        return error("host " + std::to_string(host) + " has no link; give it one to a switch");
      }
      destinations[host].leaf = routes_.leaves_;
      columns = routes_.leaves_ + 1;
    }
    routes_.blocks_ = (columns + block_leaves - 1) / block_leaves;
    order_hosts();
    list_ports();
    find_networks();
    return {};
  }

  // Returns, by switch, which have ports of aggregation nodes.
  std::vector<bool> with_aggregation_ports() const {
    std::vector<bool> has_ports(topology_.switches);
    for (const Link& link : topology_.links) {
      const std::uint32_t port = std::min(link.a, link.b);
      if (!topology_.is_host(port) || topology_.is_adapter(port)) continue;
      has_ports[std::max(link.a, link.b) - topology_.hosts] = true;
    }
    return has_ports;
  }

  void find_networks() {
    if (topology_.networks == 1) return;
    network_.resize(topology_.switches);
    for (std::uint32_t host = 0; host < topology_.adapters(); ++host) {
      const std::uint32_t leaf = routes_.destinations_[host].leaf_node;
      if (leaf == Routes::no_node) continue;
      network_[leaf - topology_.hosts] = host % topology_.networks;
    }
  }

  void order_hosts() {
    auto& destinations = routes_.destinations_;
    std::vector<std::uint32_t> hosts(topology_.hosts);
    std::iota(hosts.begin(), hosts.end(), 0);
    std::stable_sort(hosts.begin(), hosts.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(destinations[a].leaf, destinations[a].leaf_port) <
             std::pair(destinations[b].leaf, destinations[b].leaf_port);
    });
    for (std::uint32_t i = 0; i < hosts.size(); ++i) destinations[hosts[i]].order = i;
  }

  void list_ports() {
    std::uint32_t most = 0;
    for (const std::uint32_t ports : topology_.ports) most = std::max(most, ports);
    routes_.every_port_.resize(most);
    std::iota(routes_.every_port_.begin(), routes_.every_port_.end(), std::uint16_t{0});
  }

  void set_divisors() {
    constexpr std::uint32_t most = 1u << 30;
    // The most uplinks of a switch, by level.
    std::vector<std::uint32_t> uplinks(graph_.top_level() + 2, 1);
    for (std::uint32_t node = 0; node < graph_.size(); ++node) {
      if (graph_.level(node) == SwitchGraph::unreachable) continue;
      std::uint32_t& most_uplinks = uplinks[graph_.level(node)];
      std::uint32_t count = 0;
      for (const SwitchGraph::Edge& edge : graph_.edges(node)) {
        count += graph_.level(edge.to) > graph_.level(node);
      }
      most_uplinks = std::max(most_uplinks, count);
    }
    std::vector<std::uint32_t> divisor = {1};  // by level
    for (const std::uint32_t count : uplinks) {
      const std::uint64_t next = std::uint64_t{divisor.back()} * count;
      divisor.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(next, most)));
    }
    for (std::uint32_t node = 0; node < graph_.size(); ++node) {
      const std::uint32_t level = graph_.level(node);
      if (level == SwitchGraph::unreachable) {
        routes_.divisors_.push_back({});
      } else {
        routes_.divisors_.push_back({divisor[level], divisor[level == 0 ? 0 : level - 1]});
      }
    }
  }

  Result<void> find_routes() {
    switch (settings_.kind) {
      case RoutingKind::shortest:
        return fill(ShortestFinder(topology_, graph_));
      case RoutingKind::up_down:
        return find_up_down();
      case RoutingKind::fat_tree:
        return find_fat_tree();
      case RoutingKind::dimension_ordered: {
        const auto* shape = std::get_if<TorusShape>(&topology_.shape);
        if (shape == nullptr) return error("the topology is no torus; take shortest or up_down");
        return fill(DimensionOrderedFinder(graph_, *shape));
      }
      case RoutingKind::dragonfly_minimal: {
        const auto* shape = std::get_if<DragonflyShape>(&topology_.shape);
        if (shape == nullptr)
          return error("the topology is no dragonfly; take shortest or up_down");
        return fill(DragonflyFinder(graph_, *shape));
      }
    }
    return error("no such kind");
  }

  std::vector<std::uint32_t> top_switches() const {
    std::vector<std::uint32_t> top;
    for (std::uint32_t node = 0; node < graph_.size(); ++node) {
      if (graph_.level(node) == graph_.top_level()) top.push_back(node);
    }
    return top;
  }

  Result<void> find_up_down() {
    if (graph_.size() == 0) return {};
    if (!settings_.roots.empty()) {
      std::vector<std::uint32_t> roots;
      for (const std::uint32_t node : settings_.roots) {
        if (topology_.is_host(node) || node >= topology_.nodes()) {
          return error("root " + std::to_string(node) + " is no switch; name nodes from " +
                       std::to_string(topology_.hosts) + " to " +
                       std::to_string(topology_.nodes() - 1));
        }
        roots.push_back(node - topology_.hosts);
      }
      return fill(UpDownFinder(graph_, roots));
    }
    auto ok = fill(UpDownFinder(graph_, top_switches()));
    // Networks side by side have no switch in the middle of all.
    if (ok && (!any_unreachable_ || topology_.networks > 1)) return ok;
    const std::uint32_t middle = middle_switch(graph_);
    return fill(UpDownFinder(graph_, std::span(&middle, 1)));
  }

  Result<void> find_fat_tree() {
    for (std::uint32_t node = 0; node < graph_.size(); ++node) {
      for (const SwitchGraph::Edge& edge : graph_.edges(node)) {
        const std::uint32_t a = graph_.level(node), b = graph_.level(edge.to);
        if (a + 1 != b && b + 1 != a) {
          return error(topology_.name(node + topology_.hosts) + " and " +
                       topology_.name(edge.to + topology_.hosts) +
                       " are linked but equally far from hosts, so there are no tiers; take "
                       "shortest or up_down");
        }
      }
    }
    return fill(UpDownFinder(graph_, top_switches()));
  }

  template <typename Finder>
  Result<void> fill(Finder finder) {
    const std::uint32_t switches = topology_.switches;
    any_unreachable_ = false;
    routes_.sets_ = {0};  // the empty set
    routes_.block_at_.assign(std::size_t{switches} * routes_.blocks_, 0);
    routes_.set_at_.assign(block_leaves, 0);  // the empty block
    known_.clear();
    known_blocks_.clear();
    std::vector<std::uint32_t> open(std::size_t{switches} * block_leaves);  // blocks, by switch
    PortSets ports(topology_);
    // A switch's set is mostly the same as for the leaf before.
    PortSets before(topology_);
    std::vector<std::uint32_t> at(switches, 0);
    for (std::uint32_t leaf = 0; leaf < routes_.leaves_; ++leaf) {
      const std::uint32_t destination = routes_.leaf_nodes_[leaf] - topology_.hosts;
      ports.clear();
      finder.find(destination, ports);
      // To a switch without adapters only its neighbours send, since they have the other nodes of
      // its aggregation tree.
      const bool is_inner = graph_.level(destination) != 0;
      for (std::uint32_t node = 0; node < switches; ++node) {
        const auto words = ports.words(node);
        if (!std::ranges::equal(words, before.words(node))) at[node] = place(node, words);
        if (is_inner && !are_linked(node, destination)) continue;
        open[std::size_t{node} * block_leaves + leaf % block_leaves] = at[node];
        if (at[node] != 0 || node == destination || are_apart(node, destination)) continue;
        // Only leaves send. Other switches may have no route, but then no leaf's route leads
        // through them.
        any_unreachable_ = any_unreachable_ || graph_.level(node) == 0;
        if (graph_.level(node) == 0 && !settings_.partial) {
          return error(topology_.name(node + topology_.hosts) + " has no route to " +
                       topology_.name(routes_.leaf_nodes_[leaf]) +
                       "; add links, or take shortest or up_down");
        }
      }
      std::swap(ports, before);
      if (leaf % block_leaves == block_leaves - 1 || leaf + 1 == routes_.leaves_) {
        place_blocks(leaf / block_leaves, open);
      }
    }
    return {};
  }

  // Stores a block of each switch, and empties them.
  void place_blocks(std::uint32_t number, std::span<std::uint32_t> open) {
    for (std::uint32_t node = 0; node < topology_.switches; ++node) {
      const auto block = open.subspan(std::size_t{node} * block_leaves, block_leaves);
      routes_.block_at_[std::size_t{node} * routes_.blocks_ + number] = place_block(block);
    }
    std::ranges::fill(open, 0);
  }

  // Returns the place where this block is stored. Equal blocks share one place.
  std::uint32_t place_block(std::span<const std::uint32_t> block) {
    std::vector<std::uint32_t>& all = routes_.set_at_;
    const std::uint64_t hash = hash_of(block);
    const auto [first, last] = known_blocks_.equal_range(hash);
    for (auto known = first; known != last; ++known) {
      if (std::equal(block.begin(), block.end(), all.begin() + known->second)) return known->second;
    }
    const auto place = static_cast<std::uint32_t>(all.size());
    TULLE_CHECK(place == all.size());
    all.insert(all.end(), block.begin(), block.end());
    known_blocks_.emplace(hash, place);
    return place;
  }

  // Returns true if two switches with adapters are in networks that have no link between them.
  bool are_apart(std::uint32_t a, std::uint32_t b) const {
    return !network_.empty() && network_[a] != network_[b];
  }

  bool are_linked(std::uint32_t a, std::uint32_t b) const {
    return std::ranges::any_of(graph_.edges(a),
                               [b](const SwitchGraph::Edge& edge) { return edge.to == b; });
  }

  // Returns the place where this set is stored. Equal sets share one place.
  std::uint32_t place(std::uint32_t node, std::span<const std::uint64_t> words) {
    scratch_.assign(1, 0);
    PortSets::for_each(words, [&](std::uint16_t port) { scratch_.push_back(port); });
    if (scratch_.size() == 1) return 0;
    bool down = false;
    for (const SwitchGraph::Edge& edge : graph_.edges(node)) {
      if (edge.port == scratch_[1]) down = graph_.level(edge.to) < graph_.level(node);
    }
    scratch_[0] = static_cast<std::uint16_t>((scratch_.size() - 1) * 2 + down);
    const auto [entry, is_new] =
        known_.try_emplace(scratch_, static_cast<std::uint32_t>(routes_.sets_.size()));
    if (is_new) routes_.sets_.insert(routes_.sets_.end(), scratch_.begin(), scratch_.end());
    return entry->second;
  }

  const Topology& topology_;
  const RoutingSettings& settings_;
  SwitchGraph graph_;
  Routes routes_;
  std::unordered_map<std::vector<std::uint16_t>, std::uint32_t, PortsHash> known_;
  // Blocks by their hash: the index of the first leaf in set_at_.
  std::unordered_multimap<std::uint64_t, std::uint32_t> known_blocks_;
  std::vector<std::uint16_t> scratch_;
  bool any_unreachable_ = false;
  // By switch with adapters: the network of these; empty if all are in one.
  std::vector<std::uint32_t> network_;
};

Result<Routes> compute_routes(const Topology& topology, const RoutingSettings& settings) {
  return RouteTable(topology, settings).compute();
}

}  // namespace tulle::fabric

#include "fabric/deadlock.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "fabric/route_finders.h"

namespace tulle::fabric {
namespace {

// Channels are numbered (first_channel[node] + port) · vls + vl. A channel depends on ports and
// lanes of the switch at its end. Each channel has a row of bits for these, `ports · vls` of that
// switch long. Channels from and to hosts are left out, because they cannot be part of a cycle.
class ChannelGraph {
 public:
  ChannelGraph(const Topology& topology, unsigned vls, unsigned sls)
      : topology_(topology), wiring_(topology), vls_(vls), sls_(sls) {
    for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
      first_channel_.push_back(first_channel_.back() + topology.ports[node] * vls);
    }
    const std::uint32_t channels = first_channel_.back();
    std::size_t words = 0;
    for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
      for (std::uint32_t port = 0; port < topology.ports[node]; ++port) {
        const std::uint32_t to = end_of(node, port);
        for (unsigned vl = 0; vl < vls; ++vl) {
          first_word_.push_back(words);
          from_.push_back(node);
          words += to == none ? 0 : (topology.ports[to] * vls + 63) / 64;
        }
      }
    }
    first_word_.push_back(words);
    words_.resize(words);
    visited_.assign(std::size_t{channels} * sls, 0);
    is_used_.assign(channels, false);
  }

  std::uint32_t size() const { return first_channel_.back(); }
  std::uint32_t channel(std::uint32_t node, std::uint16_t port, std::uint8_t vl) const {
    return first_channel_[node] + port * vls_ + vl;
  }
  const Wiring::Peer& end(std::uint32_t channel) const {
    return wiring_.peer(from_[channel], port_of(channel));
  }
  std::uint8_t vl_of(std::uint32_t channel) const {
    return static_cast<std::uint8_t>(channel % vls_);  // each node's first channel has lane 0
  }
  Channel describe(std::uint32_t channel) const {
    const Wiring::Peer& peer = end(channel);
    return {from_[channel], peer.node, port_of(channel), peer.port, vl_of(channel)};
  }

  void depend(std::uint32_t channel, std::uint16_t out_port, std::uint8_t vl) {
    const std::uint32_t bit = out_port * vls_ + vl;
    words_[first_word_[channel] + bit / 64] |= std::uint64_t{1} << (bit % 64);
  }

  // Returns the next channel, at or after `from_bit` of its row, that this channel depends on, and
  // sets from_bit to the bit after it. Returns none at the end of the row.
  std::uint32_t next_dependency(std::uint32_t channel, std::uint32_t& from_bit) const {
    const std::size_t first = first_word_[channel], last = first_word_[channel + 1];
    for (std::size_t i = first + from_bit / 64; i < last; ++i) {
      const std::uint64_t word = words_[i] >> (from_bit % 64);
      if (word != 0) {
        const std::uint32_t bit = from_bit + static_cast<unsigned>(std::countr_zero(word));
        from_bit = bit + 1;
        return first_channel_[end(channel).node] + bit;
      }
      from_bit = (from_bit / 64 + 1) * 64;
    }
    return none;
  }

  std::size_t dependencies() const {
    std::size_t count = 0;
    for (const std::uint64_t word : words_) count += static_cast<std::size_t>(std::popcount(word));
    return count;
  }

  static constexpr std::uint32_t none = 0xFFFF'FFFF;

  // Marks a channel as visited by packets of a service level in the walk with this number. Returns
  // true if this is the first visit of the walk.
  bool visit(std::uint32_t channel, std::uint8_t sl, std::uint32_t number) {
    if (!is_used_[channel]) ++in_use_;
    is_used_[channel] = true;
    return std::exchange(visited_[std::size_t{channel} * sls_ + sl], number) != number;
  }
  std::size_t in_use() const { return in_use_; }

 private:
  std::uint16_t port_of(std::uint32_t channel) const {
    return static_cast<std::uint16_t>((channel - first_channel_[from_[channel]]) / vls_);
  }
  // Returns the switch at the end of a link between switches, or none.
  std::uint32_t end_of(std::uint32_t node, std::uint32_t port) const {
    if (topology_.is_host(node)) return none;
    const Wiring::Peer& peer = wiring_.peer(node, static_cast<std::uint16_t>(port));
    if (peer.link == Wiring::no_link || topology_.is_host(peer.node)) return none;
    return peer.node;
  }

  const Topology& topology_;
  Wiring wiring_;
  unsigned vls_;
  unsigned sls_;
  std::vector<std::uint32_t> first_channel_ = {0};  // by node; one more at the end
  std::vector<std::uint32_t> from_;                 // by channel: its node
  std::vector<std::size_t> first_word_;             // by channel; one more at the end
  std::vector<std::uint64_t> words_;
  std::vector<std::uint32_t> visited_;  // by channel and level: number of the last walk there
  std::vector<bool> is_used_;           // by channel
  std::size_t in_use_ = 0;
};

// Follows the routes to one destination after the other, from all leaves at once.
class RouteWalk {
 public:
  RouteWalk(ChannelGraph& graph, const Topology& topology, const Routes& routes,
            const DeadlockSettings& settings)
      : graph_(graph),
        topology_(topology),
        routes_(routes),
        settings_(settings),
        host_ports_(routes.leaves()) {
    for (std::uint32_t host = 0; host < topology.hosts; ++host) {
      const std::uint32_t leaf = routes.leaf_of(host);
      if (leaf < routes.leaves()) host_ports_[leaf] = routes.port(routes.leaf_node(leaf), host);
    }
  }

  void walk_all() {
    if (settings_.non_minimal != nullptr) {
      for (std::uint32_t group = 0; group < settings_.non_minimal->groups(); ++group) {
        walk_to_group(group);
      }
    }
    if (settings_.forwarding_tables || routes_.kind() == RoutingKind::fat_tree) {
      for (std::uint32_t host = 0; host < topology_.hosts; ++host) {
        for (std::uint32_t path = 0; path < 1u << settings_.lmc; ++path) {
          walk(host, path, [&](std::uint32_t node, auto take) {
            const std::uint16_t port = routes_.port(node, host, path);
            if (port != Routes::no_port) take(port);
          });
        }
      }
      return;
    }
    // All hosts of a leaf share its candidates, so one host represents all.
    std::vector<std::uint32_t> host_of_leaf(routes_.leaves());
    for (std::uint32_t host = 0; host < topology_.hosts; ++host) {
      if (routes_.leaf_of(host) < routes_.leaves()) host_of_leaf[routes_.leaf_of(host)] = host;
    }
    for (const std::uint32_t host : host_of_leaf) {
      walk(host, 0, [&](std::uint32_t node, auto take) {
        for (const std::uint16_t port : routes_.candidates(node, host)) take(port);
      });
    }
  }

 private:
  // A lane of a link, and the service level of packets on it.
  struct Step {
    std::uint32_t channel = 0;
    std::uint8_t sl = 0;
  };

  template <typename Outputs>
  void walk(std::uint32_t host, std::uint32_t path, Outputs outputs) {
    if (routes_.leaf_of(host) >= routes_.leaves()) return;  // not plugged in
    const std::uint32_t destination = routes_.leaf_node(routes_.leaf_of(host));
    begin();
    // Packets by way of a third group continue from their entry into that group.
    for (const Step& entry : entries_) {
      const std::uint32_t group = settings_.non_minimal->group_of(graph_.end(entry.channel).node);
      if (group == settings_.non_minimal->group_of(destination)) continue;
      if (graph_.visit(entry.channel, entry.sl, number_)) queue_.push_back(entry);
    }
    for (std::uint32_t leaf = 0; leaf < routes_.leaves(); ++leaf) {
      const std::uint32_t node = routes_.leaf_node(leaf);
      if (node == destination) continue;
      const std::uint8_t sl = settings_.sl ? settings_.sl(node, host, path) : std::uint8_t{0};
      outputs(node, [&](std::uint16_t port) {
        leave({node, destination, host_ports_[leaf], port, sl, 0, true});
      });
    }
    follow(destination, outputs, [&](std::uint32_t node) { return node == destination; });
  }

  // Walks from all leaves to a group that packets go by way of, and keeps the channels that enter
  // it.
  void walk_to_group(std::uint32_t group) {
    const GroupRoutes& groups = *settings_.non_minimal;
    const auto outputs = [&](std::uint32_t node, auto take) {
      for (const std::uint16_t port : groups.towards(node, group)) take(port);
    };
    begin();
    for (std::uint32_t leaf = 0; leaf < routes_.leaves(); ++leaf) {
      const std::uint32_t node = routes_.leaf_node(leaf);
      if (groups.group_of(node) == group) continue;
      outputs(node, [&](std::uint16_t port) {
        leave({node, node, host_ports_[leaf], port, 0, 0, true});
      });
    }
    follow(0, outputs, [&](std::uint32_t node) { return groups.group_of(node) == group; });
    std::ranges::copy_if(queue_, std::back_inserter(entries_), [&](const Step& step) {
      return groups.group_of(graph_.end(step.channel).node) == group;
    });
  }

  void begin() {
    ++number_;
    queue_.clear();
  }
  std::uint8_t leave(const Hop& hop) {
    const std::uint8_t vl = settings_.vl ? settings_.vl(hop) : std::uint8_t{0};
    TULLE_CHECK(vl < settings_.vls);
    const std::uint32_t next = graph_.channel(hop.switch_node, hop.out_port, vl);
    if (graph_.visit(next, hop.sl, number_)) queue_.push_back({next, hop.sl});
    return vl;
  }
  template <typename Outputs, typename IsThere>
  void follow(std::uint32_t destination, const Outputs& outputs, const IsThere& is_there) {
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      const auto [channel, sl] = queue_[i];
      const Wiring::Peer& at = graph_.end(channel);
      if (is_there(at.node)) continue;
      outputs(at.node, [&, channel = channel, sl = sl](std::uint16_t port) {
        const std::uint8_t in_vl = graph_.vl_of(channel);
        const std::uint8_t vl = leave({at.node, destination, at.port, port, sl, in_vl, false});
        graph_.depend(channel, port, vl);
      });
    }
  }

  ChannelGraph& graph_;
  const Topology& topology_;
  const Routes& routes_;
  const DeadlockSettings& settings_;
  std::uint32_t number_ = 0;
  std::vector<std::uint16_t> host_ports_;  // by leaf: port of one of its hosts
  std::vector<Step> queue_;
  std::vector<Step> entries_;  // channels into groups that packets go by way of
};

// Returns the channels of some cycle in order, or none if there is no cycle.
std::vector<std::uint32_t> find_cycle(const ChannelGraph& graph) {
  enum class State : std::uint8_t { fresh, on_path, done };
  struct Step {
    std::uint32_t channel;
    std::uint32_t next_bit = 0;
  };
  std::vector<State> state(graph.size(), State::fresh);
  std::vector<Step> path;
  for (std::uint32_t start = 0; start < graph.size(); ++start) {
    if (state[start] != State::fresh) continue;
    path.push_back({start});
    state[start] = State::on_path;
    while (!path.empty()) {
      const std::uint32_t next = graph.next_dependency(path.back().channel, path.back().next_bit);
      if (next == ChannelGraph::none) {
        state[path.back().channel] = State::done;
        path.pop_back();
      } else if (state[next] == State::fresh) {
        path.push_back({next});
        state[next] = State::on_path;
      } else if (state[next] == State::on_path) {
        std::vector<std::uint32_t> cycle;
        for (const Step& step : path) {
          if (step.channel == next || !cycle.empty()) cycle.push_back(step.channel);
        }
        return cycle;
      }
    }
  }
  return {};
}

// Returns the shortest cycle through this channel, which must be on one.
std::vector<std::uint32_t> shortest_cycle_through(const ChannelGraph& graph, std::uint32_t start) {
  std::vector<std::uint32_t> before(graph.size(), ChannelGraph::none);
  std::vector<std::uint32_t> queue = {start};
  for (std::size_t i = 0; i < queue.size() && before[start] == ChannelGraph::none; ++i) {
    std::uint32_t bit = 0;
    for (;;) {
      const std::uint32_t next = graph.next_dependency(queue[i], bit);
      if (next == ChannelGraph::none) break;
      if (before[next] != ChannelGraph::none) continue;
      before[next] = queue[i];
      if (next != start) queue.push_back(next);
    }
  }
  std::vector<std::uint32_t> cycle = {start};
  for (std::uint32_t at = before[start]; at != start; at = before[at]) cycle.push_back(at);
  std::reverse(cycle.begin() + 1, cycle.end());
  return cycle;
}

// Shortens the cycle for people: returns the shortest of the cycles through the channels of the one
// found.
std::vector<std::uint32_t> shorten(const ChannelGraph& graph, std::vector<std::uint32_t> cycle) {
  constexpr std::size_t most_starts = 64;
  const std::vector<std::uint32_t> starts(
      cycle.begin(),
      cycle.begin() + static_cast<std::ptrdiff_t>(std::min(cycle.size(), most_starts)));
  for (const std::uint32_t start : starts) {
    std::vector<std::uint32_t> other = shortest_cycle_through(graph, start);
    if (other.size() < cycle.size()) cycle = std::move(other);
  }
  return cycle;
}

}  // namespace

bool climbs_then_descends(const Topology& topology, const Routes& routes) {
  enum class Way : std::uint8_t { across, up, down };
  struct Output {
    std::uint32_t to = 0;
    Way way = Way::across;
  };
  const SwitchGraph graph(topology);
  std::vector<std::vector<Output>> outputs(topology.switches);
  for (std::uint32_t at = 0; at < topology.switches; ++at) {
    outputs[at].resize(topology.ports[topology.hosts + at]);
    for (const SwitchGraph::Edge& edge : graph.edges(at)) {
      const std::uint32_t here = graph.level(at), there = graph.level(edge.to);
      const Way way = there > here ? Way::up : there < here ? Way::down : Way::across;
      outputs[at][edge.port] = {edge.to + topology.hosts, way};
    }
  }
  const auto descends = [&](std::uint32_t node, std::uint32_t leaf) {
    for (const std::uint16_t port : routes.towards(node, leaf)) {
      if (outputs[node - topology.hosts][port].way != Way::down) return false;
    }
    return true;
  };
  for (std::uint32_t node = topology.hosts; node < topology.nodes(); ++node) {
    for (std::uint32_t leaf = 0; leaf < routes.leaves(); ++leaf) {
      const std::uint32_t last = routes.leaf_node(leaf);
      if (node == last) continue;
      for (const std::uint16_t port : routes.towards(node, leaf)) {
        const Output& output = outputs[node - topology.hosts][port];
        if (output.way == Way::across) return false;
        if (output.way == Way::down && output.to != last && !descends(output.to, leaf)) {
          return false;
        }
      }
    }
  }
  return true;
}

DeadlockReport check_deadlock(const Topology& topology, const Routes& routes,
                              const DeadlockSettings& settings) {
  ChannelGraph graph(topology, settings.vls, settings.sl ? port::service_levels : 1);
  RouteWalk(graph, topology, routes, settings).walk_all();
  DeadlockReport report;
  report.channels = graph.in_use();
  report.dependencies = graph.dependencies();
  for (const std::uint32_t channel : shorten(graph, find_cycle(graph))) {
    report.cycle.push_back(graph.describe(channel));
  }
  return report;
}

std::string describe_cycle(const Topology& topology, std::span<const Channel> cycle) {
  std::string text;
  for (const Channel& channel : cycle) {
    text += topology.name(channel.from);
    if (channel.vl != 0) text += " (VL " + std::to_string(channel.vl) + ")";
    text += " → ";
  }
  return cycle.empty() ? text : text + topology.name(cycle.front().from);
}

DeadlockSettings with_lanes(const PathLanes& lanes, const Routes& routes) {
  DeadlockSettings settings;
  settings.vls = port::classes;
  settings.vl = [&tables = lanes.plan().switches, &routes](const Hop& hop) {
    return tables[hop.switch_node - routes.hosts()].lane(hop.in_port, hop.out_port, hop.sl,
                                                         hop.in_vl);
  };
  settings.sl = [&lanes, &routes](std::uint32_t leaf_node, std::uint32_t host, std::uint32_t path) {
    return lanes.service_level(routes, leaf_node, host, 0, path);
  };
  return settings;
}

}  // namespace tulle::fabric

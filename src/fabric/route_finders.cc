#include "fabric/route_finders.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace tulle::fabric {
namespace {

constexpr std::uint32_t unreachable = SwitchGraph::unreachable;

}  // namespace

SwitchGraph::SwitchGraph(const Topology& topology) {
  const std::uint32_t hosts = topology.hosts;
  first_.assign(topology.switches + 1, 0);
  for (const Link& link : topology.links) {
    if (link.a < hosts || link.b < hosts) continue;
    ++first_[link.a - hosts + 1];
    ++first_[link.b - hosts + 1];
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  edges_.resize(first_.back() + 1);
  level_.assign(topology.switches, unreachable);

  std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
  std::vector<std::uint32_t> leaves;
  for (const Link& link : topology.links) {
    if (link.a >= hosts && link.b >= hosts) {
      edges_[next[link.a - hosts]++] = {link.b - hosts, link.a_port, link.b_port};
      edges_[next[link.b - hosts]++] = {link.a - hosts, link.b_port, link.a_port};
    } else if (std::max(link.a, link.b) >= hosts && topology.is_adapter(std::min(link.a, link.b))) {
      leaves.push_back(std::max(link.a, link.b) - hosts);
    }
  }
  level_ = distances(leaves);
}

std::vector<std::uint32_t> SwitchGraph::distances(std::span<const std::uint32_t> from) const {
  std::vector<std::uint32_t> distance(size(), unreachable);
  std::vector<std::uint32_t> queue;
  const auto reach = [&](std::uint32_t node, std::uint32_t hops) {
    if (distance[node] != unreachable) return;
    distance[node] = hops;
    queue.push_back(node);
  };
  for (const std::uint32_t node : from) reach(node, 0);
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::uint32_t node = queue[i];
    for (const Edge& edge : edges(node)) reach(edge.to, distance[node] + 1);
  }
  return distance;
}

std::uint32_t SwitchGraph::top_level() const {
  std::uint32_t top = 0;
  for (const std::uint32_t level : level_) {
    if (level != unreachable) top = std::max(top, level);
  }
  return top;
}

PortSets::PortSets(const Topology& topology) {
  first_.push_back(0);
  for (std::uint32_t node = topology.hosts; node < topology.nodes(); ++node) {
    first_.push_back(first_.back() + (topology.ports[node] + 63) / 64);
  }
  words_.resize(first_.back());
}

namespace {

// Searches breadth first from a destination, against the edges. Finds how far each node is, and
// which of its ports lead one hop closer. `distance` must be unreachable everywhere at first, and
// stays so where no edge leads.
template <typename EdgesOf>
void spread(std::uint32_t destination, EdgesOf edges_of, std::vector<std::uint32_t>& distance,
            std::vector<std::uint32_t>& queue, PortSets& ports) {
  queue.clear();
  distance[destination] = 0;
  queue.push_back(destination);
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::uint32_t node = queue[i];
    const std::uint32_t farther = distance[node] + 1;
    for (const SwitchGraph::Edge& edge : edges_of(node)) {
      if (distance[edge.to] == unreachable) {
        distance[edge.to] = farther;
        queue.push_back(edge.to);
      }
      if (distance[edge.to] == farther) ports.add(edge.to, edge.to_port);
    }
  }
}

}  // namespace

void ShortestFinder::find(std::uint32_t destination, PortSets& ports) {
  if (is_like_last(destination)) {
    change_destination(destination);
  } else {
    last_ports_.clear();
    distance_.assign(graph_.size(), unreachable);
    spread(
        destination, [this](std::uint32_t node) { return graph_.edges(node); }, distance_, queue_,
        last_ports_);
  }
  last_ = destination;
  ports = last_ports_;
}

// Returns true if the destination has the same neighbours as the last one, in the same order.
bool ShortestFinder::is_like_last(std::uint32_t destination) const {
  if (last_ == SwitchGraph::unreachable || destination == last_) return false;
  return std::ranges::equal(
      graph_.edges(last_), graph_.edges(destination),
      [](const SwitchGraph::Edge& a, const SwitchGraph::Edge& b) { return a.to == b.to; });
}

// The neighbours send to the destination, and the last destination sends to all neighbours.
void ShortestFinder::change_destination(std::uint32_t destination) {
  last_ports_.clear(destination);
  for (const SwitchGraph::Edge& edge : graph_.edges(destination)) last_ports_.clear(edge.to);
  for (const SwitchGraph::Edge& edge : graph_.edges(destination)) {
    last_ports_.add(edge.to, edge.to_port);
  }
  for (const SwitchGraph::Edge& edge : graph_.edges(last_)) last_ports_.add(last_, edge.port);
}

// Switches are ordered by their distance from the roots, then by number. A link leads up to the end
// that comes first. The order is total, so every link has a direction, and a chain of up links
// followed by down links cannot close a cycle.
UpDownFinder::UpDownFinder(const SwitchGraph& graph, std::span<const std::uint32_t> roots)
    : top_down_(graph.size()) {
  const std::vector<std::uint32_t> rank = graph.distances(roots);
  std::iota(top_down_.begin(), top_down_.end(), 0);
  std::stable_sort(top_down_.begin(), top_down_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return rank[a] < rank[b]; });
  first_up_.push_back(0);
  for (std::uint32_t node = 0; node < graph.size(); ++node) {
    for (const SwitchGraph::Edge& edge : graph.edges(node)) {
      if (std::tie(rank[edge.to], edge.to) < std::tie(rank[node], node)) up_.push_back(edge);
    }
    first_up_.push_back(static_cast<std::uint32_t>(up_.size()));
  }
}

// A forwarding table does not know whether a packet has gone down already. So every switch that can
// reach the destination by going down alone does so, even where up and then down is shorter.
// Packets sent down then meet only switches that send them down. All other switches send up, to
// where the rest of the route is shortest.
void UpDownFinder::find(std::uint32_t destination, PortSets& ports) {
  distance_.assign(top_down_.size(), unreachable);
  spread(
      destination, [this](std::uint32_t node) { return up(node); }, distance_, queue_, ports);
  const std::size_t downward = queue_.size();
  if (downward == top_down_.size()) return;

  for (const std::uint32_t node : top_down_) {
    if (distance_[node] != unreachable) continue;
    std::uint32_t nearest = unreachable;
    for (const SwitchGraph::Edge& edge : up(node)) {
      nearest = std::min(nearest, distance_[edge.to]);
    }
    if (nearest == unreachable) continue;
    distance_[node] = nearest + 1;
    for (const SwitchGraph::Edge& edge : up(node)) {
      if (distance_[edge.to] == nearest) ports.add(node, edge.port);
    }
  }
}

void DimensionOrderedFinder::find(std::uint32_t destination, PortSets& ports) const {
  for (std::uint32_t node = 0; node < graph_.size(); ++node) {
    std::uint32_t stride = 1;
    for (const std::uint32_t size : size_) {
      const std::uint32_t at = node / stride % size;
      const std::uint32_t ahead = (destination / stride % size + size - at) % size;
      if (ahead != 0) {
        const std::uint32_t line = node - at * stride;
        const std::uint32_t forward = line + (at + 1) % size * stride;
        const std::uint32_t back = line + (at + size - 1) % size * stride;
        for (const SwitchGraph::Edge& edge : graph_.edges(node)) {
          const bool on_route =
              (edge.to == forward && ahead * 2 <= size) || (edge.to == back && ahead * 2 >= size);
          if (on_route) ports.add(node, edge.port);
        }
        break;
      }
      stride *= size;
    }
  }
}

void DragonflyFinder::find(std::uint32_t destination, PortSets& ports) {
  const std::uint32_t group = group_of(destination);
  direct_.assign(graph_.size(), unreachable);
  direct_[destination] = 0;
  for (const SwitchGraph::Edge& edge : graph_.edges(destination)) {
    if (group_of(edge.to) != group) continue;
    direct_[edge.to] = 1;
    ports.add(edge.to, edge.to_port);
  }
  for (std::uint32_t router = 0; router < graph_.size(); ++router) {
    if (group_of(router) == group) continue;
    for (const SwitchGraph::Edge& edge : graph_.edges(router)) {
      if (group_of(edge.to) != group) continue;
      direct_[router] = std::min(direct_[router], direct_[edge.to] + 1);
    }
  }
  // A router whose neighbour sends to it for its global link always takes that link. If it had a
  // better neighbour, the first router would have chosen that neighbour.
  for (std::uint32_t router = 0; router < graph_.size(); ++router) {
    if (group_of(router) == group) continue;
    std::uint32_t hops = direct_[router];
    for (const SwitchGraph::Edge& edge : graph_.edges(router)) {
      if (group_of(edge.to) == group_of(router)) hops = std::min(hops, direct_[edge.to] + 1);
    }
    for (const SwitchGraph::Edge& edge : graph_.edges(router)) {
      const std::uint32_t next = group_of(edge.to);
      if ((next == group || next == group_of(router)) && direct_[edge.to] + 1 == hops) {
        ports.add(router, edge.port);
      }
    }
  }
}

std::uint32_t middle_switch(const SwitchGraph& graph) {
  std::uint32_t middle = 0;
  auto best = std::pair(unreachable, std::uint64_t{0});
  for (std::uint32_t node = 0; node < graph.size(); ++node) {
    const std::vector<std::uint32_t> distance = graph.distances(std::span(&node, 1));
    const auto worth =
        std::pair(*std::max_element(distance.begin(), distance.end()),
                  std::accumulate(distance.begin(), distance.end(), std::uint64_t{0}));
    if (worth < best) std::tie(middle, best) = std::tuple(node, worth);
  }
  return middle;
}

}  // namespace tulle::fabric

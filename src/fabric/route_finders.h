#pragma once

// Internal to this folder: one finder for each kind of routing. A finder is given a destination
// switch and marks, for every other switch, the ports on the routes to it. Switches are counted
// from 0 here.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "fabric/topology.h"

namespace tulle::fabric {

// The links between switches, and the distance of each switch from the nearest host.
class SwitchGraph {
 public:
  struct Edge {
    std::uint32_t to = 0;
    std::uint16_t port = 0, to_port = 0;
  };

  explicit SwitchGraph(const Topology& topology);

  std::uint32_t size() const { return static_cast<std::uint32_t>(level_.size()); }
  std::span<const Edge> edges(std::uint32_t from) const {
    return {&edges_[first_[from]], &edges_[first_[from + 1]]};
  }
  // Returns 0 for a switch with hosts, and `unreachable` if no host can be reached.
  std::uint32_t level(std::uint32_t of) const { return level_[of]; }
  std::uint32_t top_level() const;
  // Returns the number of hops from the given switches to each switch, and `unreachable` where
  // there is no path.
  std::vector<std::uint32_t> distances(std::span<const std::uint32_t> from) const;

  static constexpr std::uint32_t unreachable = std::numeric_limits<std::uint32_t>::max() / 2;

 private:
  std::vector<std::uint32_t> first_;  // by switch: its first edge; one more at the end
  std::vector<Edge> edges_;           // in the order of links; one to spare
  std::vector<std::uint32_t> level_;  // by switch: hops to the nearest switch with hosts
};

// A set of ports for each switch, as bits.
class PortSets {
 public:
  explicit PortSets(const Topology& topology);

  void add(std::uint32_t to_switch, std::uint16_t port) {
    words_[first_[to_switch] + port / 64] |= std::uint64_t{1} << (port % 64);
  }
  std::span<const std::uint64_t> words(std::uint32_t of) const {
    return {words_.data() + first_[of], words_.data() + first_[of + 1]};
  }
  void clear() { words_.assign(words_.size(), 0); }
  void clear(std::uint32_t of) {
    std::fill(words_.begin() + static_cast<std::ptrdiff_t>(first_[of]),
              words_.begin() + static_cast<std::ptrdiff_t>(first_[of + 1]), 0);
  }

  // Visits the ports in ascending order.
  template <typename Visit>
  static void for_each(std::span<const std::uint64_t> words, Visit visit) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      for (std::uint64_t rest = words[i]; rest != 0; rest &= rest - 1) {
        visit(static_cast<std::uint16_t>(i * 64 + static_cast<unsigned>(std::countr_zero(rest))));
      }
    }
  }

 private:
  std::vector<std::size_t> first_;  // by switch: its first word; one more at the end
  std::vector<std::uint64_t> words_;
};

// Switches that have links to the same switches, as the leaves of a pod have, are as far from all
// others. Where one comes after the other, only the ports of these neighbours, and of the two, have
// to be computed again.
class ShortestFinder {
 public:
  ShortestFinder(const Topology& topology, const SwitchGraph& graph)
      : graph_(graph), last_ports_(topology) {}
  void find(std::uint32_t destination, PortSets& ports);

 private:
  bool is_like_last(std::uint32_t destination) const;
  void change_destination(std::uint32_t destination);

  const SwitchGraph& graph_;
  PortSets last_ports_;  // to last_
  std::uint32_t last_ = SwitchGraph::unreachable;
  std::vector<std::uint32_t> distance_;
  std::vector<std::uint32_t> queue_;
};

class UpDownFinder {
 public:
  UpDownFinder(const SwitchGraph& graph, std::span<const std::uint32_t> roots);
  void find(std::uint32_t destination, PortSets& ports);

 private:
  std::span<const SwitchGraph::Edge> up(std::uint32_t from) const {
    return {up_.data() + first_up_[from], up_.data() + first_up_[from + 1]};
  }

  std::vector<std::uint32_t> top_down_;  // the switches, those nearest to the roots first
  std::vector<std::uint32_t> first_up_;  // by switch: its first edge; one more at the end
  std::vector<SwitchGraph::Edge> up_;    // the edges that lead up
  std::vector<std::uint32_t> distance_;
  std::vector<std::uint32_t> queue_;
};

class DimensionOrderedFinder {
 public:
  DimensionOrderedFinder(const SwitchGraph& graph, const TorusShape& shape)
      : graph_(graph), size_(shape.size) {}
  void find(std::uint32_t destination, PortSets& ports) const;

 private:
  const SwitchGraph& graph_;
  std::array<std::uint32_t, 3> size_;
};

class DragonflyFinder {
 public:
  DragonflyFinder(const SwitchGraph& graph, const DragonflyShape& shape)
      : graph_(graph), routers_per_group_(shape.routers_per_group) {}
  void find(std::uint32_t destination, PortSets& ports);

 private:
  std::uint32_t group_of(std::uint32_t router) const { return router / routers_per_group_; }

  const SwitchGraph& graph_;
  std::uint32_t routers_per_group_;
  std::vector<std::uint32_t> direct_;  // by router: hops if it takes one of its global links
};

// Returns the switch whose farthest switch is nearest. Of several, it is the one with the smallest
// sum of distances.
std::uint32_t middle_switch(const SwitchGraph& graph);

}  // namespace tulle::fabric

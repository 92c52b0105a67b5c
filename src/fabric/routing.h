#pragma once

// Routes: for each pair of switch and destination host, the output ports that the switch may take.
// Destinations are stored by their first switch, the "leaf". Equal sets of ports are stored once,
// and so are equal blocks of 64 leaves in a row, since switches of a tier mostly agree on these. So
// 65,536 hosts behind 5,120 switches take some megabytes, and a look-up takes three loads.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/prefetch.h"
#include "base/result.h"
#include "fabric/topology.h"

namespace tulle::fabric {

enum class RoutingKind : std::uint8_t {
  // All shortest paths: Ethernet's equal-cost multipath, InfiniBand's min-hop.
  shortest,
  // Routes climb towards the roots, then descend, and never climb again, which is free of deadlock
  // on any topology. Of these routes, the switches take the shortest that forwarding tables allow,
  // as these know only the destination.
  up_down,
  // Routes climb and descend through tiers by the destination's number (d-mod-k, Zahavi 2012).
  // There is one port for each destination, and no contention when every host sends to the host n
  // further on.
  fat_tree,
  // Torus: routes go first along x, then y, then z, each by the shorter way round, or by both ways
  // if these are equal.
  dimension_ordered,
  // Routes have at most one local link, one global link and one local link.
  dragonfly_minimal,
};

std::string_view to_string(RoutingKind kind);  // "shortest", "up_down" …
std::optional<RoutingKind> routing_kind(std::string_view name);

struct RoutingSettings {
  RoutingKind kind = RoutingKind::shortest;
  // up_down: the switches (nodes) that all routes climb towards. Empty means the switches farthest
  // from the hosts, or the middle switch if these do not reach all.
  std::vector<std::uint32_t> roots = {};
  // If true, unreachable destinations (in a topology whose failed links are taken out) have no
  // candidates and cause no error.
  bool partial = false;
};

class Routes {
 public:
  static constexpr std::uint16_t no_port = 0xFFFF;

  RoutingKind kind() const { return kind_; }
  std::uint32_t hosts() const { return hosts_; }

  // Returns the output ports in ascending order, or none if there is no route. Takes constant time,
  // without hashing. Every frame asks at every switch.
  [[gnu::always_inline]] std::span<const std::uint16_t> candidates(std::uint32_t switch_node,
                                                                   std::uint32_t host) const {
    const Destination& to = destinations_[host];
    if (switch_node == to.leaf_node) return one(to.leaf_port);
    if (kind_ == RoutingKind::fat_tree) {
      const std::uint16_t chosen = port(switch_node, host);
      return chosen == no_port ? std::span<const std::uint16_t>() : one(chosen);
    }
    return towards(switch_node, to.leaf);
  }

  // Prefetch what candidates() and port() read of a destination, and of a switch.
  void prefetch_host(std::uint32_t host) const { tulle::prefetch(&destinations_[host]); }
  void prefetch_switch(std::uint32_t switch_node) const {
    tulle::prefetch(&block_at_[std::size_t{switch_node - hosts_} * blocks_]);
  }

  // Returns the one port for a destination host and path that an InfiniBand subnet manager writes
  // into the forwarding tables. The candidates are dealt over destinations, and over the 2^LMC
  // paths to a host (IBTA 7.11.1), so that the paths to one host diverge as early and as long as
  // they can.
  std::uint16_t port(std::uint32_t switch_node, std::uint32_t host, std::uint32_t path = 0) const {
    const Destination& to = destinations_[host];
    if (switch_node == to.leaf_node) return to.leaf_port;
    const std::uint16_t* set = set_of(switch_node, to.leaf);
    const std::uint32_t count = set[0] >> 1;
    if (count <= 1) return count == 0 ? no_port : set[1];
    const Divisors& divisors = divisors_[switch_node - hosts_];
    const std::uint32_t divisor = (set[0] & 1) != 0 ? divisors.down : divisors.up;
    std::uint32_t number = to.order / divisor;
    if (path != 0) number += path / divisor;  // most hosts have one path, which saves a division
    return set[1 + number % count];
  }

  // Returns all ports on the routes to a leaf (given by index) in ascending order, before any
  // choice among them.
  std::span<const std::uint16_t> towards(std::uint32_t switch_node, std::uint32_t leaf) const {
    const std::uint16_t* set = set_of(switch_node, leaf);
    return {set + 1, static_cast<std::size_t>(set[0] >> 1)};
  }

  // Returns the whole table of one switch. Entry (host << lmc) + path is port(switch, host, path).
  std::vector<std::uint16_t> forwarding_table(std::uint32_t switch_node, unsigned lmc = 0) const;

  // Returns the number of leaves: the switches with hosts, in the order of nodes, by index from 0.
  std::uint32_t leaves() const { return leaves_; }
  // Returns the leaf of a host, or leaves() for a host without a link.
  std::uint32_t leaf_of(std::uint32_t host) const { return destinations_[host].leaf; }
  std::uint32_t leaf_node(std::uint32_t leaf) const { return leaf_nodes_[leaf]; }

  std::size_t bytes() const;  // memory in bytes

 private:
  friend class RouteTable;

  static constexpr std::uint32_t block_leaves = 64;
  static constexpr std::uint32_t no_node = 0xFFFF'FFFF;

  // A host as a destination. A host without a link has the leaf leaves(), a column of empty sets.
  struct Destination {
    std::uint32_t leaf = 0;
    std::uint32_t leaf_node = no_node;
    std::uint32_t order = 0;            // rank of the host when hosts are counted leaf by leaf
    std::uint16_t leaf_port = no_port;  // port of the leaf to which the host is connected
  };

  // At each tier, a destination's number is divided by the number of uplinks below. Destinations
  // that part at one tier thus part differently at the next.
  struct Divisors {
    std::uint32_t up = 1, down = 1;
  };

  std::span<const std::uint16_t> one(std::uint16_t port) const { return {&every_port_[port], 1}; }
  const std::uint16_t* set_of(std::uint32_t switch_node, std::uint32_t leaf) const {
    const std::size_t block = std::size_t{switch_node - hosts_} * blocks_ + leaf / block_leaves;
    return &sets_[set_at_[block_at_[block] + leaf % block_leaves]];
  }

  RoutingKind kind_ = RoutingKind::shortest;
  std::uint32_t hosts_ = 0;
  std::uint32_t leaves_ = 0;
  std::uint32_t blocks_ = 0;               // of leaves, with one more leaf if a host has no link
  std::vector<Destination> destinations_;  // by host
  std::vector<std::uint32_t> leaf_nodes_;  // by leaf
  std::vector<Divisors> divisors_;         // by switch
  std::vector<std::uint32_t> block_at_;    // by (switch, block): index of its first leaf in set_at_
  std::vector<std::uint32_t> set_at_;      // by leaf of a block: index of its set of ports in sets_
  // Each set is 2 · count + (1 if the ports lead down), followed by the ports.
  std::vector<std::uint16_t> sets_;
  std::vector<std::uint16_t> every_port_;  // every_port_[p] == p, for sets of one port
};

// Fails with one line that says what the topology lacks, and which routing to take instead.
Result<Routes> compute_routes(const Topology& topology, const RoutingSettings& settings);

}  // namespace tulle::fabric

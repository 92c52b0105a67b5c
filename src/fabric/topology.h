#pragma once

// A topology as data: hosts, switches and the links between them. The builders number nodes and
// ports the same way every time, so that a scenario's results can be repeated. Hosts come first,
// then switches tier by tier. A node's ports are in the order of its links.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace tulle::fabric {

// A full-duplex link with the same rate and delay both ways.
struct Link {
  std::uint32_t a = 0, b = 0;
  std::uint16_t a_port = 0, b_port = 0;
  std::int64_t bits_per_second = 0;
  Time delay;  // propagation delay

  bool operator==(const Link&) const = default;
};

// The shapes below tell routes and names more about a topology than its links do.

// Switches in tiers ("leaf", "spine"). Each tier has the nodes from `first` to the next tier's.
struct Tiers {
  struct Tier {
    std::uint32_t first = 0;         // a node
    std::string_view label;          // a string literal
    std::uint32_t first_number = 0;  // number of `first` in names
  };
  std::vector<Tier> tiers;
};
// Switch (x, y, z) is switch x + size[0] · (y + size[1] · z). A size of 1 means that there is no
// such dimension.
struct TorusShape {
  std::array<std::uint32_t, 3> size{1, 1, 1};
};
// Router r of group g is switch g · routers_per_group + r.
struct DragonflyShape {
  std::uint32_t groups = 0;
  std::uint32_t routers_per_group = 0;
};
using Shape = std::variant<Tiers, TorusShape, DragonflyShape>;

// Nodes: hosts (adapters) come first, 0 … hosts-1, with one port each (port 0). Switches follow.
struct Topology {
  std::uint32_t hosts = 0, switches = 0;
  // The last so many hosts are ports of aggregation nodes inside of switches, and no adapters
  // (fabric/aggregation.h).
  std::uint32_t aggregation_ports = 0;
  std::vector<Link> links;
  std::vector<std::uint32_t> ports;  // by node: its number of ports
  Shape shape;
  // The number of parallel networks, without a link between them: adapter h is in the network h %
  // networks.
  std::uint32_t networks = 1;
  // The ports of an adapter are so many hosts in a row, each in another network, which is a plane.
  std::uint32_t planes = 1;  // divides networks

  std::uint32_t nodes() const { return hosts + switches; }
  bool is_host(std::uint32_t node) const { return node < hosts; }
  std::uint32_t adapters() const { return hosts - aggregation_ports; }
  bool is_adapter(std::uint32_t node) const { return node < adapters(); }
  // Returns the number of adapters if an adapter's ports, in several planes, count once.
  std::uint32_t whole_adapters() const { return adapters() / planes; }
  // Returns the number of networks, each of some of the adapters, that have no way to each other:
  // whole adapter a is in the network a % separate_rails().
  std::uint32_t separate_rails() const { return networks / planes; }
  // Returns a name for people: "host 3", "leaf 1", "core 4", "switch (1,2)", "group 2 router 0",
  // "aggregation 5".
  std::string name(std::uint32_t node) const;
  // Returns the node with this name, if there is one.
  std::optional<std::uint32_t> find(std::string_view name) const;
};

// Finds the other end of a port in one look-up.
class Wiring {
 public:
  static constexpr std::uint32_t no_link = 0xFFFF'FFFF;
  struct Peer {
    std::uint32_t node = 0;
    std::uint32_t link = no_link;  // index in Topology::links; no_link: nothing is plugged in
    std::uint16_t port = 0;
  };

  explicit Wiring(const Topology& topology);
  const Peer& peer(std::uint32_t node, std::uint16_t port) const {
    return peers_[place(node, port)];
  }
  // Returns the port's place among those of all nodes, for lists of what belongs to ports.
  std::size_t place(std::uint32_t node, std::uint16_t port) const { return first_[node] + port; }
  std::size_t places() const { return peers_.size(); }

 private:
  std::vector<std::uint32_t> first_;  // by node: index of its first port in peers_
  std::vector<Peer> peers_;
};

inline constexpr std::uint32_t max_switch_ports = 32'767;
inline constexpr std::uint32_t max_nodes = 4'194'304;

struct LinkSettings {
  std::int64_t bits_per_second = 400'000'000'000;
  Time delay = Time::microseconds(1);
};

struct SingleSwitchSettings {
  std::uint32_t hosts = 2;
  LinkSettings link = {};
};

struct LeafSpineSettings {
  std::uint32_t leaves = 2;
  std::uint32_t spines = 2;
  std::uint32_t hosts_per_leaf = 2;
  std::uint32_t links_per_pair = 1;  // parallel links from each leaf to each spine
  LinkSettings host_link = {};
  LinkSettings uplink = {};
};

// Three tiers of switches with k ports (Al-Fares et al. 2008): k pods of k/2 edge and k/2
// aggregation switches, and (k/2)² cores.
struct FatTreeSettings {
  std::uint32_t k = 4;
  std::uint32_t hosts_per_edge = 0;  // 0: k/2; more oversubscribes the edge
  LinkSettings host_link = {};
  LinkSettings uplink = {};
};

// Each server has one adapter for each rail: host = server · rails + rail. The servers of a group
// share one leaf for each rail: leaf = group · rails + rail. The last group may be smaller.
struct RailOptimisedSettings {
  std::uint32_t servers = 2;
  std::uint32_t rails = 8;
  std::uint32_t servers_per_group = 32;
  std::uint32_t spines = 2;
  LinkSettings host_link = {};
  LinkSettings uplink = {};
};

// Each rail is a separate network: host = server · rails + rail. Each group of servers has a leaf
// in it, leaf = rail · groups + group, and the leaves of a rail have so many spines. With one group
// there are no spines.
struct RailOnlySettings {
  std::uint32_t servers = 2;
  std::uint32_t rails = 8;
  std::uint32_t servers_per_group = 32;
  std::uint32_t spines = 2;  // of a rail
  LinkSettings host_link = {};
  LinkSettings uplink = {};
};

// Kim et al. 2008: the routers of a group are all linked to each other. The groups are all linked
// too, by global links dealt over the routers. With fewer groups than possible, each pair of groups
// has as many links as fit for all pairs.
struct DragonflySettings {
  std::uint32_t groups = 0;  // 0: the most possible, routers_per_group · global_links + 1
  std::uint32_t routers_per_group = 4;
  std::uint32_t hosts_per_router = 2;
  std::uint32_t global_links = 2;  // for each router
  LinkSettings host_link = {};
  LinkSettings local_link = {};
  LinkSettings global_link = {};
};

// A torus of one to three dimensions. Two switches in a dimension have one link, not two.
struct TorusSettings {
  std::vector<std::uint32_t> size = {4, 4};
  std::uint32_t hosts_per_switch = 1;
  LinkSettings host_link = {};
  LinkSettings switch_link = {};
};

// Each builder fails with one line that says which size is wrong and what it may be.
Result<Topology> single_switch(const SingleSwitchSettings& settings);
Result<Topology> leaf_spine(const LeafSpineSettings& settings);
Result<Topology> fat_tree(const FatTreeSettings& settings);
Result<Topology> rail_optimised(const RailOptimisedSettings& settings);
Result<Topology> rail_only(const RailOnlySettings& settings);
Result<Topology> dragonfly(const DragonflySettings& settings);
Result<Topology> torus(const TorusSettings& settings);

// Returns so many copies of a network side by side. Host h of copy c is host h · copies + c, and
// the switches of a tier are those of copy 0, then those of copy 1, and so on. The topology has
// tiers, and no aggregation nodes.
Result<Topology> side_by_side(const Topology& topology, std::uint32_t copies);
// Gives each adapter a port in each of so many planes, which are copies of the network.
Result<Topology> in_planes(const Topology& topology, std::uint32_t planes);

// Reads a table of links whose first line is "a,b,gbps,delay_ns". Empty lines and lines that begin
// with # are skipped. Nodes are numbers from 0 without gaps. The first nodes, those with exactly
// one link, are the hosts, and all others are switches. A line that comes twice means two parallel
// links. Fails with "FILE:LINE: what is wrong, and what to do".
Result<Topology> from_csv(std::string_view text, std::string_view file);

}  // namespace tulle::fabric

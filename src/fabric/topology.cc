#include "fabric/topology.h"

#include <algorithm>

#include "fabric/topology_builder.h"

namespace tulle::fabric {
namespace {

using Tier = Tiers::Tier;

Error size_error(std::string_view topology, const std::string& what) {
  return Error{std::string(topology) + ": " + what};
}

std::string number(std::uint64_t n) { return std::to_string(n); }

struct Size {
  std::string_view name;
  std::uint64_t value;
};

// Checks the sizes that all builders share: no size is 0, no switch has too many ports, and there
// are not too many nodes.
Result<void> check_sizes(std::string_view topology, std::initializer_list<Size> at_least_one,
                         std::uint64_t most_ports, std::uint64_t nodes) {
  for (const Size& size : at_least_one) {
    if (size.value == 0) {
      return size_error(topology, std::string(size.name) + " is at least 1, not 0");
    }
  }
  if (most_ports > max_switch_ports) {
    return size_error(topology, "a switch would have " + number(most_ports) + " ports; at most " +
                                    number(max_switch_ports) + " are possible, take more switches");
  }
  if (nodes > max_nodes) {
    return size_error(topology, "there would be " + number(nodes) +
                                    " hosts and switches; at most " + number(max_nodes) +
                                    " are possible, take smaller sizes");
  }
  return {};
}

// Returns the product, or a number too large for any limit here.
std::uint64_t product(std::initializer_list<std::uint64_t> factors) {
  std::uint64_t result = 1;
  for (const std::uint64_t factor : factors) {
    if (__builtin_mul_overflow(result, factor, &result)) return std::uint64_t{1} << 62;
  }
  return std::min(result, std::uint64_t{1} << 62);
}

std::uint32_t narrow(std::uint64_t n) { return static_cast<std::uint32_t>(n); }

}  // namespace

std::string Topology::name(std::uint32_t node) const {
  if (is_adapter(node)) return "host " + number(node);
  if (is_host(node)) return "aggregation " + number(node - adapters());
  const std::uint32_t index = node - hosts;
  if (const auto* torus = std::get_if<TorusShape>(&shape)) {
    const auto& size = torus->size;
    std::string coordinates = number(index % size[0]);
    if (size[1] > 1 || size[2] > 1) coordinates += "," + number(index / size[0] % size[1]);
    if (size[2] > 1) coordinates += "," + number(index / size[0] / size[1]);
    return "switch (" + coordinates + ")";
  }
  if (const auto* dragonfly = std::get_if<DragonflyShape>(&shape)) {
    return "group " + number(index / dragonfly->routers_per_group) + " router " +
           number(index % dragonfly->routers_per_group);
  }
  const Tier* tier = nullptr;
  for (const Tier& candidate : std::get<Tiers>(shape).tiers) {
    if (candidate.first <= node) tier = &candidate;
  }
  if (tier == nullptr) return "switch " + number(index);
  return std::string(tier->label) + " " + number(node - tier->first + tier->first_number);
}

std::optional<std::uint32_t> Topology::find(std::string_view wanted) const {
  for (std::uint32_t node = 0; node < nodes(); ++node) {
    if (name(node) == wanted) return node;
  }
  return std::nullopt;
}

Wiring::Wiring(const Topology& topology) {
  std::uint32_t next = 0;
  first_.reserve(topology.ports.size());
  for (const std::uint32_t ports : topology.ports) {
    first_.push_back(next);
    next += ports;
  }
  peers_.resize(next);
  for (std::uint32_t i = 0; i < topology.links.size(); ++i) {
    const Link& link = topology.links[i];
    peers_[first_[link.a] + link.a_port] = {link.b, i, link.b_port};
    peers_[first_[link.b] + link.b_port] = {link.a, i, link.a_port};
  }
}

Result<Topology> single_switch(const SingleSwitchSettings& s) {
  if (auto ok = check_sizes("single switch", {{"hosts", s.hosts}}, s.hosts, s.hosts + 1ull); !ok) {
    return ok.error();
  }
  TopologyBuilder build(s.hosts, 1, Tiers{{Tier{s.hosts, "switch"}}});
  for (std::uint32_t host = 0; host < s.hosts; ++host) build.link(host, s.hosts, s.link);
  return build.take();
}

Result<Topology> leaf_spine(const LeafSpineSettings& s) {
  const std::uint64_t hosts = product({s.leaves, s.hosts_per_leaf});
  const std::uint64_t leaf_ports = s.hosts_per_leaf + product({s.spines, s.links_per_pair});
  const std::uint64_t spine_ports = product({s.leaves, s.links_per_pair});
  if (auto ok = check_sizes("leaf-spine",
                            {{"leaves", s.leaves},
                             {"spines", s.spines},
                             {"hosts_per_leaf", s.hosts_per_leaf},
                             {"links_per_pair", s.links_per_pair}},
                            std::max(leaf_ports, spine_ports), hosts + s.leaves + s.spines);
      !ok) {
    return ok.error();
  }
  const std::uint32_t leaf = narrow(hosts), spine = leaf + s.leaves;
  TopologyBuilder build(leaf, s.leaves + s.spines,
                        Tiers{{Tier{leaf, "leaf"}, Tier{spine, "spine"}}});
  for (std::uint32_t host = 0; host < hosts; ++host) {
    build.link(host, leaf + host / s.hosts_per_leaf, s.host_link);
  }
  for (std::uint32_t i = 0; i < s.leaves; ++i) {
    for (std::uint32_t j = 0; j < s.spines; ++j) {
      for (std::uint32_t n = 0; n < s.links_per_pair; ++n) {
        build.link(leaf + i, spine + j, s.uplink);
      }
    }
  }
  return build.take();
}

Result<Topology> fat_tree(const FatTreeSettings& s) {
  if (s.k < 2 || s.k % 2 != 0) {
    return size_error("fat tree", "k is even and at least 2, not " + number(s.k));
  }
  const std::uint64_t half = s.k / 2;
  const std::uint64_t hosts_per_edge = s.hosts_per_edge == 0 ? half : s.hosts_per_edge;
  const std::uint64_t hosts = product({s.k, half, hosts_per_edge});
  const std::uint64_t switches = product({5, half, half});
  if (auto ok = check_sizes("fat tree", {}, std::max<std::uint64_t>(half + hosts_per_edge, s.k),
                            hosts + switches);
      !ok) {
    return ok.error();
  }
  const std::uint32_t h = narrow(half);
  const std::uint32_t edge = narrow(hosts), aggregation = edge + s.k * h,
                      core = aggregation + s.k * h;
  TopologyBuilder build(
      edge, narrow(switches),
      Tiers{{Tier{edge, "edge"}, Tier{aggregation, "aggregation"}, Tier{core, "core"}}});
  for (std::uint32_t host = 0; host < hosts; ++host) {
    build.link(host, edge + host / narrow(hosts_per_edge), s.host_link);
  }
  for (std::uint32_t e = 0; e < s.k * h; ++e) {
    const std::uint32_t pod = e / h;
    for (std::uint32_t a = 0; a < h; ++a) build.link(edge + e, aggregation + pod * h + a, s.uplink);
  }
  for (std::uint32_t a = 0; a < s.k * h; ++a) {
    for (std::uint32_t c = 0; c < h; ++c) {
      build.link(aggregation + a, core + a % h * h + c, s.uplink);
    }
  }
  return build.take();
}

Result<Topology> rail_optimised(const RailOptimisedSettings& s) {
  if (auto ok = check_sizes("rail-optimised",
                            {{"servers", s.servers},
                             {"rails", s.rails},
                             {"servers_per_group", s.servers_per_group},
                             {"spines", s.spines}},
                            0, 0);
      !ok) {
    return ok.error();
  }
  const std::uint64_t groups =
      (std::uint64_t{s.servers} + s.servers_per_group - 1) / s.servers_per_group;
  const std::uint64_t hosts = product({s.servers, s.rails});
  const std::uint64_t leaves = product({groups, s.rails});
  const std::uint64_t leaf_ports =
      std::min(s.servers, s.servers_per_group) + std::uint64_t{s.spines};
  if (auto ok = check_sizes("rail-optimised", {}, std::max(leaf_ports, leaves),
                            hosts + leaves + s.spines);
      !ok) {
    return ok.error();
  }
  const std::uint32_t leaf = narrow(hosts), spine = leaf + narrow(leaves);
  TopologyBuilder build(leaf, narrow(leaves) + s.spines,
                        Tiers{{Tier{leaf, "leaf"}, Tier{spine, "spine"}}});
  for (std::uint32_t host = 0; host < hosts; ++host) {
    const std::uint32_t group = host / s.rails / s.servers_per_group;
    build.link(host, leaf + group * s.rails + host % s.rails, s.host_link);
  }
  for (std::uint32_t i = 0; i < leaves; ++i) {
    for (std::uint32_t j = 0; j < s.spines; ++j) build.link(leaf + i, spine + j, s.uplink);
  }
  return build.take();
}

Result<Topology> dragonfly(const DragonflySettings& s) {
  const std::uint64_t global_links = product({s.routers_per_group, s.global_links});  // per group
  const std::uint64_t groups = s.groups == 0 ? global_links + 1 : s.groups;
  const std::uint64_t routers = product({groups, s.routers_per_group});
  const std::uint64_t hosts = product({routers, s.hosts_per_router});
  if (auto ok =
          check_sizes("dragonfly",
                      {{"routers_per_group", s.routers_per_group},
                       {"hosts_per_router", s.hosts_per_router},
                       {"global_links", s.global_links}},
                      std::uint64_t{s.routers_per_group} - 1 + s.hosts_per_router + s.global_links,
                      hosts + routers);
      !ok) {
    return ok.error();
  }
  if (groups < 2 || groups > global_links + 1) {
    return size_error("dragonfly", "groups is from 2 to routers_per_group * global_links + 1 = " +
                                       number(global_links + 1) + ", not " + number(groups));
  }
  const std::uint32_t first = narrow(hosts), a = s.routers_per_group, g = narrow(groups);
  TopologyBuilder build(first, narrow(routers), DragonflyShape{g, a});
  for (std::uint32_t host = 0; host < hosts; ++host) {
    build.link(host, first + host / s.hosts_per_router, s.host_link);
  }
  for (std::uint32_t group = 0; group < g; ++group) {
    for (std::uint32_t i = 0; i < a; ++i) {
      for (std::uint32_t j = i + 1; j < a; ++j) {
        build.link(first + group * a + i, first + group * a + j, s.local_link);
      }
    }
  }
  // Slot j of a round leads to the j+1st group after this one. Seen from there, it is slot g-2-j.
  const std::uint32_t rounds = narrow(global_links) / (g - 1);
  for (std::uint32_t group = 0; group < g; ++group) {
    for (std::uint32_t round = 0; round < rounds; ++round) {
      for (std::uint32_t j = 0; group + j + 1 < g; ++j) {
        const std::uint32_t slot = round * (g - 1) + j;
        const std::uint32_t far_slot = round * (g - 1) + g - 2 - j;
        build.link(first + group * a + slot / s.global_links,
                   first + (group + j + 1) * a + far_slot / s.global_links, s.global_link);
      }
    }
  }
  return build.take();
}

Result<Topology> torus(const TorusSettings& s) {
  if (s.size.empty() || s.size.size() > 3) {
    return size_error("torus", "1 to 3 dimensions are possible, not " + number(s.size.size()));
  }
  TorusShape shape;
  std::copy(s.size.begin(), s.size.end(), shape.size.begin());
  const auto& size = shape.size;
  const std::uint64_t switches = product({size[0], size[1], size[2]});
  const std::uint64_t hosts = product({switches, s.hosts_per_switch});
  if (auto ok = check_sizes("torus",
                            {{"size[0]", size[0]},
                             {"size[1]", size[1]},
                             {"size[2]", size[2]},
                             {"hosts_per_switch", s.hosts_per_switch}},
                            s.hosts_per_switch + 6ull, hosts + switches);
      !ok) {
    return ok.error();
  }
  const std::uint32_t first = narrow(hosts);
  TopologyBuilder build(first, narrow(switches), shape);
  for (std::uint32_t host = 0; host < hosts; ++host) {
    build.link(host, first + host / s.hosts_per_switch, s.host_link);
  }
  for (std::uint32_t i = 0; i < switches; ++i) {
    std::uint32_t stride = 1;
    for (const std::uint32_t n : size) {
      const std::uint32_t at = i / stride % n;
      const std::uint32_t next = (at + 1) % n;
      if (n > 2 || next > at)
        build.link(first + i, first + i - at * stride + next * stride, s.switch_link);
      stride *= n;
    }
  }
  return build.take();
}

}  // namespace tulle::fabric

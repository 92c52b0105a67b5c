// Topologies of several networks without links between them: rails, and planes.

#include <algorithm>
#include <string>

#include "base/check.h"
#include "fabric/topology.h"
#include "fabric/topology_builder.h"

namespace tulle::fabric {
namespace {

using Tier = Tiers::Tier;

// Returns the network of one rail. The last group may be smaller.
Result<Topology> one_rail(const RailOnlySettings& s, std::uint32_t groups) {
  if (groups == 1) {
    TopologyBuilder build(s.servers, 1, Tiers{{Tier{s.servers, "leaf"}}});
    for (std::uint32_t server = 0; server < s.servers; ++server) {
      build.link(server, s.servers, s.host_link);
    }
    return build.take();
  }
  const std::uint32_t leaf = s.servers, spine = leaf + groups;
  TopologyBuilder build(s.servers, groups + s.spines,
                        Tiers{{Tier{leaf, "leaf"}, Tier{spine, "spine"}}});
  for (std::uint32_t server = 0; server < s.servers; ++server) {
    build.link(server, leaf + server / s.servers_per_group, s.host_link);
  }
  for (std::uint32_t i = 0; i < groups; ++i) {
    for (std::uint32_t j = 0; j < s.spines; ++j) build.link(leaf + i, spine + j, s.uplink);
  }
  return build.take();
}

Error too_large(std::string_view what, std::uint64_t found, std::uint64_t most) {
  return Error{"there would be " + std::to_string(found) + " " + std::string(what) + "; at most " +
               std::to_string(most) + " are possible, take smaller sizes"};
}

// Numbers the nodes of a copy.
class CopiedNodes {
 public:
  CopiedNodes(const Topology& topology, std::uint32_t copies)
      : topology_(topology), tiers_(std::get<Tiers>(topology.shape)), copies_(copies) {}

  std::uint32_t operator()(std::uint32_t node, std::uint32_t copy) const {
    if (topology_.is_host(node)) return node * copies_ + copy;
    std::size_t tier = 0;
    while (tier + 1 < tiers_.tiers.size() && tiers_.tiers[tier + 1].first <= node) ++tier;
    const std::uint32_t first = tiers_.tiers[tier].first;
    const std::uint32_t next =
        tier + 1 < tiers_.tiers.size() ? tiers_.tiers[tier + 1].first : topology_.nodes();
    return first * copies_ + copy * (next - first) + (node - first);
  }
  Tiers tiers() const {
    Tiers tiers = tiers_;
    for (Tier& tier : tiers.tiers) tier.first *= copies_;
    return tiers;
  }

 private:
  const Topology& topology_;
  const Tiers& tiers_;
  std::uint32_t copies_;
};

}  // namespace

Result<Topology> side_by_side(const Topology& topology, std::uint32_t copies) {
  TULLE_CHECK(std::holds_alternative<Tiers>(topology.shape) && topology.aggregation_ports == 0);
  if (copies == 0) return Error{"a topology has at least 1 network"};
  if (copies == 1) return topology;
  const std::uint64_t nodes = std::uint64_t{topology.nodes()} * copies;
  if (nodes > max_nodes) return too_large("hosts and switches", nodes, max_nodes);
  const CopiedNodes copied(topology, copies);
  TopologyBuilder build(topology.hosts * copies, topology.switches * copies, copied.tiers());
  for (std::uint32_t copy = 0; copy < copies; ++copy) {
    for (const Link& link : topology.links) {
      build.link(copied(link.a, copy), copied(link.b, copy), {link.bits_per_second, link.delay});
    }
  }
  Topology result = build.take();
  result.networks = topology.networks * copies;
  result.planes = topology.planes;
  return result;
}

Result<Topology> in_planes(const Topology& topology, std::uint32_t planes) {
  auto result = side_by_side(topology, planes);
  if (result) result->planes *= planes;
  return result;
}

Result<Topology> rail_only(const RailOnlySettings& s) {
  const std::pair<const char*, std::uint32_t> sizes[] = {{"servers", s.servers},
                                                         {"rails", s.rails},
                                                         {"servers_per_group", s.servers_per_group},
                                                         {"spines", s.spines}};
  for (const auto& [name, value] : sizes) {
    if (value == 0) return Error{std::string("rail-only: ") + name + " is at least 1, not 0"};
  }
  const std::uint64_t groups =
      (std::uint64_t{s.servers} + s.servers_per_group - 1) / s.servers_per_group;
  const std::uint64_t leaf_ports =
      std::min(s.servers, s.servers_per_group) + (groups > 1 ? std::uint64_t{s.spines} : 0);
  const std::uint64_t ports = std::max(leaf_ports, groups);
  if (ports > max_switch_ports) {
    return Error{"rail-only: " + too_large("ports of a switch", ports, max_switch_ports).message};
  }
  const std::uint64_t nodes =
      (std::uint64_t{s.servers} + groups + (groups > 1 ? s.spines : 0)) * s.rails;
  if (nodes > max_nodes) {
    return Error{"rail-only: " + too_large("hosts and switches", nodes, max_nodes).message};
  }
  auto rail = one_rail(s, static_cast<std::uint32_t>(groups));
  return side_by_side(*rail, s.rails);
}

}  // namespace tulle::fabric

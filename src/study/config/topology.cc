#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "study/config/files.h"
#include "study/config/network.h"

namespace tulle::config {
namespace {

constexpr std::array<std::string_view, 8> kinds = {"single-switch",  "leaf-spine", "fat-tree",
                                                   "rail-optimised", "rail-only",  "dragonfly",
                                                   "torus",          "file"};
enum class TopologyKind {
  single_switch,
  leaf_spine,
  fat_tree,
  rail_optimised,
  rail_only,
  dragonfly,
  torus,
  file
};

constexpr std::int64_t many = 1 << 20;

std::uint32_t count(TableReader& table, std::string_view key, std::uint32_t otherwise) {
  return static_cast<std::uint32_t>(table.integer(key, otherwise, 0, many));
}

fabric::LinkSettings link(TableReader& table, const std::string& prefix,
                          const fabric::LinkSettings& otherwise) {
  return {table.rate(prefix + "rate", otherwise.bits_per_second),
          table.time(prefix + "delay", otherwise.delay)};
}

Result<fabric::Topology> from_file(TableReader& table, const std::string& folder) {
  const std::string name = table.text("file", "");
  if (name.empty()) return Error{"file is needed: a table of links, a,b,gbps,delay_ns"};
  auto path = find_file(folder, name);
  if (!path) return path.error();
  auto text = read_file(*path);
  if (!text) return text.error();
  return fabric::from_csv(*text, *path);
}

Result<fabric::Topology> build(TableReader& table, TopologyKind kind, const std::string& folder) {
  if (kind == TopologyKind::file) return from_file(table, folder);
  const fabric::LinkSettings host_link = link(table, "link_", {});
  switch (kind) {
    case TopologyKind::single_switch:
      return fabric::single_switch({count(table, "hosts", 2), host_link});
    case TopologyKind::leaf_spine:
      return fabric::leaf_spine(
          {count(table, "leaves", 2), count(table, "spines", 2), count(table, "hosts_per_leaf", 2),
           count(table, "links_per_pair", 1), host_link, link(table, "uplink_", host_link)});
    case TopologyKind::fat_tree:
      return fabric::fat_tree({count(table, "k", 4), count(table, "hosts_per_edge", 0), host_link,
                               link(table, "uplink_", host_link)});
    case TopologyKind::rail_optimised:
      return fabric::rail_optimised({count(table, "servers", 2), count(table, "rails", 8),
                                     count(table, "servers_per_group", 32),
                                     count(table, "spines", 2), host_link,
                                     link(table, "uplink_", host_link)});
    case TopologyKind::rail_only:
      return fabric::rail_only({count(table, "servers", 2), count(table, "rails", 8),
                                count(table, "servers_per_group", 32), count(table, "spines", 2),
                                host_link, link(table, "uplink_", host_link)});
    case TopologyKind::dragonfly:
      return fabric::dragonfly(
          {count(table, "groups", 0), count(table, "routers_per_group", 4),
           count(table, "hosts_per_router", 2), count(table, "global_links", 2), host_link,
           link(table, "local_", host_link), link(table, "global_", host_link)});
    default: {
      fabric::TorusSettings settings;
      settings.size.clear();
      for (const std::int64_t size : table.integers("size", {4, 4})) {
        settings.size.push_back(
            static_cast<std::uint32_t>(std::clamp<std::int64_t>(size, 0, many)));
      }
      settings.hosts_per_switch = count(table, "hosts_per_switch", 1);
      settings.host_link = host_link;
      settings.switch_link = link(table, "uplink_", host_link);
      return fabric::torus(settings);
    }
  }
}

// Returns the number of planes, each of which is a copy of the network.
std::uint32_t read_planes(TableReader& table) {
  constexpr std::int64_t planes_max = 16;
  return static_cast<std::uint32_t>(table.integer("planes", 1, 1, planes_max));
}

}  // namespace

fabric::Topology build_topology(TableReader table, const std::string& folder) {
  if (!table.is_given()) {
    table.findings().add(0, "topology", "is required: it describes the hosts, switches and links");
    return {};
  }
  const TopologyKind kind = table.choice("kind", kinds, TopologyKind::single_switch);
  const std::uint32_t planes = read_planes(table);
  auto topology = build(table, kind, folder);
  table.finish();
  if (topology && planes > 1) {
    if (kind >= TopologyKind::dragonfly) {
      table.wrong("planes", fmt::format("goes with networks of tiers, and not with \"{}\"",
                                        kinds[static_cast<std::size_t>(kind)]));
      return {};
    }
    topology = fabric::in_planes(*topology, planes);
  }
  if (topology) return std::move(*topology);
  table.wrong("kind", topology.error().message);
  return {};
}

}  // namespace tulle::config

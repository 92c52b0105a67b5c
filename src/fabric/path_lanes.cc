#include "fabric/path_lanes.h"

#include <algorithm>
#include <array>
#include <variant>

#include "base/check.h"

namespace tulle::fabric {
namespace {

// In a ring of up to this many switches, no path has two links of the ring, so that none waits for
// another.
constexpr std::uint32_t harmless_ring = 3;

}  // namespace

PathLanes::PathLanes(const Topology& topology, std::uint32_t lanes_per_qos_level)
    : hosts_(topology.hosts), lanes_per_qos_level_(lanes_per_qos_level) {
  for (std::uint32_t node = topology.hosts; node < topology.nodes(); ++node) {
    ways_.emplace_back(topology.ports[node]);
  }
  for (const Link& link : topology.links) {
    if (!topology.is_host(link.a)) ways_[link.a - hosts_][link.a_port].to = link.b;
    if (!topology.is_host(link.b)) ways_[link.b - hosts_][link.b_port].to = link.a;
  }
}

PathLanes PathLanes::dragonfly(const Topology& topology) {
  const auto* shape = std::get_if<DragonflyShape>(&topology.shape);
  TULLE_CHECK(shape != nullptr);
  PathLanes lanes(topology, 2);
  lanes.find_global_links(*shape);
  lanes.fill([](const Way& in, const Way&, std::uint32_t) { return in.is_global; });
  return lanes;
}

PathLanes PathLanes::dragonfly_non_minimal(const Topology& topology) {
  const auto* shape = std::get_if<DragonflyShape>(&topology.shape);
  TULLE_CHECK(shape != nullptr);
  PathLanes lanes(topology, 3);
  lanes.find_global_links(*shape);
  lanes.fill([](const Way&, const Way&, std::uint32_t) { return false; });
  port::LaneRow same, next;
  same.fill(port::vl15);
  next.fill(port::vl15);
  for (std::uint32_t lane = 0; lane < port::classes; ++lane) {
    const bool is_last = lane % 3 == 2 || lane + 1 == port::classes;
    same[lane] = static_cast<std::uint8_t>(lane);
    if (!is_last) next[lane] = static_cast<std::uint8_t>(lane + 1);
  }
  for (std::size_t at = 0; at < lanes.ways_.size(); ++at) {
    const std::vector<Way>& ways = lanes.ways_[at];
    const auto ports = static_cast<std::uint16_t>(ways.size());
    port::SlToVl table(same, ports);
    table.take_lanes();
    for (std::uint16_t in = 0; in < ports; ++in) {
      for (std::uint16_t out = 0; ways[in].is_global && out < ports; ++out) {
        table.set(in, out, next);
      }
    }
    lanes.plan_.switches[at] = std::move(table);
  }
  return lanes;
}

void PathLanes::find_global_links(const DragonflyShape& shape) {
  const auto group = [&](std::uint32_t index) { return index / shape.routers_per_group; };
  for (std::uint32_t at = 0; at < ways_.size(); ++at) {
    for (Way& way : ways_[at]) {
      way.is_global = way.to >= hosts_ && group(way.to - hosts_) != group(at);
    }
  }
}

PathLanes PathLanes::torus(const Topology& topology) {
  const auto* shape = std::get_if<TorusShape>(&topology.shape);
  TULLE_CHECK(shape != nullptr);
  PathLanes lanes(topology, 2);
  std::array<std::uint8_t, 3> bit_of_dimension{};
  for (std::size_t dimension = 0; dimension < 3; ++dimension) {
    const bool needs_one = shape->size[dimension] > harmless_ring;
    bit_of_dimension[dimension] =
        needs_one ? static_cast<std::uint8_t>(lanes.path_bits_++) : no_bit;
  }
  for (std::uint32_t at = 0; at < topology.switches; ++at) {
    for (Way& way : lanes.ways_[at]) {
      if (topology.is_host(way.to)) continue;
      const std::uint32_t to = way.to - topology.hosts;
      std::uint32_t stride = 1;
      for (std::size_t dimension = 0; dimension < 3; ++dimension) {
        const std::uint32_t size = shape->size[dimension];
        const std::uint32_t here = at / stride % size, there = to / stride % size;
        stride *= size;
        if (here == there) continue;
        way.bit = bit_of_dimension[dimension];
        way.crosses = std::max(here, there) - std::min(here, there) > 1;
      }
    }
  }
  lanes.fill([](const Way&, const Way& out, std::uint32_t level) {
    return out.bit != no_bit && (level >> out.bit & 1) != 0;
  });
  return lanes;
}

template <typename SecondLane>
void PathLanes::fill(SecondLane second_lane) {
  for (std::uint32_t level = 0; level < port::service_levels; ++level) {
    plan_.hosts[level] = lane(level, 0);
  }
  for (const std::vector<Way>& ways : ways_) {
    const auto ports = static_cast<std::uint16_t>(ways.size());
    port::SlToVl& table = plan_.switches.emplace_back(plan_.hosts, ports);
    for (std::uint16_t in = 0; in < ports; ++in) {
      for (std::uint16_t out = 0; out < ports; ++out) {
        port::LaneRow row;
        for (std::uint32_t level = 0; level < port::service_levels; ++level) {
          row[level] = lane(level, second_lane(ways[in], ways[out], level) ? 1 : 0);
        }
        table.set(in, out, row);
      }
    }
  }
}

std::uint8_t PathLanes::lane(std::uint32_t level, std::uint32_t number) const {
  const std::uint32_t lane = (level >> path_bits_) * lanes_per_qos_level_ + number;
  return lane < port::classes ? static_cast<std::uint8_t>(lane) : port::vl15;
}

std::uint32_t PathLanes::qos_levels_max() const {
  return std::min(port::classes / lanes_per_qos_level_, port::service_levels >> path_bits_);
}

std::uint8_t PathLanes::service_level(const Routes& routes, std::uint32_t leaf_node,
                                      std::uint32_t host, std::uint8_t qos_level,
                                      std::uint32_t path) const {
  std::uint32_t level = std::uint32_t{qos_level} << path_bits_;
  std::uint32_t node = leaf_node;
  while (path_bits_ != 0 && node != host) {
    const std::uint16_t port = routes.port(node, host, path);
    if (port == Routes::no_port) break;
    const Way& way = ways_[node - hosts_][port];
    if (way.crosses && way.bit != no_bit) level |= 1u << way.bit;
    node = way.to;
  }
  return static_cast<std::uint8_t>(level);
}

}  // namespace tulle::fabric

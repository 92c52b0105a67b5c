#pragma once

// Connected graphs without any order for tests, drawn from a seed.

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "base/random.h"
#include "fabric/topology.h"
#include "fabric/topology_builder.h"

namespace tulle::fabric {

// Returns a graph of 2 to 25 switches, a tree plus random links (some parallel), with 2 to 40 hosts
// on some of them.
inline Topology random_topology(std::uint64_t seed) {
  Random random(seed);
  const auto draw = [&](std::uint64_t bound) {
    return static_cast<std::uint32_t>(random.below(bound));
  };
  const std::uint32_t switches = 2 + draw(24), hosts = 2 + draw(39);
  // Switches are numbered in a random order, so that a number says nothing about a switch's place.
  std::vector<std::uint32_t> node(switches);
  std::iota(node.begin(), node.end(), hosts);
  for (std::uint32_t i = switches - 1; i > 0; --i) std::swap(node[i], node[draw(i + 1)]);

  TopologyBuilder build(hosts, switches, Tiers{});
  for (std::uint32_t host = 0; host < hosts; ++host) build.link(host, node[draw(switches)], {});
  for (std::uint32_t i = 1; i < switches; ++i) build.link(node[i], node[draw(i)], {});
  for (std::uint32_t n = draw(2 * switches + 1); n > 0; --n) {
    const std::uint32_t a = draw(switches), b = draw(switches);
    if (a != b) build.link(node[a], node[b], {});
  }
  return build.take();
}

}  // namespace tulle::fabric

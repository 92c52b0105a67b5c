#pragma once

// For tests: connected graphs without any order, from a seed.

#include <cstdint>

#include "base/random.h"
#include "fabric/topology.h"
#include "fabric/topology_builder.h"

namespace tulle::fabric {

// 2 to 25 switches, a tree plus random links (some parallel), and 2 to 40 hosts on some of them.
inline Topology random_topology(std::uint64_t seed) {
  Random random(seed);
  const auto draw = [&](std::uint64_t bound) {
    return static_cast<std::uint32_t>(random.below(bound));
  };
  const std::uint32_t switches = 2 + draw(24), hosts = 2 + draw(39);
  TopologyBuilder build(hosts, switches, Tiers{});
  for (std::uint32_t host = 0; host < hosts; ++host) build.link(host, hosts + draw(switches), {});
  for (std::uint32_t i = 1; i < switches; ++i) build.link(hosts + i, hosts + draw(i), {});
  for (std::uint32_t n = draw(2 * switches + 1); n > 0; --n) {
    const std::uint32_t a = draw(switches), b = draw(switches);
    if (a != b) build.link(hosts + a, hosts + b, {});
  }
  return build.take();
}

}  // namespace tulle::fabric

#pragma once

// Can this routing lock up? Where a full buffer holds its sender back (InfiniBand's credits, RoCE's
// pauses), packets wait for each other along the routes; they can wait in a circle only if the
// channel dependency graph has one (Dally and Seitz 1987). A channel is a link's one direction on
// one virtual lane (or one priority, with pauses); it depends on the channels that its packets take
// next.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fabric/non_minimal.h"
#include "fabric/path_lanes.h"
#include "fabric/routing.h"
#include "fabric/topology.h"

namespace tulle::fabric {

// A packet at a switch, about to leave.
struct Hop {
  std::uint32_t switch_node = 0;
  std::uint32_t leaf_node = 0;  // the last switch, with the destination host
  std::uint16_t in_port = 0, out_port = 0;
  std::uint8_t sl = 0;     // its service level
  std::uint8_t in_vl = 0;  // its lane, if it comes from another switch
  bool from_host = false;  // then in_port is one of the switch's hosts, which are all alike
};

// The virtual lane on which the packet leaves. Empty: it stays on lane 0.
using VlMap = std::function<std::uint8_t(const Hop&)>;

// The service level of what a leaf's hosts send to a host, by one of its 2^lmc paths.
using SlMap =
    std::function<std::uint8_t(std::uint32_t leaf_node, std::uint32_t host, std::uint32_t path)>;

struct DeadlockSettings {
  unsigned vls = 1;  // lanes 0 … vls-1
  VlMap vl = {};
  SlMap sl = {};  // empty: all have level 0
  // Which routes: every candidate (a switch may take any), or only Routes::port for all of a host's
  // 2^lmc paths.
  bool forwarding_tables = false;
  unsigned lmc = 0;
  // Beside the routes, those by way of any group; must outlive the check. Null: none.
  const GroupRoutes* non_minimal = nullptr;
};

struct Channel {
  std::uint32_t from = 0, to = 0;  // switches
  std::uint16_t from_port = 0, to_port = 0;
  std::uint8_t vl = 0;

  bool operator==(const Channel&) const = default;
};

struct DeadlockReport {
  std::vector<Channel>
      cycle;                 // each depends on the next, the last on the first; empty: no deadlock
  std::size_t channels = 0;  // between switches, in use
  std::size_t dependencies = 0;

  bool deadlock_free() const { return cycle.empty(); }
};

// With those lanes, for one QoS level: each has lanes of its own. `lanes` and `routes` must
// outlive what is returned.
DeadlockSettings with_lanes(const PathLanes& lanes, const Routes& routes);

// Whether every route climbs away from the hosts first, if at all, and then descends, as on trees:
// then there is no circle, on whatever lanes (Schroeder et al. 1991). One pass over the tables,
// where check_deadlock follows every route. False: it has to.
bool climbs_then_descends(const Topology& topology, const Routes& routes);

// Follows all routes between leaves. `routes` must be of this topology, and settings.vl stay below
// settings.vls.
DeadlockReport check_deadlock(const Topology& topology, const Routes& routes,
                              const DeadlockSettings& settings = {});

// For people: "leaf 3 → spine 4 → leaf 3", with " (VL 1)" after a switch that is left on another
// lane than 0.
std::string describe_cycle(const Topology& topology, std::span<const Channel> cycle);

}  // namespace tulle::fabric

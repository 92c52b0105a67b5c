#pragma once

// Checks whether a routing can deadlock. Where a full buffer holds its sender back (InfiniBand's
// credits, RoCE's pauses), packets wait for each other along the routes. They can wait in a circle
// only if the channel dependency graph has a cycle (Dally and Seitz 1987). A channel is one
// direction of a link on one virtual lane (or one priority, with pauses). It depends on the
// channels that its packets take next.

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

// A packet that is about to leave a switch.
struct Hop {
  std::uint32_t switch_node = 0;
  std::uint32_t leaf_node = 0;  // last switch, which has the destination host
  std::uint16_t in_port = 0, out_port = 0;
  std::uint8_t sl = 0;     // service level of the packet
  std::uint8_t in_vl = 0;  // lane of the packet, if it comes from another switch
  // If true, in_port is the port of one of the switch's hosts, which are all alike.
  bool from_host = false;
};

// Returns the virtual lane on which the packet leaves. An empty function means lane 0.
using VlMap = std::function<std::uint8_t(const Hop&)>;

// Returns the service level of the packets from a leaf's hosts to a host, on one of the host's
// 2^lmc paths.
using SlMap =
    std::function<std::uint8_t(std::uint32_t leaf_node, std::uint32_t host, std::uint32_t path)>;

struct DeadlockSettings {
  unsigned vls = 1;  // lanes 0 … vls-1
  VlMap vl = {};
  SlMap sl = {};  // empty: all packets have level 0
  // Selects the routes to check. False means every candidate, since a switch may take any. True
  // means only Routes::port, for all 2^lmc paths of a host.
  bool forwarding_tables = false;
  unsigned lmc = 0;
  // Also checks the routes by way of any third group. The object must outlive the check. Null means
  // the plain routes only.
  const GroupRoutes* non_minimal = nullptr;
};

struct Channel {
  std::uint32_t from = 0, to = 0;  // switches
  std::uint16_t from_port = 0, to_port = 0;
  std::uint8_t vl = 0;

  bool operator==(const Channel&) const = default;
};

struct DeadlockReport {
  // Each channel depends on the next, and the last on the first. Empty means no deadlock.
  std::vector<Channel> cycle;
  std::size_t channels = 0;  // channels between switches that are in use
  std::size_t dependencies = 0;

  bool deadlock_free() const { return cycle.empty(); }
};

// Returns settings with these lanes for one level of quality of service; every level has separate
// lanes. `lanes` and `routes` must outlive the result.
DeadlockSettings with_lanes(const PathLanes& lanes, const Routes& routes);

// Returns true if every route first climbs away from the hosts (or does not climb) and then
// descends, as routes on trees do. Such routes have no cycle, on any lanes (Schroeder et al. 1991).
// This takes one pass over the tables, where check_deadlock follows every route. If the result is
// false, check_deadlock must decide.
bool climbs_then_descends(const Topology& topology, const Routes& routes);

// Follows all routes between leaves. `routes` must belong to this topology, and settings.vl must
// return lanes below settings.vls.
DeadlockReport check_deadlock(const Topology& topology, const Routes& routes,
                              const DeadlockSettings& settings = {});

// Describes the cycle for people: "leaf 3 → spine 4 → leaf 3", with " (VL 1)" after a switch that
// packets leave on a lane other than 0.
std::string describe_cycle(const Topology& topology, std::span<const Channel> cycle);

}  // namespace tulle::fabric

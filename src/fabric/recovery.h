#pragma once

// Plans how a fabric routes around links that are down: when each switch learns of a change, and by
// which routes it forwards from then on. The plan is computed in advance from the times at which
// links go down and come up. A simulation only has to hand each switch its changes in time.
//
//   Ethernet    A switch notices that one of its ports is dead, and removes it from its groups of
//               equal-cost ports. Its routing protocol then tells all other switches, which compute
//               new routes. Until a switch knows, it sends into the dead port.
//   InfiniBand  Switches do not compute routes. The subnet manager is told by a trap, or finds out
//               at its next sweep, computes new forwarding tables and writes them into one switch
//               after the other. A link that comes up carries data once the manager has made its
//               ports active, which it does after the tables (IBTA 7.2, 14.2.5.10).
//
// Links of hosts do not affect routes: the routes to a host lead to its switch in any case.

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "fabric/routing.h"
#include "fabric/topology.h"

namespace tulle::fabric {

struct Outage {
  std::uint32_t link = 0;  // index in Topology::links
  Time from = Time::zero();
  Time until = Time::never();

  bool operator==(const Outage&) const = default;
};

// Sorts outages by link and time, and joins those that touch or overlap.
std::vector<Outage> merged(std::vector<Outage> outages);

struct RecoverySettings {
  bool subnet_manager = false;
  // Ethernet. `detection` is the time from a link's failure until its ends stop using it, and
  // `routing` the time from then until all switches have new routes. The same times apply when a
  // link comes up. The defaults are PortLand's (Mysore et al., SIGCOMM 2009; from memory): 50 ms
  // without a keep-alive, 65 ms until a fat tree has converged.
  Time detection = Time::milliseconds(50);
  Time routing = Time::milliseconds(15);
  // InfiniBand. Without traps the manager finds out at the next multiple of its interval (OpenSM's
  // sweep_interval: 10 s). The other times are assumptions.
  bool traps = true;
  Time trap_delay = Time::milliseconds(1);
  Time sweep_interval = Time::milliseconds(10'000);
  Time computing = Time::milliseconds(10);    // for all tables
  Time programming = Time::microseconds(10);  // for one block of a switch's table, 64 entries
  unsigned lmc = 0;
};

struct RouteChange {
  Time at;
  std::uint32_t node = 0;
  std::uint32_t version = 0;
};
// A switch stops using a port, or uses it again.
struct PortAvoidance {
  Time at;
  std::uint32_t node = 0;
  std::uint16_t port = 0;
  bool is_avoided = false;
};

struct Recovery {
  std::vector<Outage> outages;  // times during which a link passes no data, by link and time
  std::vector<Routes> versions;
  // The failed links that the routes of each version avoid.
  std::vector<std::vector<std::uint32_t>> failed;
  std::vector<RouteChange> route_changes;  // in order of time
  std::vector<PortAvoidance> avoidances;   // in order of time
};

// Fails with the error of compute_routes.
Result<Recovery> plan_recovery(const Topology& topology, const RoutingSettings& routing,
                               const RecoverySettings& settings, std::vector<Outage> outages);

}  // namespace tulle::fabric

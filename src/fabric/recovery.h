#pragma once

// How a fabric finds its way around links that are down: when which switch learns of it, and what
// it forwards by from then on. All of it is worked out beforehand, from the times at which links go
// down and come up, so that a simulation only has to hand each switch its changes at their time.
//
//   Ethernet    A switch notices that a port of its own is dead, and takes it out of its groups of
//               equal-cost ports. Its routing protocol then tells all others, who compute new
//               routes. Until a switch knows, it sends into the dead port.
//   InfiniBand  Switches know nothing of routes: the subnet manager is told by a trap, or finds out
//               when it sweeps the next time, computes new forwarding tables and writes them into
//               one switch after the other. A link that comes up carries data when the manager has
//               made its ports active, which it does after the tables (IBTA
//               7.2, 14.2.5.10).
//
// Links of hosts are no matter of routes: those to a host lead to its switch all the same.

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "fabric/routing.h"
#include "fabric/topology.h"

namespace tulle::fabric {

struct Outage {
  std::uint32_t link = 0;  // of Topology::links
  Time from = Time::zero();
  Time until = Time::never();

  bool operator==(const Outage&) const = default;
};

// By link and time, those that touch or overlap as one.
std::vector<Outage> merged(std::vector<Outage> outages);

struct RecoverySettings {
  bool subnet_manager = false;
  // Ethernet. From a link's going down to its ends' not using it, and from that to all switches'
  // having new routes; the same when it comes up. The defaults are PortLand's (Mysore et al.,
  // SIGCOMM 2009; from memory): 50 ms without a keep-alive, 65 ms until a fat tree has converged.
  Time detection = Time::milliseconds(50);
  Time routing = Time::milliseconds(15);
  // InfiniBand. Without traps the manager finds out at the next multiple of its interval (OpenSM's
  // sweep_interval: 10 s). The other times are assumptions.
  bool traps = true;
  Time trap_delay = Time::milliseconds(1);
  Time sweep_interval = Time::milliseconds(10'000);
  Time computing = Time::milliseconds(10);    // of all tables
  Time programming = Time::microseconds(10);  // of one block of a switch's table, 64 entries
  unsigned lmc = 0;
};

struct RouteChange {
  Time at;
  std::uint32_t node = 0;
  std::uint32_t version = 0;
};
// A switch stops using a port, or begins to again.
struct PortAvoidance {
  Time at;
  std::uint32_t node = 0;
  std::uint16_t port = 0;
  bool is_avoided = false;
};

struct Recovery {
  std::vector<Outage> outages;  // while which no data pass, by link and time
  std::vector<Routes> versions;
  std::vector<std::vector<std::uint32_t>> failed;  // by version: the links that it does without
  std::vector<RouteChange> route_changes;          // in the order of time
  std::vector<PortAvoidance> avoidances;           // in the order of time
};

// The error: as compute_routes has it.
Result<Recovery> plan_recovery(const Topology& topology, const RoutingSettings& routing,
                               const RecoverySettings& settings, std::vector<Outage> outages);

}  // namespace tulle::fabric

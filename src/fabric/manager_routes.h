#pragma once

// Routes for a subnet manager: from the graph that it has found to the forwarding tables of the
// switches, by the same rules as the simulator's (fabric/routing.h).

#include "fabric/routing.h"
#include "management/subnet/graph.h"

namespace tulle::fabric {

// Writes the table of each switch. A graph in tiers is routed as a fat tree, and any other up and
// down, so that no routes between adapters can deadlock. What such routes leave out, the LIDs of
// switches among them, is reached by a shortest path.
void route_subnet(management::subnet::Graph& graph);

}  // namespace tulle::fabric

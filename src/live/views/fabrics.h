#pragma once

// Software fabrics as text for people, and as JSON. What their processes say of themselves is cut
// to one line wherever it is printed in a line.

#include <span>
#include <string>

#include "live/fabric/fabrics.h"
#include "live/fabric/messages.h"
#include "live/fabric/surroundings.h"

namespace tulle::live {

// Returns what a fabric has that was started with these options. `network` is the sentence about
// its hosts' network.
std::string started_text(const FabricOptions& options, const std::string& network);

// Return a user's fabrics; those of this network namespace are marked.
std::string fabrics_text(std::span<const FoundFabric> fabrics,
                         const std::string& network_namespace);
std::string fabrics_json(std::span<const FoundFabric> fabrics,
                         const std::string& network_namespace);

// Return the machines of a fabric and its nodes, with their ports and cables.
std::string fabric_text(const FabricNodes& nodes, const FabricMachines& machines);
std::string fabric_json(const std::string& name, const FabricNodes& nodes,
                        const FabricMachines& machines);

}  // namespace tulle::live

#pragma once

// The process of a software fabric: the switches and adapters of a topology, with their management
// agents (fabric/subnet.h), and connections of the programs that run on its hosts.

#include <string>

#include "live/fabric/surroundings.h"

namespace tulle::live {

// Serves until `tulle fabric down`, SIGTERM or SIGINT. Calls `ready` when programs may connect,
// with a sentence about the hosts' network. Returns an exit status; a message for people is on
// standard error.
int run_fabric(const FabricOptions& options, void (*ready)(const std::string& network));

}  // namespace tulle::live

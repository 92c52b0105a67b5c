#pragma once

// The software fabrics of this user. A fabric goes by a name, in the network namespace in which it
// was started.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "live/fabric/surroundings.h"

namespace tulle::live {

// Receives a line for a person: which folder the environment names and is not used, and why.
using Warn = std::function<void(const std::string& line)>;

// Returns the name of a fabric: the usual one's if it is empty.
std::string fabric_name(const std::string& name);

// Returns the number of the network namespace whose fabrics this process knows by name. On a host
// of a fabric, which is a namespace itself, it is that of the fabric.
std::string fabrics_namespace();

// Returns the folder of a fabric, which is made if it does not exist.
Result<std::string> fabric_folder(const std::string& name, const Warn& warn);

// Returns the address of a fabric's process, which may be down. Without a name, that is the fabric
// on whose host this process runs, or else the usual one.
Result<std::string> fabric_address(const std::string& name, const Warn& warn);

struct FoundFabric {
  std::string name;
  std::string network_namespace;
  int process = 0;
  std::size_t hosts = 0;
  std::size_t switches = 0;
};
// Returns this user's fabrics that are up, of all network namespaces, by name. Removes what dead
// ones left behind.
std::vector<FoundFabric> find_fabrics(const Warn& warn);

// Returns a topology for a first try: two switches with a cable between them, and two hosts at
// each.
fabric::Topology usual_topology();

// Returns an error if the topology is none that a subnet can be.
Result<void> check_subnet(const fabric::Topology& topology);

// Gives each node of the topology to one of the machines, and checks the key file, whose path
// becomes absolute. Does nothing without machines. `file` names the topology in an error.
Result<void> place_nodes(FabricOptions& options, const std::string& file);

// A fabric in a separate process.
struct StartedFabric {
  std::string network;  // a sentence about the hosts' network
  // The fabric's process has ended with this status, and a message for people is on standard error.
  // 0: programs may connect.
  int status = 0;
};
// Starts a fabric and waits until programs may connect. The new process keeps nothing of its
// caller. Call it while this process has one thread.
Result<StartedFabric> start_fabric(const FabricOptions& options);

}  // namespace tulle::live

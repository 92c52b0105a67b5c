#pragma once

// The options of a software fabric, and all that its process needs of the machine before it begins.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "fabric/machines/placement.h"
#include "fabric/topology.h"
#include "live/fabric/host_networks.h"
#include "live/fabric/other_machines.h"
#include "management/subnet/manager.h"

namespace tulle::live {

struct FabricOptions {
  std::string name = "default";
  std::string folder;  // of its socket and files; it belongs to this user alone
  fabric::Topology topology;
  bool has_manager = false;  // it has its own subnet manager
  // That manager's M_Key and SM_Key, which other managers know; 0: it has no M_Key. Without a
  // value, it has an M_Key that nobody else knows.
  std::optional<std::uint64_t> manager_key{};
  // The hosts have their own IP networks, where this machine can make them.
  bool has_networks = false;
  bool keeps_rates = false;  // packets take time on its links
  // The machines over which it is spread, and the one that has each node; empty: this one has all.
  std::vector<fabric::Machine> machines{};
  std::vector<std::uint32_t> machine_of{};
  std::string machine{};  // the name of this one; empty: that whose address this one has
  // A file with the key that seals what goes between them; empty: nothing is sealed.
  std::string key_file{};

  // Says of each node whether it is elsewhere if this machine is the one of that number. Empty
  // means that none is.
  std::vector<bool> is_elsewhere(std::uint32_t own) const;
};

// Returns the settings of the fabric's own managers, with numbers that nobody can predict.
management::subnet::ManagerSettings manager_settings(const FabricOptions& options);

struct Surroundings {
  std::optional<MachineSocket> socket;   // none: the fabric has one machine
  std::optional<HostNetworks> networks;  // none: the hosts share this machine's IP network
  std::string sentence;                  // about both, for a person
};
// Opens the socket for other machines, and starts the hosts' networks where this machine can make
// them. The error is one line for a person.
Result<Surroundings> prepare(const FabricOptions& options);

}  // namespace tulle::live

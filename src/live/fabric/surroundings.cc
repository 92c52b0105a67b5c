#include "live/fabric/surroundings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/quoted.h"
#include "fabric/subnet.h"
#include "os/system_random.h"

namespace tulle::live {
namespace {

// Returns true if the machine has run out of something, and can make networks at other times.
bool is_want(int error) {
  constexpr std::array wants = {EAGAIN, EDQUOT,  EFBIG,  EIO,   EMFILE,
                                ENFILE, ENOBUFS, ENOMEM, ENOSPC};
  return std::ranges::find(wants, error) != wants.end();
}

// Starts the networks of hosts, or says in `sentence` why this machine cannot have them.
Result<std::optional<HostNetworks>> start_networks(const std::string& folder,
                                                   const std::vector<bool>& is_elsewhere,
                                                   std::string& sentence) {
  auto networks = HostNetworks::start(folder, is_elsewhere);
  if (!networks) {
    const Error& error = networks.error();
    if (is_want(error.error_number)) {
      return Error{
          fmt::format("cannot make the hosts' networks: {} (--shared-network goes without)",
                      error.message),
          error.error_number};
    }
    sentence = fmt::format("Its hosts share this machine's IP network: {}.", error.message);
    return std::optional<HostNetworks>();
  }
  const auto first = static_cast<std::uint32_t>(
      std::find(is_elsewhere.begin(), is_elsewhere.end(), false) - is_elsewhere.begin());
  const std::string name = fabric::host_name(first);
  sentence =
      fmt::format("Its hosts have an IP network, in which {} is {}.", name, host_address(first));
  const std::string& lacks = networks->no_interfaces();
  sentence += lacks.empty()
                  ? fmt::format("\nThey have IP over InfiniBand (ib0), in which {} is {}.", name,
                                infiniband_address(first))
                  : fmt::format("\nThey have no IP over InfiniBand: {}.", lacks);
  return std::optional<HostNetworks>(std::move(*networks));
}

}  // namespace

std::vector<bool> FabricOptions::is_elsewhere(std::uint32_t own) const {
  return fabric::Tunnels::elsewhere({machine_of, 0, own, 0});
}

management::subnet::ManagerSettings manager_settings(const FabricOptions& options) {
  management::subnet::ManagerSettings settings;
  settings.seed = system_random();
  settings.draw = system_random;
  const std::uint64_t given = options.manager_key.value_or(0);
  settings.ports.key = options.manager_key ? given : management::subnet::drawn_key(settings.draw);
  settings.shares_keys = given != 0;
  if (settings.shares_keys) settings.manager_key = given;
  return settings;
}

Result<Surroundings> prepare(const FabricOptions& options) {
  Surroundings around;
  around.sentence = "Its hosts share this machine's IP network.";
  std::uint32_t own = 0;
  if (!options.machines.empty()) {
    auto opened = MachineSocket::open(options.machines, options.machine, options.key_file);
    if (!opened) return opened.error();
    own = opened->own();
    around.socket = std::move(*opened);
  }
  if (options.has_networks) {
    std::vector<bool> is_elsewhere = options.is_elsewhere(own);
    is_elsewhere.resize(options.topology.adapters());
    auto networks = start_networks(options.folder, is_elsewhere, around.sentence);
    if (!networks) return networks.error();
    if (*networks) around.networks.emplace(std::move(**networks));
  }
  if (around.socket) {
    around.sentence = fmt::format("This machine is {}.\n{}",
                                  tulle::quoted(options.machines[own].name), around.sentence);
  }
  return around;
}

}  // namespace tulle::live

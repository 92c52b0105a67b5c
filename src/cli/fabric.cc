// The commands of software fabrics (live/fabric/fabrics.h).

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "live/fabric/client.h"
#include "live/fabric/fabrics.h"
#include "live/fabric/manager_files.h"
#include "live/fabric/server.h"
#include "live/views/fabrics.h"
#include "study/config/files.h"
#include "study/config/network.h"

namespace tulle::cli {
namespace {

// Reads a scenario's topology, and its list of machines. The name is that of a file, or of a
// scenario that comes with Tulle.
Result<void> read_file(const std::string& name, live::FabricOptions& out) {
  const bool is_name = name.find('/') == std::string::npos && !name.ends_with(".toml");
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(name, error);
  auto path = is_file   ? Result<std::string>(name)
              : is_name ? config::find_named(config::shipped_folder(), "", name, "scenario")
                        : config::find_file("", name);
  if (!path) return path.error();
  auto network = config::read_network(*path);
  if (!network) return network.error();
  out.topology = std::move(network->topology);
  out.machines = std::move(network->machines);
  return {};
}

Result<live::FabricOptions> read_options(const FabricUpOptions& options) {
  live::FabricOptions out;
  if (options.topology.empty()) {
    out.topology = live::usual_topology();
  } else if (auto read = read_file(options.topology, out); !read) {
    return read.error();
  }
  if (auto fits = live::check_subnet(out.topology); !fits) return fits.error();
  if (out.machines.empty() && !(options.machine.empty() && options.secure.empty())) {
    return Error{fmt::format("{} needs a file with a list of machines: [[machine]]",
                             options.machine.empty() ? "--secure" : "--machine")};
  }
  if (!out.machines.empty()) {
    out.machine = options.machine;
    out.key_file = options.secure.empty() ? live::read_settings().secure : options.secure;
  }
  if (auto placed = live::place_nodes(out, options.topology); !placed) return placed.error();
  out.has_manager = !options.no_manager;
  if (options.manager_key == "none") {
    out.manager_key = 0;
  } else if (!options.manager_key.empty()) {
    auto key = live::read_manager_key(options.manager_key);
    if (!key) return key.error();
    out.manager_key = *key;
  }
  out.has_networks = !options.shared_network;
  out.keeps_rates = options.keeps_rates;
  return out;
}

int command(const std::string& name, const live::FabricHello& hello) {
  auto address = live::fabric_address(name, warn_once);
  if (!address) return fail(address.error().message);
  const auto done = live::command_fabric(*address, hello);
  if (done) return 0;
  // The fabric does not know what it was asked for, such as a node's name.
  return done.error().error_number == EINVAL ? refuse(done.error().message)
                                             : fail(done.error().message);
}

}  // namespace

int fabric_up(const FabricUpOptions& options) {
  auto read = read_options(options);
  if (!read) return refuse(read.error().message);
  live::find_fabrics(warn_once);  // removes what dead ones left behind
  auto folder = live::fabric_folder(options.name, warn_once);
  if (!folder) return fail(folder.error().message);
  read->name = live::fabric_name(options.name);
  read->folder = *folder;
  if (options.foreground) return live::run_fabric(*read, [](const std::string&) {});
  auto started = live::start_fabric(*read);
  if (!started) return fail(started.error().message);
  if (started->status != 0) return started->status;
  fmt::print("{}", live::started_text(*read, started->network));
  return 0;
}

int fabric_down(const std::string& name) {
  live::FabricHello hello;
  hello.purpose = live::FabricPurpose::stop;
  const int status = command(name, hello);
  live::find_fabrics(warn_once);  // removes what dead ones left behind
  return status;
}

int fabric_list(bool json) {
  const std::vector<live::FoundFabric> found = live::find_fabrics(warn_once);
  const std::string own = live::fabrics_namespace();
  fmt::print("{}", json ? live::fabrics_json(found, own) : live::fabrics_text(found, own));
  return 0;
}

int fabric_cable(const std::string& name, bool cuts, const std::array<std::string, 2>& ends) {
  live::FabricHello hello;
  hello.purpose = cuts ? live::FabricPurpose::cut : live::FabricPurpose::join;
  hello.ends = ends;
  return command(name, hello);
}

int fabric_status(const std::string& name, bool json) {
  auto address = live::fabric_address(name, warn_once);
  if (!address) return fail(address.error().message);
  auto found = live::fabric_status(*address);
  if (!found) return fail(found.error().message);
  auto machines = live::fabric_machines(*address);
  if (!machines) return fail(machines.error().message);
  fmt::print("{}", json ? live::fabric_json(live::fabric_name(name), *found, *machines)
                        : live::fabric_text(*found, *machines));
  return 0;
}

}  // namespace tulle::cli

#pragma once

// The live commands. Each returns the exit status, and prints one line if something
// went wrong. cli/simulations.h has the others.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/fail.h"
#include "live/capture/capture.h"
#include "live/settings.h"
#include "shim/launch/launch.h"

namespace tulle::cli {

int run(const shim::LaunchOptions& options);
// Runs a command line in a shell of a fabric's host, as rsh and ssh do on another machine.
int fabric_shell(const shim::LaunchOptions& options);

int devices(const live::Settings& settings, bool json);
int status(const live::Settings& settings, bool json);

// With the name of a software fabric, captures its links; without, this host's processes.
int capture(live::CaptureOptions options, const std::optional<std::string>& fabric);

struct FabricUpOptions {
  std::string name;      // of the fabric
  std::string topology;  // a scenario's file, of which [topology] is used; empty: the usual one
  bool foreground = false;
  bool no_manager = false;      // it has no subnet manager
  std::string manager_key;      // a key file, "none", or empty: a key that nobody else knows
  bool keeps_rates = false;     // packets take time on its links
  bool shared_network = false;  // the hosts share the IP network of this machine
  std::string machine;          // the name of this machine in the file; empty: by its address
  std::string secure;           // a key file for what goes between machines; empty: TULLE_SECURE's
};
int fabric_up(const FabricUpOptions& options);
int fabric_down(const std::string& name);
int fabric_status(const std::string& name, bool json);
// Lists this user's fabrics.
int fabric_list(bool json);
// Cuts the cable between two ends, or joins it again.
int fabric_cable(const std::string& name, bool cuts, const std::array<std::string, 2>& ends);

}  // namespace tulle::cli

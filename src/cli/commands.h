#pragma once

// The live commands, one a file. Each returns the exit status, and prints one line if something
// went wrong. cli/simulations.h has the others.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/fail.h"
#include "live/settings.h"

namespace tulle::cli {

struct RunOptions {
  // If one of these is empty, the environment says what to use.
  std::string device;
  std::string interfaces;
  std::string faults;
  std::string secure;
  std::string agent;
  std::string recovery;
  std::string roce;
  std::string busy_poll;  // microseconds
  bool explain = false;
  bool strict = false;
  std::string like;
  std::string gid_order;
  bool no_offload = false;
  bool no_direct = false;
  bool share_memory = false;
  bool rsockets = false;
  bool no_mpi_defaults = false;
  std::string host;    // of a software fabric; empty: this host
  std::string fabric;  // its name
  std::vector<std::string> command;
};
int run(const RunOptions& options);
// Runs a command line in a shell of a fabric's host, as rsh and ssh do on another machine.
int fabric_shell(const RunOptions& options);

int devices(const live::Settings& settings, bool json);
int status(const live::Settings& settings, bool json);

enum class CaptureDirection : std::uint8_t { in, out, both };
struct CaptureOptions {
  std::string output;  // "-": standard output
  std::optional<double> duration_seconds;
  std::optional<std::uint64_t> count;
  CaptureDirection direction = CaptureDirection::both;
  std::uint32_t snap_length = 0;  // 0: whole frames
  std::uint32_t buffer_mebibytes = 32;
  // The name of a software fabric, whose links are captured; nothing: this host's processes.
  std::optional<std::string> fabric;
  bool has_flow_control = false;  // of a fabric: credits, too
};
int capture(const live::Settings& settings, const CaptureOptions& options);

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
// Returns the address of a fabric's process. Without a name, that is the fabric on whose host this
// process runs, or else the one called "default".
Result<std::string> fabric_address(const std::string& name);

// Does what fail() does with an error that a fabric answers. The status is usage_status if the
// fabric does not know what it was asked for, such as a node's name.
int fail_at_fabric(const Error& error);

}  // namespace tulle::cli

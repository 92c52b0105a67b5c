#pragma once

// A scenario: what a simulation is to be, read from TOML. One file may hold variants, each of which
// changes some keys of the rest; they are run one after the other and set side by side.
// scenarios/reference.toml names every key.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "fabric/path_lanes.h"
#include "fabric/recovery.h"
#include "fabric/routing.h"
#include "fabric/topology.h"
#include "scenario/picture_settings.h"
#include "scenario/quantity.h"
#include "scenario/samples.h"
#include "sim/network.h"
#include "workload/flows.h"
#include "workload/player.h"

namespace tulle::scenario {

// Traffic that has a name, so that its results stand apart: the messages from this one to the next
// kind's.
struct TrafficKind {
  std::string name;
  std::size_t first_message = 0;
};

// One simulation, ready to be run.
struct Setup {
  std::string variant;  // its name; empty: the file has none
  fabric::Topology topology;
  fabric::RoutingSettings routing;
  bool allow_deadlock = false;
  std::optional<fabric::PathLanes> path_lanes;  // against deadlock; network.lanes is its plan
  sim::NetworkSettings network;                 // its faults' outages are as the scenario has them
  fabric::RecoverySettings recovery;            // from these
  workload::Flows flows;                        // of one queue pair each
  // Where each message's flows begin, and their number in all.
  std::vector<std::uint32_t> first_parts;
  std::vector<TrafficKind> kinds;  // empty: all traffic is one
  workload::PlayerSettings player;
  Time stop_at = last_moment;
  SampleSettings report;
};

struct Variant {
  std::string name;
  std::string title;
};

// A fabric to be compared with others: a file of keys of scenarios, with a title, of its own.
struct Fabric {
  std::string name;  // the file's, without .toml
  std::string title;
  std::string sources;      // where its keys' values are from
  bool by_default = false;  // compared where nobody says which
  std::string file;
  std::string text;
};

class Scenario {
 public:
  // `set`: lines of TOML ("traffic.bytes = \"1MB\"") that replace what the file says.
  // The error: one line, "FILE:LINE: KEY: what is wrong".
  static Result<Scenario> read(const std::string& path, std::vector<std::string> set);
  // The same from text; `file` is for errors, and `folder` is where other files are looked for.
  static Result<Scenario> parse(std::string text, const std::string& file,
                                const std::string& folder, std::vector<std::string> set);

  // Its topology, traffic and faults, on each of these fabrics as a variant: what else it says,
  // and its own variants, are left out. What was set is set over the fabrics' keys.
  Scenario on_fabrics(std::vector<Fabric> fabrics) const;

  const std::string& name() const { return name_; }
  const std::string& title() const { return title_; }
  const std::string& description() const { return description_; }
  const std::vector<Variant>& variants() const { return variants_; }  // at least one
  const PictureSettings& picture() const { return picture_; }

  // Builds a variant: its topology, routes and traffic.
  Result<Setup> build(std::size_t variant) const;

 private:
  std::string text_;
  std::string file_;
  std::string folder_;
  std::string name_;
  std::string title_;
  std::string description_;
  std::vector<std::string> set_;
  std::vector<Variant> variants_;
  std::vector<Fabric> fabrics_;  // or, if there are any, these instead
  PictureSettings picture_;
};

// A file's whole text.
Result<std::string> read_file(const std::string& path);

}  // namespace tulle::scenario

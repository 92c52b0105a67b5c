#pragma once

// A scenario describes a simulation, read from TOML. One file may hold variants, each of which
// changes some keys of the rest. The variants are run one after the other and compared side by
// side. scenarios/reference.toml names every key.

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

// A kind of traffic with a name, so that its results stand apart. It has the messages from
// first_message to the first message of the next kind.
struct TrafficKind {
  std::string name;
  std::size_t first_message = 0;
};

// One simulation, ready to be run.
struct Setup {
  std::string variant;  // name of the variant; empty if the file has none
  fabric::Topology topology;
  fabric::RoutingSettings routing;
  bool allow_deadlock = false;
  std::optional<fabric::PathLanes> path_lanes;  // against deadlock; network.lanes is its plan
  sim::NetworkSettings network;                 // its outages are those of the scenario
  fabric::RecoverySettings recovery;            // how the fabric recovers from them
  workload::Flows flows;                        // one per queue pair
  // Index of each message's first flow, and at the end the number of all flows.
  std::vector<std::uint32_t> first_parts;
  std::vector<TrafficKind> kinds;  // empty if traffic has no names
  workload::PlayerSettings player;
  Time stop_at = last_moment;
  SampleSettings report;
};

struct Variant {
  std::string name;
  std::string title;
};

// A fabric to be compared with others: a file of scenario keys, with a title of its own.
struct Fabric {
  std::string name;  // name of the file, without .toml
  std::string title;
  std::string sources;      // sources of its keys' values
  bool by_default = false;  // compared if no fabrics are named
  std::string file;
  std::string text;
};

class Scenario {
 public:
  // `set` holds lines of TOML ("traffic.bytes = \"1MB\"") that replace keys of the file. The error
  // is one line, "FILE:LINE: KEY: fault".
  static Result<Scenario> read(const std::string& path, std::vector<std::string> set);
  // Does the same with a text. `file` is its name in errors, and `folder` is where other files are
  // looked for.
  static Result<Scenario> parse(std::string text, const std::string& file,
                                const std::string& folder, std::vector<std::string> set);

  // Returns a scenario of this one's topology, traffic and faults, with each of these fabrics as a
  // variant. Its other keys and its own variants are left out. The keys of `set` replace those of
  // the fabrics.
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
  std::vector<Fabric> fabrics_;  // if not empty, they take the place of variants in the file
  PictureSettings picture_;
};

// Returns the whole text of a file.
Result<std::string> read_file(const std::string& path);

}  // namespace tulle::scenario

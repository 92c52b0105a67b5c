#include "study/scenario/build.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "fabric/deadlock.h"
#include "fabric/lids.h"

namespace tulle::scenario {

using fabric::RoutingKind;

namespace {

constexpr std::array<std::string_view, 6> routing_names = {
    "shortest", "up-down", "fat-tree", "dimension-ordered", "dragonfly-minimal", "automatic"};
constexpr std::size_t automatic = 5;
constexpr Time sample_interval_min = Time::nanoseconds(100);

constexpr std::array<std::string_view, 3> non_minimal_names = {"none", "ugal", "valiant"};

RoutingKind automatic_routing(const fabric::Topology& topology, bool infiniband, bool by_flow) {
  if (std::holds_alternative<fabric::TorusShape>(topology.shape)) {
    return RoutingKind::dimension_ordered;
  }
  if (std::holds_alternative<fabric::DragonflyShape>(topology.shape)) {
    return RoutingKind::dragonfly_minimal;
  }
  const auto* tiers = std::get_if<fabric::Tiers>(&topology.shape);
  const bool tree = tiers != nullptr && tiers->tiers.size() > 1;
  if (infiniband) return tree && by_flow ? RoutingKind::fat_tree : RoutingKind::up_down;
  return RoutingKind::shortest;
}

// Plans two or three lanes for each QoS level, where routes need them and InfiniBand's tables allow
// them. On a torus, a packet's service level names the packet's path, which must therefore be
// fixed.
void plan_lanes(TableReader& table, Setup& setup) {
  const fabric::Shape& shape = setup.topology.shape;
  const bool by_flow = setup.network.switches.path_choice == fabric::PathChoice::flow;
  const bool torus = std::holds_alternative<fabric::TorusShape>(shape) &&
                     setup.routing.kind == RoutingKind::dimension_ordered;
  const bool dragonfly = std::holds_alternative<fabric::DragonflyShape>(shape) &&
                         setup.routing.kind == RoutingKind::dragonfly_minimal;
  if (torus && by_flow) setup.path_lanes = fabric::PathLanes::torus(setup.topology);
  if (dragonfly) {
    setup.path_lanes = setup.network.non_minimal.is_used()
                           ? fabric::PathLanes::dragonfly_non_minimal(setup.topology)
                           : fabric::PathLanes::dragonfly(setup.topology);
  }
  if (!setup.path_lanes) return;
  const std::uint32_t levels = setup.player.service_levels;
  const std::uint32_t lanes_each = setup.path_lanes->lanes_per_qos_level();
  std::uint32_t most = setup.path_lanes->qos_levels_max();
  while (setup.path_lanes->service_level_max(most) >= device::SendTurns::levels) --most;
  if (levels > most) {
    table.wrong("lanes",
                fmt::format("host.service_levels = {} are too many for this topology, where "
                            "each takes {} lanes: at most {}, or lanes = false",
                            levels, lanes_each == 2 ? "two" : "three", most));
  }
  if (setup.network.lanes.hosts != port::default_lanes) {
    table.wrong("lanes",
                "the lanes of this topology prevent deadlock: remove fabric.sl_to_vl, "
                "or set lanes = false");
  }
  const std::uint32_t used = (1u << levels * lanes_each) - 1;
  if ((used & ~setup.network.switches.arbitration.lanes()) != 0) {
    table.wrong("lanes", fmt::format("uses lanes 0 to {}, of which some have no weight in "
                                     "fabric.arbitration and would never send",
                                     levels * lanes_each - 1));
  }
  setup.network.lanes = setup.path_lanes->plan();
}

// Describes the circle in which full buffers can wait for each other on these routes. Returns "" if
// there is none. Flows keep the service levels of their start, by the routes `first`.
std::string circle(const Setup& setup, const fabric::Routes& routes, const fabric::Routes& first) {
  const bool non_minimal = setup.network.non_minimal.is_used();
  if (!non_minimal && fabric::climbs_then_descends(setup.topology, routes)) return "";
  fabric::DeadlockSettings settings;
  if (setup.path_lanes) settings = fabric::with_lanes(*setup.path_lanes, first);
  settings.forwarding_tables = setup.network.link_layer == sim::LinkLayer::infiniband &&
                               setup.network.switches.path_choice == fabric::PathChoice::flow;
  settings.lmc = setup.network.lmc;
  std::optional<fabric::GroupRoutes> groups;
  if (non_minimal) settings.non_minimal = &groups.emplace(setup.topology, routes);
  const fabric::DeadlockReport report = fabric::check_deadlock(setup.topology, routes, settings);
  return report.deadlock_free() ? "" : fabric::describe_cycle(setup.topology, report.cycle);
}

bool may_lock_up(const Setup& setup) {
  return setup.allow_deadlock || setup.network.switches.flow_control == port::FlowControl::none;
}

// Refuses a routing on which full buffers can wait for each other in a circle, unless the scenario
// wants to see that.
void check_routes(TableReader& table, const Setup& setup) {
  auto routes = fabric::compute_routes(setup.topology, setup.routing);
  if (!routes) return table.wrong("kind", routes.error().message);
  if (may_lock_up(setup)) return;
  const std::string found = circle(setup, *routes, *routes);
  if (found.empty()) return;
  table.wrong("kind",
              fmt::format("these routes can lock up, as their buffers wait for each other in a "
                          "circle ({}); take \"up-down\", or allow_deadlock = true",
                          found));
}

// Checks the routes that the fabric finds around its faults in the same way. It does not look at
// the time in which some switches have old routes and others new ones.
void check_new_routes(TableReader table, const Setup& setup) {
  const std::vector<fabric::Outage>& outages = setup.network.faults.outages;
  if (outages.empty() || may_lock_up(setup)) return;
  auto recovery = fabric::plan_recovery(setup.topology, setup.routing, setup.recovery, outages);
  auto first = fabric::compute_routes(setup.topology, setup.routing);
  if (!recovery || !first) return;  // Run::prepare reports the reason
  for (std::size_t i = 0; i < recovery->versions.size(); ++i) {
    const std::string found = circle(setup, recovery->versions[i], *first);
    const std::vector<std::uint32_t>& failed = recovery->failed[i];
    if (found.empty() || failed.empty()) continue;
    const fabric::Link& link = setup.topology.links[failed.front()];
    return table.wrong(
        "kind", fmt::format("without the link from {} to {}{} the new routes can lock up, as their "
                            "buffers wait for each other in a circle ({}); take \"up-down\", or "
                            "allow_deadlock = true",
                            setup.topology.name(link.a), setup.topology.name(link.b),
                            failed.size() > 1 ? fmt::format(" and {} more", failed.size() - 1) : "",
                            found));
  }
}

// Refuses an InfiniBand subnet that needs more LIDs than there are.
void check_lids(TableReader& table, const Setup& setup) {
  const fabric::Topology& topology = setup.topology;
  const std::uint64_t last = fabric::last_lid(topology.hosts, topology.switches, setup.network.lmc);
  if (last <= wire::unicast_lid_max) return;
  const std::string what = fmt::format(
      "an InfiniBand subnet has LIDs 1 to {} (IBTA 4.1.3), but {} hosts of {} each and {} switches "
      "need them up to {}",
      wire::unicast_lid_max, topology.hosts, 1u << setup.network.lmc, topology.switches, last);
  if (setup.network.lmc > 0) return table.wrong("lmc", what);
  table.findings().add(0, "fabric.kind", what);
}

void read_lmc(TableReader& table, bool infiniband, bool by_flow, Setup& setup) {
  const auto lmc = static_cast<unsigned>(table.integer("lmc", 0, 0, fabric::lmc_max));
  if (lmc > 0 && !infiniband) {
    table.wrong("lmc", "is InfiniBand's; RoCE v2 spreads flows by their UDP source ports");
  }
  if (lmc > 0 && !by_flow) {
    table.wrong("lmc", "has each queue pair keep a path, which needs path = \"flow\"");
  }
  setup.network.lmc = lmc;
  setup.player.paths = static_cast<std::uint8_t>(1u << lmc);
  if (infiniband) check_lids(table, setup);
}

// Reads the choice of a dragonfly's non-minimal paths, which lead through a third group.
void read_non_minimal(TableReader& table, Setup& setup) {
  fabric::NonMinimalSettings& settings = setup.network.non_minimal;
  settings.choice =
      table.choice("non_minimal", non_minimal_names, fabric::NonMinimalSettings::Choice::none);
  const auto count = [&](std::string_view key) {
    return static_cast<std::uint32_t>(table.integer(key, 1, 1, 16));
  };
  settings.minimal_candidates = count("minimal_candidates");
  settings.candidates = count("non_minimal_candidates");
  // The key is BookSim's adaptive_threshold, in packets.
  settings.bias_bytes = static_cast<std::uint64_t>(table.integer("bias", 30, 0, 1'000'000)) *
                        sim::longest_frame_bytes(setup.network);
  if (!settings.is_used()) return;
  const auto* shape = std::get_if<fabric::DragonflyShape>(&setup.topology.shape);
  if (shape == nullptr || setup.routing.kind != RoutingKind::dragonfly_minimal) {
    return table.wrong("non_minimal",
                       "goes by way of a third group: it needs a dragonfly and "
                       "\"dragonfly-minimal\" for all else");
  }
  if (setup.network.switches.path_choice != fabric::PathChoice::adaptive) {
    return table.wrong("non_minimal",
                       "chooses a path for each packet: it needs path = \"adaptive\"");
  }
  if (shape->groups > fabric::GroupRoutes::groups_max) {
    table.wrong("non_minimal", fmt::format("is for up to {} groups, and there are {}",
                                           fabric::GroupRoutes::groups_max, shape->groups));
  }
}

void build_routing(TableReader table, Setup& setup) {
  const bool infiniband = setup.network.link_layer == sim::LinkLayer::infiniband;
  const auto kind = table.choice<std::size_t>("kind", routing_names, automatic);
  const bool by_flow = setup.network.switches.path_choice == fabric::PathChoice::flow;
  setup.routing.kind = kind == automatic ? automatic_routing(setup.topology, infiniband, by_flow)
                                         : static_cast<RoutingKind>(kind);
  if (setup.routing.kind == RoutingKind::fat_tree && !by_flow) {
    table.wrong("kind",
                "\"fat-tree\" has one way to each host: take \"up-down\", or path = \"flow\"");
  }
  read_lmc(table, infiniband, by_flow, setup);
  read_non_minimal(table, setup);
  setup.allow_deadlock = table.boolean("allow_deadlock", false);
  const bool lanes = infiniband && table.boolean("lanes", true);
  table.finish();
  if (table.findings().any()) return;
  if (lanes) plan_lanes(table, setup);
  if (!table.findings().any()) check_routes(table, setup);
}

// Reads the settings of samples over time.
void build_report(TableReader table, Setup& setup) {
  SampleSettings& report = setup.report;
  report.interval = table.time("sample", Time::zero());
  if (report.interval > Time::zero() && report.interval < sample_interval_min) {
    table.wrong("sample", "must be at least 100ns, or 0ns for none");
  }
  setup.wants_alone = table.boolean("alone", false);
  if (setup.wants_alone && (setup.jobs.empty() || setup.kinds.empty())) {
    table.wrong("alone", "compares the jobs of [[jobs]] with themselves alone, and there are none");
  }
  const std::vector<std::string> names = table.texts("nodes", {});
  for (const std::string& name : names) {
    const std::optional<std::uint32_t> node = setup.topology.find(name);
    if (!node) {
      table.wrong("nodes", fmt::format("there is no \"{}\" here; nodes are called \"{}\" to \"{}\"",
                                       name, setup.topology.name(0),
                                       setup.topology.name(setup.topology.nodes() - 1)));
      continue;
    }
    report.nodes.push_back(*node);
  }
  if (names.empty()) {
    for (std::uint32_t node = setup.topology.hosts; node < setup.topology.nodes(); ++node) {
      report.nodes.push_back(node);
    }
  }
  table.finish();
}

}  // namespace

std::int64_t host_bits_per_second(const fabric::Topology& topology) {
  for (const fabric::Link& link : topology.links) {
    if (link.a == 0 || link.b == 0) return link.bits_per_second;
  }
  return 0;
}

namespace {

std::uint64_t packets_of(const Setup& setup) {
  const std::uint64_t packet = setup.network.host.payload_bytes_max();
  std::uint64_t packets = 0;
  for (const workload::Flow& flow : setup.flows) packets += (flow.bytes + packet - 1) / packet;
  return packets;
}

}  // namespace

Result<void> check_length(const Setup& setup) {
  constexpr std::uint64_t packets_max = train_packets_max * (std::uint64_t{1} << 30);
  if (!setup.may_be_trains) return {};
  if (const std::uint64_t packets = packets_of(setup); packets > packets_max) {
    return Error{
        fmt::format("the model sends {} packets, and {} are the most of one run, which "
                    "takes an hour: give it fewer layers, micro-batches or requests",
                    packets, packets_max)};
  }
  return {};
}

std::uint32_t automatic_train(const Setup& setup) {
  if (!setup.train_is_automatic || !setup.may_be_trains) return 1;
  constexpr std::uint64_t frames_max = 1u << 27;
  const std::uint64_t frames = packets_of(setup);
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>((frames + frames_max - 1) / frames_max, 1, train_packets_max));
}

Setup build_setup(TableReader root, const std::string& folder) {
  Setup setup;
  const Findings& findings = root.findings();
  root.text("title", "");
  root.text("description", "");
  setup.network.seed = static_cast<std::uint64_t>(
      root.integer("seed", 1, 0, std::numeric_limits<std::int64_t>::max()));
  setup.player.seed = setup.network.seed;
  setup.stop_at = root.time("stop_at", last_moment, last_moment);
  setup.topology = build_topology(root.table("topology"), folder);
  if (findings.any()) return setup;
  build_network(root.table("fabric"), root.table("host"), root.table("congestion"), folder, setup);
  if (findings.any()) return setup;
  build_partitions(root, setup);  // of adapters, and not of ports of aggregation nodes
  build_aggregation(root.table("traffic"), folder, setup);
  if (findings.any()) return setup;
  static_cast<void>(build_machines(root));
  build_prices(root, folder, setup);
  build_routing(root.table("routing"), setup);
  build_faults(root, setup);
  if (!findings.any()) check_new_routes(root.table("routing"), setup);
  build_traffic(root.table("traffic"), root.tables("jobs"), folder, setup);
  build_report(root.table("report"), setup);
  root.finish();
  return setup;
}

}  // namespace tulle::scenario

#pragma once

// A simulation as data: all that a run needs.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "fabric/path_lanes.h"
#include "fabric/recovery.h"
#include "fabric/routing.h"
#include "fabric/topology.h"
#include "sim/network.h"
#include "study/config/bounds.h"
#include "study/workload/flows.h"
#include "study/workload/job.h"
#include "study/workload/player.h"

namespace tulle::scenario {

struct SampleSettings {
  Time interval;                     // zero means no samples
  std::vector<std::uint32_t> nodes;  // nodes whose ports are sampled
};

// A kind of traffic with a name, so that its results are separate. It has the messages from
// first_message to the first message of the next kind.
struct TrafficKind {
  std::string name;
  std::size_t first_message = 0;
};

// The price is that of the whole network: adapters, ports of switches and cables.
struct Price {
  double amount = 0;  // in the currency of the list
  double watts = 0;
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
  // The jobs start the flows, which are their messages between servers. Without jobs, flows begin
  // by themselves. Several jobs, or one of [[jobs]], have names, and each is a kind of traffic.
  std::vector<workload::Job> jobs;
  std::optional<std::size_t> only_job;  // the job that is played; nothing: all are
  bool wants_alone = false;             // each job is to be compared with itself alone
  // By job: its time in a run in which it was alone; nothing if it was not done then. Empty if the
  // jobs were not played alone.
  std::vector<std::optional<Time>> alone;
  // The scenario leaves host.train to the traffic, and this traffic may be played in trains.
  bool train_is_automatic = false;
  bool may_be_trains = false;
  // The switches' aggregation nodes, with the latency and rate of [fabric]. There are nodes only
  // while a collective uses them.
  workload::Aggregation aggregation;
  bool switches_reduce = false;  // true: the fabric offers aggregation nodes
  workload::PlayerSettings player;
  Time stop_at = config::last_moment;
  SampleSettings report;
  std::optional<Price> price;  // if the scenario names a list of prices
  bool timeline = false;       // gather what a page shows: Outcome::timeline and Outcome::spans

  // Returns all flows, or those of the job that is played alone.
  std::span<const workload::Flow> flows_to_play() const {
    const std::span<const workload::Flow> all(flows);
    if (!only_job) return all;
    return all.subspan(jobs[*only_job].first_flow, jobs[*only_job].task_of.size());
  }
};

}  // namespace tulle::scenario

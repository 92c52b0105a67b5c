#pragma once

// The times of flows in an empty network, against which slowdowns are measured.

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "fabric/routing.h"
#include "fabric/topology.h"
#include "sim/network.h"
#include "study/workload/flows.h"
#include "study/workload/player.h"

namespace tulle::experiment {

// Keeps the references that it is given, which must outlive it.
class IdealTimes {
 public:
  IdealTimes(const fabric::Topology& topology, const fabric::Wiring& wiring,
             const fabric::Routes& routes, const sim::NetworkSettings& settings,
             verbs::QpType transport);

  // Returns the time from a flow's post until its last acknowledgement is there, by the first of
  // its routes. Its frames follow one another as closely as the links allow, and then the last
  // acknowledgement travels back.
  Time of(const workload::Flow& flow);
  // Returns the time from a flow's post until its last byte is there, over RC or SRD.
  Time one_way(const workload::Flow& flow);
  // Returns the time that its last acknowledgement takes from there.
  Time way_back(const workload::Flow& flow);

 private:
  // A port, with its link and the node behind it.
  struct Hop {
    std::int64_t bits_per_second = 0;
    Time delay;              // delay of its link, and of the adapters or the switch at the ends
    std::uint32_t next = 0;  // the node behind it
    bool cuts_through = false;
    bool arrives = false;      // that node is a host
    std::int64_t free_at = 0;  // ps; advances while frames are sent
  };

  // Returns the time over TCP, as if the window were open from the beginning.
  Time over_tcp(const workload::Flow& flow);
  // Takes the first of the routes for the frames that are sent next.
  void set_path(std::uint32_t from, std::uint32_t to);
  std::int64_t bytes_on_link(std::uint64_t payload, std::uint32_t headers) const;
  std::int64_t send(std::int64_t bytes, std::uint64_t count);

  verbs::QpType transport_;
  const fabric::Wiring& wiring_;
  const fabric::Routes& routes_;
  const sim::NetworkSettings& settings_;
  std::vector<Hop> hops_;  // by fabric::Wiring::place()
  std::vector<Hop> path_;  // of the frames that are sent next
};

}  // namespace tulle::experiment

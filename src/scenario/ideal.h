#pragma once

// What flows take in an empty network: what their slowdown is measured against.

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "fabric/routing.h"
#include "fabric/topology.h"
#include "sim/network.h"
#include "workload/flows.h"
#include "workload/player.h"

namespace tulle::scenario {

// All must outlive it.
class IdealTimes {
 public:
  IdealTimes(const fabric::Topology& topology, const fabric::Wiring& wiring,
             const fabric::Routes& routes, const sim::NetworkSettings& settings,
             verbs::QpType transport);

  // From its post until the last acknowledgement is there, by the first of its routes: its frames
  // as closely as the links let them follow one another, and the last acknowledgement's way back.
  Time of(const workload::Flow& flow) const;

 private:
  // A port on the way, and what comes behind it.
  struct Hop {
    std::int64_t bits_per_second = 0;
    Time delay;  // of its link, and of the adapters or the switch at the ends
    bool cuts_through = false;
    std::int64_t free_at = 0;  // ps, while frames are sent
  };
  using Path = std::vector<Hop>;

  // Over TCP: as if its window were open from the beginning.
  Time over_tcp(const workload::Flow& flow) const;
  Path path(std::uint32_t from, std::uint32_t to) const;
  static std::int64_t send(Path& path, std::int64_t bytes, std::uint64_t count);

  verbs::QpType transport_;
  const fabric::Topology& topology_;
  const fabric::Wiring& wiring_;
  const fabric::Routes& routes_;
  const sim::NetworkSettings& settings_;
  std::vector<std::int64_t> fastest_;  // by node: of its links, in bits a second
};

}  // namespace tulle::scenario

#pragma once

// The paths of flows, as the switches' tables and hashes choose them at packet level.

#include <cstdint>
#include <span>
#include <vector>

#include "fabric/routing.h"
#include "fabric/topology.h"
#include "study/scenario/setup.h"

namespace tulle::experiment {

// Finds the path of each flow of a setup. Keeps the references that it is given, which must outlive
// it. The switches must choose paths by flow (fabric::PathChoice::flow).
class FlowPaths {
 public:
  // One direction of a link: twice the link's index in Topology::links, plus 1 from its end b to a.
  using Direction = std::uint32_t;

  FlowPaths(const scenario::Setup& setup, const fabric::Wiring& wiring,
            const fabric::Routes& routes);

  // Returns the directions that a flow's data take, from its source on. `started` is the number of
  // connections by which the source has sent before, which selects one of the 2^LMC paths of
  // InfiniBand. The span is valid until the next call.
  std::span<const Direction> of(std::uint32_t flow, std::uint32_t started);
  // Returns those that its acknowledgements take, likewise.
  std::span<const Direction> back(std::uint32_t flow, std::uint32_t started);

 private:
  std::span<const Direction> between(std::uint32_t from, std::uint32_t to, std::uint32_t flow,
                                     std::uint32_t started);

  const scenario::Setup& setup_;
  const fabric::Wiring& wiring_;
  const fabric::Routes& routes_;
  bool by_lid_ = false;
  std::vector<std::uint32_t> salts_;  // by switch
  // The direction that leaves at a node's port, and the node to which it leads.
  struct Way {
    Direction direction = 0;
    std::uint32_t node = 0;
  };
  std::vector<Way> ways_;  // by fabric::Wiring::place()
  std::vector<Direction> path_;
};

}  // namespace tulle::experiment

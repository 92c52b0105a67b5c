#pragma once

// Lanes against deadlock, as a subnet manager plans them: tables of lanes for all switches, and the
// service level of each path. Each level of quality of service that is to be kept apart from the
// others has two lanes, or three.
//
// A table knows a packet's ports and service level, but not the lane by which it came (IBTA 7.6.6).
// So what a lane must know of a packet's past or future has to be read from these.
//
//   dragonfly  second lane where a packet came in by a global link: the ports say so
//              non-minimal paths: the next lane after each global link (non_minimal.h), for which
//              tables have to know the lane by which a packet came
//   torus      second lane along a ring whose wrap-around link is on the packet's path, first lane
//              otherwise, as OpenSM's torus-2QoS has it: a bit of the service level for each
//              dimension says so. First lanes then never go round. Second lanes belong to paths
//              around the wrap-around link, none longer than half the ring, so that a link at the
//              ring's other side is on none of them.

#include <cstdint>
#include <utility>
#include <vector>

#include "fabric/routing.h"
#include "fabric/sl_to_vl.h"
#include "fabric/topology.h"

namespace tulle::fabric {

class PathLanes {
 public:
  // Under dragonfly_minimal.
  static PathLanes dragonfly(const Topology& topology);
  // Under the same and by way of a third group.
  static PathLanes dragonfly_non_minimal(const Topology& topology);
  // Under dimension_ordered, where a path is what the forwarding tables say.
  static PathLanes torus(const Topology& topology);

  const LanePlan& plan() const { return plan_; }
  // How many QoS levels there can be: service levels and lanes are few.
  std::uint32_t qos_levels_max() const;
  std::uint32_t lanes_per_qos_level() const { return lanes_per_qos_level_; }
  std::uint32_t service_level_max(std::uint32_t qos_levels) const {
    return (qos_levels << path_bits_) - 1;
  }
  // From the hosts of a leaf to a host; `path` as in Routes::port.
  std::uint8_t service_level(const Routes& routes, std::uint32_t leaf_node, std::uint32_t host,
                             std::uint8_t qos_level, std::uint32_t path = 0) const;

 private:
  // Where a port of a switch leads.
  struct Way {
    std::uint32_t to = 0;       // a node
    std::uint8_t bit = no_bit;  // torus: of service levels, for its dimension
    bool crosses = false;       // torus: the wrap-around link
    bool is_global = false;     // dragonfly
  };
  static constexpr std::uint8_t no_bit = 0xFF;

  PathLanes(const Topology& topology, std::uint32_t lanes_per_qos_level);
  void find_global_links(const DragonflyShape& shape);
  // Fills the plan's tables: the second lane's part of a row, by a packet's ports and level.
  template <typename SecondLane>
  void fill(SecondLane second_lane);
  std::uint8_t lane(std::uint32_t level, std::uint32_t number) const;

  std::uint32_t hosts_ = 0;
  std::uint32_t lanes_per_qos_level_;
  std::uint32_t path_bits_ = 0;         // of a service level, the low ones
  std::vector<std::vector<Way>> ways_;  // by switch and port
  LanePlan plan_;
};

}  // namespace tulle::fabric

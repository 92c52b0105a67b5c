#pragma once

// Lanes that prevent deadlock, as a subnet manager plans them: tables of lanes for all switches,
// and the service level of each path. Each level of quality of service that is kept apart from the
// others has two lanes, or three.
//
// A table knows a packet's ports and service level, but not the lane by which the packet came (IBTA
// 7.6.6). So the facts of a packet's past or future that decide its lane must be read from these.
//
//   dragonfly  The packet takes the second lane if it came in by a global link, as its ports tell.
//              On non-minimal paths it takes the next lane after each global link (non_minimal.h),
//              for which tables must know the lane by which a packet came.
//   torus      The packet takes the second lane along a ring whose wrap-around link is on its path,
//              and the first lane otherwise, as in OpenSM's torus-2QoS. A bit of the service level
//              for each dimension tells which. First lanes then never go round. Second lanes belong
//              to paths around the wrap-around link, none longer than half the ring, so that a link
//              at the ring's other side is on none of them.

#include <cstdint>
#include <utility>
#include <vector>

#include "fabric/lane_plan.h"
#include "fabric/routing.h"
#include "fabric/topology.h"

namespace tulle::fabric {

class PathLanes {
 public:
  // Requires dragonfly_minimal routing.
  static PathLanes dragonfly(const Topology& topology);
  // Requires the same routing, and allows paths by way of a third group.
  static PathLanes dragonfly_non_minimal(const Topology& topology);
  // Requires dimension_ordered routing, with the paths of the forwarding tables.
  static PathLanes torus(const Topology& topology);

  const LanePlan& plan() const { return plan_; }
  // Returns how many levels of quality of service are possible, given the number of service levels
  // and lanes.
  std::uint32_t qos_levels_max() const;
  std::uint32_t lanes_per_qos_level() const { return lanes_per_qos_level_; }
  std::uint32_t service_level_max(std::uint32_t qos_levels) const {
    return (qos_levels << path_bits_) - 1;
  }
  // Returns the service level of packets from the hosts of a leaf to a host. `path` is as in
  // Routes::port.
  std::uint8_t service_level(const Routes& routes, std::uint32_t leaf_node, std::uint32_t host,
                             std::uint8_t qos_level, std::uint32_t path = 0) const;

 private:
  // The destination of a switch's port.
  struct Way {
    std::uint32_t to = 0;       // a node
    std::uint8_t bit = no_bit;  // torus: bit of the service level for the dimension of the link
    bool crosses = false;       // torus: this is the wrap-around link
    bool is_global = false;     // dragonfly
  };
  static constexpr std::uint8_t no_bit = 0xFF;

  PathLanes(const Topology& topology, std::uint32_t lanes_per_qos_level);
  void find_global_links(const DragonflyShape& shape);
  // Fills the plan's tables. `second_lane` decides from a packet's ports and level whether it takes
  // the second lane.
  template <typename SecondLane>
  void fill(SecondLane second_lane);
  std::uint8_t lane(std::uint32_t level, std::uint32_t number) const;

  std::uint32_t hosts_ = 0;
  std::uint32_t lanes_per_qos_level_;
  std::uint32_t path_bits_ = 0;         // number of low bits of a service level
  std::vector<std::vector<Way>> ways_;  // by switch and port
  LanePlan plan_;
};

}  // namespace tulle::fabric

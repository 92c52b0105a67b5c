#pragma once

// Adaptive routing on a dragonfly beyond the shortest paths. All traffic from one group to another
// shares the one global link between them, while other global links may have no traffic. So a
// packet may go by way of a third group, drawn for it. It takes a shortest path to that group, and
// another from there to its destination (Valiant 1982, applied to groups as in Kim et al., ISCA
// 2008, section 4.1). The first switch compares some of these paths and some minimal ones, and the
// packet takes the path with the least product of queue and hops (UGAL, Singh 2005). This is the
// variant "-L", as the switch knows only its local queues. A packet for a host in the same group
// takes the minimal path.
//
// The frame carries the group that it goes by way of (Frame::via). The field is cleared once the
// frame is there.
//
// Against deadlock, a packet takes the next lane after each global link, so that lanes only ascend
// (Guenther 1981). Within a group, no packet takes two local links. This needs three lanes. A
// minimal path takes the first two, as it does without non-minimal routing.

#include <cstdint>
#include <span>
#include <vector>

#include "fabric/routing.h"
#include "fabric/topology.h"
#include "rdma/port/frame.h"

namespace tulle::fabric {

class Switch;

struct NonMinimalSettings {
  enum class Choice : std::uint8_t {
    none,     // only minimal paths
    ugal,     // the better path by queues and hops
    valiant,  // always by way of another group
  };
  Choice choice = Choice::none;
  // Number of paths of each kind that are compared for a packet.
  std::uint32_t minimal_candidates = 1;
  std::uint32_t candidates = 1;
  // Added to a non-minimal path's product of bytes and hops: the queue that must build up before a
  // packet makes a detour.
  std::uint64_t bias_bytes = 0;

  bool is_used() const { return choice != Choice::none; }
};

// The routes from switches to groups.
class GroupRoutes {
 public:
  // The largest number of groups that Frame::via can tell apart.
  static constexpr std::uint32_t groups_max = 255;

  // Requires a dragonfly with dragonfly_minimal routes. The routes must outlive this object.
  GroupRoutes(const Topology& topology, const Routes& routes);

  std::uint32_t groups() const { return groups_; }
  std::uint32_t group_of(std::uint32_t switch_node) const {
    return (switch_node - hosts_) / routers_per_group_;
  }
  // Returns the ports that lead to another group: the switch's global links to it if there are any,
  // or else its links to neighbours that have one.
  std::span<const std::uint16_t> towards(std::uint32_t switch_node, std::uint32_t group) const {
    const std::size_t at = place(switch_node, group);
    return {ports_.data() + first_[at], ports_.data() + first_[at + 1]};
  }
  // Returns the number of links between switches on a minimal path to a host's switch.
  std::uint32_t hops(std::uint32_t switch_node, std::uint32_t host) const {
    return hops_[(switch_node - hosts_) * std::size_t{leaves_} + routes_->leaf_of(host)];
  }
  // Returns the same number by way of a group, by the n-th of the ports towards it.
  std::uint32_t hops(std::uint32_t switch_node, std::uint32_t group, std::size_t n,
                     std::uint32_t host) const {
    const Entry& entry = entries_[first_[place(switch_node, group)] + n];
    return entry.hops + hops(entry.switch_node, host);
  }
  const Routes& routes() const { return *routes_; }
  std::size_t bytes() const;  // memory in bytes

 private:
  // The switch at which a packet enters a group by a port, and the number of links to there.
  struct Entry {
    std::uint32_t switch_node = 0;
    std::uint32_t hops = 0;
  };
  std::size_t place(std::uint32_t switch_node, std::uint32_t group) const {
    return std::size_t{switch_node - hosts_} * groups_ + group;
  }
  void find_ways(const Wiring& wiring, const Topology& topology);
  void count_hops(const Wiring& wiring);

  const Routes* routes_;
  std::uint32_t hosts_;
  std::uint32_t leaves_;
  std::uint32_t groups_ = 0;
  std::uint32_t routers_per_group_ = 1;
  // Indices into ports_ and entries_, by switch and group, and one more.
  std::vector<std::uint32_t> first_;
  std::vector<std::uint16_t> ports_;
  std::vector<Entry> entries_;
  std::vector<std::uint8_t> hops_;  // by switch and leaf
};

class NonMinimalRouting {
 public:
  NonMinimalRouting(const Topology& topology, const Routes& routes,
                    const NonMinimalSettings& settings)
      : settings_(settings), groups_(topology, routes) {}

  // Returns the ports that a frame may take, given where it came in. If it is one that was chosen
  // for this frame, it is stored in `chosen_port`.
  std::span<const std::uint16_t> ways(Switch& at, std::uint32_t switch_node, bool from_host,
                                      port::Frame& frame, std::uint16_t& chosen_port) const;
  const GroupRoutes& groups() const { return groups_; }

 private:
  struct Way {
    std::uint16_t port = 0;
    std::uint8_t via = 0;                    // value for Frame::via
    std::uint64_t cost = ~std::uint64_t{0};  // product of bytes and hops
  };

  bool may_detour(std::uint32_t group, std::uint32_t destination_group) const;
  Way best_minimal(Switch& at, std::uint32_t switch_node, const port::Frame& frame) const;
  Way best_detour(Switch& at, std::uint32_t switch_node, const port::Frame& frame,
                  std::uint32_t destination_group) const;

  NonMinimalSettings settings_;
  GroupRoutes groups_;
};

}  // namespace tulle::fabric

#pragma once

// Adaptive routing on a dragonfly beyond the shortest paths. All traffic from one group to another
// shares the one global link between them, where others have none to carry. So a packet may go by
// way of a third group, drawn for it: to that group by a shortest path, and from there to its
// destination by another (Valiant 1982, applied to groups as in Kim et al., ISCA 2008, section
// 4.1). Where it comes into the fabric, a packet takes of some such paths and some minimal ones the
// one with the least product of queue and hops (UGAL, Singh 2005); "-L", as the switch knows no
// queues but its own. What is for the same group takes the minimal path.
//
// In the frame stands the group that it goes by way of (Frame::via), and nothing once it is there.
//
// Against deadlock a packet takes the next lane after each global link, so that lanes only ascend
// (Guenther 1981), and within a group none is on two local links: three lanes. A minimal path takes
// the first two, as without.

#include <cstdint>
#include <span>
#include <vector>

#include "fabric/routing.h"
#include "fabric/topology.h"

namespace tulle::fabric {

class Switch;
struct Frame;

struct NonMinimalSettings {
  enum class Choice : std::uint8_t {
    none,     // minimal paths alone
    ugal,     // by queues and hops
    valiant,  // by way of another group, always
  };
  Choice choice = Choice::none;
  // Of a packet's paths, so many are compared.
  std::uint32_t minimal_candidates = 1;
  std::uint32_t candidates = 1;
  // Added to a non-minimal path's product of bytes and hops: a queue that must stand before a
  // packet makes a detour.
  std::uint64_t bias_bytes = 0;

  bool is_used() const { return choice != Choice::none; }
};

// The ways from switches to groups.
class GroupRoutes {
 public:
  // As many as Frame::via can tell apart.
  static constexpr std::uint32_t groups_max = 255;

  // Of a dragonfly, with dragonfly_minimal routes, which must outlive it.
  GroupRoutes(const Topology& topology, const Routes& routes);

  std::uint32_t groups() const { return groups_; }
  std::uint32_t group_of(std::uint32_t switch_node) const {
    return (switch_node - hosts_) / routers_per_group_;
  }
  // Ports that lead to another group: of its own global links, or else to neighbours with some.
  std::span<const std::uint16_t> towards(std::uint32_t switch_node, std::uint32_t group) const {
    const std::size_t at = place(switch_node, group);
    return {ports_.data() + first_[at], ports_.data() + first_[at + 1]};
  }
  // Links between switches on a minimal path to a host's switch.
  std::uint32_t hops(std::uint32_t switch_node, std::uint32_t host) const {
    return hops_[(switch_node - hosts_) * std::size_t{leaves_} + routes_->leaf_of(host)];
  }
  // The same by way of a group, by the n-th of the ports towards it.
  std::uint32_t hops(std::uint32_t switch_node, std::uint32_t group, std::size_t n,
                     std::uint32_t host) const {
    const Entry& entry = entries_[first_[place(switch_node, group)] + n];
    return entry.hops + hops(entry.switch_node, host);
  }
  const Routes& routes() const { return *routes_; }
  std::size_t bytes() const;  // of memory

 private:
  // Where one comes into a group by a port, after so many links.
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
  std::vector<std::uint32_t> first_;  // by switch and group, and one more: of what follows
  std::vector<std::uint16_t> ports_;
  std::vector<Entry> entries_;
  std::vector<std::uint8_t> hops_;  // by switch and leaf
};

class NonMinimalRouting {
 public:
  NonMinimalRouting(const Topology& topology, const Routes& routes,
                    const NonMinimalSettings& settings)
      : settings_(settings), groups_(topology, routes) {}

  // The ports that a frame may take which came in by one of a switch's. Valid until the next call.
  std::span<const std::uint16_t> ways(Switch& at, std::uint32_t switch_node, bool from_host,
                                      Frame& frame);
  const GroupRoutes& groups() const { return groups_; }

 private:
  struct Way {
    std::uint16_t port = 0;
    std::uint8_t via = 0;                    // as in the frame
    std::uint64_t cost = ~std::uint64_t{0};  // of bytes and hops
  };

  bool may_detour(std::uint32_t group, std::uint32_t destination_group) const;
  Way best_minimal(Switch& at, std::uint32_t switch_node, const Frame& frame) const;
  Way best_detour(Switch& at, std::uint32_t switch_node, const Frame& frame,
                  std::uint32_t destination_group) const;

  NonMinimalSettings settings_;
  GroupRoutes groups_;
  std::uint16_t chosen_ = 0;
};

}  // namespace tulle::fabric

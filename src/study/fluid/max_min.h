#pragma once

// Shares the capacity of links among flows, max-min fairly (Bertsekas and Gallager, "Data
// Networks", 6.5.2): no flow's rate can rise without lowering that of a flow which has no more.
// Each flow then has a bottleneck: a link on its path that is full, and on which no flow is faster.
//
// A flow that comes or goes changes the rates of few others. The solver keeps all rates, computes
// those of a small set of flows again, and adds to the set the flows whose bottleneck is one no
// longer, until there are none. This gives the same rates as computing all of them again.

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

namespace tulle::fluid {

using LinkIndex = std::uint32_t;
// Flows that are active have numbers from 0 on. A number is reused after its flow has gone.
using FlowSlot = std::uint32_t;

class MaxMin {
 public:
  struct Settings {
    // Flows and links are left as they are if they are off by no more than this share: at most 0.1.
    // The sum of the rates on a link never exceeds its capacity, whatever the tolerance is. It is
    // what bounds the work on large networks, where each change reaches some flow far away a
    // little.
    double tolerance = 0;
  };
  // A flow on a link, and the place of the link on the flow's path.
  struct Member {
    FlowSlot flow = 0;
    std::uint32_t hop = 0;
  };

  // The capacities are those of the links, above 0, in any unit of rates. No path is longer than
  // `hops_max` links.
  MaxMin(const std::vector<double>& capacities, std::uint32_t hops_max, Settings settings);

  // Adds a flow with a path of at least one link, on which no link occurs twice. Returns its
  // number.
  FlowSlot add(std::span<const LinkIndex> path);
  void remove(FlowSlot flow);
  // Computes the rates again, after any number of flows were added and removed. Until then, no rate
  // may be asked for. Returns the flows whose rates have changed, each once.
  std::span<const FlowSlot> settle();

  double rate(FlowSlot flow) const { return flows_[flow].rate; }
  // Returns the place of the flow's bottleneck on its path.
  std::uint32_t bottleneck(FlowSlot flow) const { return flows_[flow].bottleneck; }
  std::uint32_t hops(FlowSlot flow) const { return flows_[flow].hops; }
  LinkIndex link(FlowSlot flow, std::uint32_t hop) const { return stops_of(flow)[hop].link; }
  std::span<const Member> members(LinkIndex link) const { return links_[link].members; }
  // Returns the number of flows of which the link is the bottleneck.
  std::uint32_t bound(LinkIndex link) const { return links_[link].bound; }
  double capacity(LinkIndex link) const { return links_[link].capacity; }
  // Returns the sum of the rates on a link.
  double used(LinkIndex link) const { return links_[link].used; }
  // Returns the number of flows whose rates were computed so far, which is the work that was done.
  std::uint64_t solved() const { return solved_; }

 private:
  struct Flow {
    double rate = 0;
    double next_rate = 0;          // while it is among the flows that are solved
    std::uint32_t bottleneck = 0;  // a hop
    std::uint32_t next_bottleneck = 0;
    std::uint32_t hops = 0;
    bool is_taken = false;  // it is among the flows that are solved
    bool is_fixed = false;  // likewise: it has its next rate
  };
  // A link on a flow's path.
  struct Stop {
    LinkIndex link = 0;
    std::uint32_t place = 0;    // of the flow among the link's members
    std::uint32_t touched = 0;  // while the flow is solved: the link's place in touched_
  };
  struct alignas(64) Link {
    Link(double rate, std::pmr::memory_resource* memory) : capacity(rate), members(memory) {}

    double capacity = 0;
    double used = 0;
    std::uint32_t bound = 0;
    std::uint32_t mark = 0;     // mark_: it is in touched_
    std::uint32_t touched = 0;  // its place there
    std::pmr::vector<Member> members;
  };
  // A link of flows that are solved.
  struct Touched {
    LinkIndex link = 0;
    // The flows that are solved, and the capacity that the others leave.
    std::uint32_t flows = 0;
    double room = 0;
    // While rates are given: flows that have none yet, and capacity that no flow has.
    std::uint32_t open = 0;
    double left = 0;
    double level = 0;  // the rate of the flows of which it is the bottleneck
    double most = 0;   // the most that one of the solved flows has

    double share() const { return left / open; }  // of each flow that has no rate yet
  };
  // A link that may be full next.
  struct Narrow {
    double share = 0;
    LinkIndex link = 0;
    std::uint32_t touched = 0;
  };

  Stop* stops_of(FlowSlot flow) { return &stops_[std::size_t{flow} * hops_max_]; }
  const Stop* stops_of(FlowSlot flow) const { return &stops_[std::size_t{flow} * hops_max_]; }
  void take(FlowSlot flow);
  void take_bound_by(LinkIndex link);
  void touch(FlowSlot flow);
  void fill();
  Touched& find_by_scan();
  void make_heap();
  Touched& take_from_heap();
  bool grow();
  void commit();

  std::pmr::monotonic_buffer_resource memory_;  // of the links' members: many short lists
  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<Stop> stops_;  // by flow, hops_max_ each
  std::vector<FlowSlot> free_;
  std::vector<FlowSlot> removed_;  // since the rates were computed
  std::uint32_t hops_max_;
  double tolerance_;
  std::uint32_t mark_ = 0;
  std::uint64_t solved_ = 0;
  std::vector<FlowSlot> solving_;
  std::size_t with_links_ = 0;    // so many of these have their links in touched_
  std::vector<Touched> touched_;  // each link of the flows that are solved
  std::vector<Narrow> open_;      // a heap of these, where they are many
  std::vector<FlowSlot> changed_;
};

}  // namespace tulle::fluid

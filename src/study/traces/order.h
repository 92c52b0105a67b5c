#pragma once

// Puts the units of a trace into an order in which each comes after all that it waits for.

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "study/traces/matching.h"
#include "study/traces/trace.h"

namespace tulle::traces {

class Order {
 public:
  using Index = Trace::Index;

  Order(const Trace& trace, const Matching& matching) : trace_(trace), matching_(matching) {}

  // The error names the nodes of a cycle.
  Result<void> sort();

  const std::vector<std::uint32_t>& units() const { return order_; }
  // Returns the positions in Trace::dependencies_ of what a node waits for.
  std::span<const std::uint32_t> waits_of(Index node) const {
    return std::span(waits_).subspan(first_wait_[node], first_wait_[node + 1] - first_wait_[node]);
  }

 private:
  void collect_waits();
  Error cycle(const std::vector<std::uint32_t>& awaited) const;
  template <typename Visit>
  void visit_before(Index node, Visit visit) const;

  const Trace& trace_;
  const Matching& matching_;
  std::vector<std::size_t> first_wait_;  // by node: index in waits_
  std::vector<std::uint32_t> waits_;
  std::vector<std::uint32_t> order_;
};

}  // namespace tulle::traces

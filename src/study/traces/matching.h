#pragma once

// Finds what belongs together in a trace: the send of each receive, and the calls of each
// collective operation.

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "study/traces/trace.h"

namespace tulle::traces {

// A *unit* is what begins as one: a node, or all calls of one collective operation.
class Matching {
 public:
  using Index = Trace::Index;

  explicit Matching(const Trace& trace) : trace_(trace) {}

  // Matches the sends and receives of two ranks that have one tag, and the collectives of a group,
  // in the order in which each rank's nodes were added. The error names the first node without a
  // counterpart, or with one of another kind or size.
  Result<void> match();

  std::size_t units() const { return first_member_.size() - 1; }
  std::uint32_t unit_of(Index node) const { return unit_of_[node]; }
  // Returns the nodes of a unit. A collective's are in the order of its group's ranks.
  std::span<const Index> members(std::uint32_t unit) const {
    return std::span(members_).subspan(first_member_[unit],
                                       first_member_[unit + 1] - first_member_[unit]);
  }
  // Returns the send of a receive.
  Index send_of(Index receive) const { return partner_[receive]; }

 private:
  Result<void> match_messages();
  Result<void> match_collectives();
  Result<void> check_calls(std::span<const Index> calls) const;
  void add_unit(std::span<const Index> members);

  const Trace& trace_;
  std::vector<Index> partner_;                // by receive
  std::vector<std::uint32_t> unit_of_;        // by node
  std::vector<std::size_t> first_member_{0};  // by unit: index in members_
  std::vector<Index> members_;
};

}  // namespace tulle::traces

#pragma once

// Gives LIDs to the end ports of a subnet. A port keeps the LID that it has, or that it had when it
// was here last, if no other port has it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "management/subnet/graph.h"

namespace tulle::management::subnet {

class LidAssignment {
 public:
  // Writes the LID and the LMC of each end port into the graph. Adapters have 2^lmc LIDs, or fewer
  // if the subnet has too many ports for that, and switches have one. Returns the number of ports
  // for which no LID was left: these have 0.
  std::uint32_t assign(Graph& graph, unsigned lmc);

  // Returns the last LID that has been given out.
  std::uint16_t top() const { return top_; }

 private:
  // The LIDs of ports that have gone are remembered for so many ports.
  static constexpr std::size_t remembered_max = 16'384;

  bool is_free(std::uint32_t lid, std::uint32_t count) const;
  bool claim(GraphNode& node, std::uint32_t lid);
  std::uint32_t first_free(std::uint32_t count, std::uint32_t from) const;
  void keep(Graph& graph);
  void reserve_remembered();
  std::uint32_t give_new(Graph& graph);
  void forget_absent(const Graph& graph);

  std::map<std::uint64_t, std::uint16_t> remembered_;  // by port GUID
  std::vector<bool> is_taken_;                         // by LID
  std::uint16_t top_ = 0;
};

}  // namespace tulle::management::subnet

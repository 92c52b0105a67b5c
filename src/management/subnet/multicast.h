#pragma once

// Multicast trees: how a switch passes on the packets of a group. Each group has a tree of shortest
// paths from one of its switches, as far as there are receivers.

#include <cstdint>
#include <map>
#include <vector>

#include "management/subnet/exchange.h"
#include "management/subnet/graph.h"

namespace tulle::management::subnet {

inline constexpr std::uint16_t first_multicast_lid = wire::unicast_lid_max + 1;

// The ports (by GUID) to which the packets of a multicast LID go.
using Receivers = std::map<std::uint16_t, std::vector<std::uint64_t>>;

// Multicast forwarding tables as they have been set at the switches.
class KnownGroups {
 public:
  // Returns the Sets of the blocks that differ.
  std::vector<Question> questions(const Graph& graph, const Receivers& receivers);
  // Takes the answer to one of these.
  void receive(const Graph& graph, const Reply& reply);
  void clear() { switches_.clear(); }

 private:
  using Blocks = std::map<std::uint32_t, AttributeData>;  // by attribute modifier

  std::map<std::uint64_t, Blocks> switches_;  // by the switch's GUID
};

}  // namespace tulle::management::subnet

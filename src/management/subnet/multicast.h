#pragma once

// Multicast trees: how a switch passes on the packets of a group. Each group has a tree of shortest
// paths from one of its switches, as far as there are members.

#include <cstdint>
#include <map>
#include <vector>

#include "management/subnet/exchange.h"
#include "management/subnet/graph.h"

namespace tulle::management::subnet {

inline constexpr std::uint16_t first_multicast_lid = wire::unicast_lid_max + 1;

// The members of a group, by the GUIDs of their ports.
struct GroupMembers {
  std::vector<std::uint64_t> receivers;
  std::vector<std::uint64_t> senders{};  // that receive nothing

  bool operator==(const GroupMembers&) const = default;
};
using Members = std::map<std::uint16_t, GroupMembers>;  // by multicast LID

// Multicast forwarding tables as they have been set at the switches.
class KnownGroups {
 public:
  // Returns the Sets of the blocks that differ.
  std::vector<Question> questions(const Graph& graph, const Members& members);
  // Takes the answer to one of these.
  void receive(const Graph& graph, const Reply& reply);
  void clear() { switches_.clear(); }

 private:
  using Blocks = std::map<std::uint32_t, AttributeData>;  // by attribute modifier

  std::map<std::uint64_t, Blocks> switches_;  // by the switch's GUID
};

}  // namespace tulle::management::subnet

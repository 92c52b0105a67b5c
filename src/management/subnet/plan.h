#pragma once

// A master's plan: it sets addresses and limits of the ports, then forwarding tables, then the
// states of the links. It sets only what differs.

#include <cstdint>
#include <map>
#include <vector>

#include "management/subnet/exchange.h"
#include "management/subnet/graph.h"

namespace tulle::management::subnet {

struct PortSettings {
  std::uint64_t key = 0;  // M_Key; 0: anybody may set
  // IBTA 14.2.4.1, with a key: 0 shows it to everybody, 1 to those who have it, and 2 shows nothing
  // to others.
  std::uint8_t key_protection = 1;
  // How long a port waits for its manager after a stranger's attempt, until it shows its key. A
  // manager that is there asks each port more often.
  std::uint16_t key_lease_seconds = 60;
  std::uint8_t subnet_timeout = 18;  // 4.096 us * 2^18 is a second
  bool reregisters = false;          // adapters are to ask again for groups and notices
};

// Returns the Sets that give each port its LID, its manager and the limits of its link. The LIDs
// must have been given out.
std::vector<Question> port_questions(const Graph& graph, const PortSettings& settings);

// Returns the Sets that take this M_Key from the ports that have it, so that anybody may set them.
std::vector<Question> release_questions(const Graph& graph, std::uint64_t key);

// Returns the Sets that take all links that are in one state into the next.
std::vector<Question> state_questions(const Graph& graph, wire::PortState from, wire::PortState to);

// Tables as they have been set at the switches, which is more than a discovery reads.
class KnownTables {
 public:
  static constexpr std::uint8_t no_port = 0xFF;

  // Returns the Sets of the blocks that differ, and of the last LID where that differs.
  std::vector<Question> questions(const Graph& graph);
  // Takes the answer to one of these.
  void receive(const Graph& graph, const Reply& reply);
  void clear() { tables_.clear(); }

 private:
  struct Table {
    std::vector<std::uint8_t> ports;  // by LID
    std::vector<bool> is_known;       // by block
  };

  void ask_blocks(const GraphNode& node, std::uint32_t index, std::vector<Question>& questions);
  void forget_gone(const Graph& graph);

  std::map<std::uint64_t, Table> tables_;  // by the switch's GUID
};

}  // namespace tulle::management::subnet

#pragma once

// The manager that one in standby polls (IBTA 14.4.1), and whose subnet it takes over when that is
// no master any more. A master that hands over has chosen the new one so, too.

#include <cstdint>

#include "management/packet.h"
#include "management/subnet/discovery.h"
#include "management/subnet/exchange.h"
#include "management/subnet/graph.h"

namespace tulle::management::subnet {

class PolledManager {
 public:
  // A manager with precedence that does not become master within so many questions is passed over.
  static constexpr int polls_max = 5;

  // Chooses a manager that a discovery has found.
  void choose(const Graph& graph, const OtherManager& other, bool is_master);
  const Route& route() const { return route_; }
  // Returns the question whether it is there.
  Question poll() const;

  // Takes the answer. Returns true if the manager is worth waiting for: it is the master, or
  // becomes it soon. `has_precedence` tells whether it may.
  template <typename HasPrecedence>
  bool receive(const Reply& reply, HasPrecedence has_precedence);
  // Returns true if that manager was chosen and did not become master.
  bool is_passed_over(std::uint64_t guid) const { return guid == passed_over_guid_; }

  // Returns true if the manager has been seen to be the master, and has sent the datagram. `graph`
  // is that of the last discovery.
  bool has_sent(const Graph& graph, const Packet& packet) const;

 private:
  Route route_;
  std::uint64_t guid_ = 0;
  std::uint32_t node_ = no_node;  // in the graph of the last discovery
  bool is_master_ = false;        // when it last answered
  int polls_in_vain_ = 0;
  std::uint64_t passed_over_guid_ = 0;
};

template <typename HasPrecedence>
bool PolledManager::receive(const Reply& reply, HasPrecedence has_precedence) {
  const OtherManager other{no_node, reply.as<wire::SmInfo>()};
  const bool is_there = reply.is_good() && other.info.guid == guid_;
  is_master_ = is_there && other.state() == wire::ManagerState::master;
  if (is_master_) {
    polls_in_vain_ = 0;
    passed_over_guid_ = 0;
    return true;
  }
  const bool may_become =
      is_there && other.state() != wire::ManagerState::not_active && has_precedence(other);
  if (may_become && ++polls_in_vain_ < polls_max) return true;
  if (may_become) passed_over_guid_ = guid_;
  return false;
}

}  // namespace tulle::management::subnet

#pragma once

// Discovery of a subnet (IBTA 14.4.2): from the manager's own node outwards, each port whose link
// is up is asked what is behind it. A node's answer is believed only if it fits what other nodes
// have answered, and the size of a discovery is bounded.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "management/subnet/exchange.h"
#include "management/subnet/graph.h"

namespace tulle::management::subnet {

// Nodes and ports beyond these are left out. The bounds keep the memory of a discovery below 60 MB,
// whatever nodes answer.
struct DiscoveryLimits {
  std::uint32_t nodes = 49'151;  // LIDs of a subnet
  std::uint32_t switches = 4'096;
  std::uint32_t ports = 131'072;
};

// Another subnet manager, and the node at whose port it is.
struct OtherManager {
  std::uint32_t node = no_node;
  wire::SmInfo info;

  wire::ManagerState state() const {
    return static_cast<wire::ManagerState>(wire::lower_half(info.priority_and_state));
  }
  unsigned priority() const { return wire::upper_half(info.priority_and_state); }
};

class Discovery {
 public:
  explicit Discovery(const DiscoveryLimits& limits = {}) : limits_(limits) {}

  // Begins again. A master takes back the switches' note that a port has changed, before it polls
  // the ports.
  void begin(Exchange& exchange, bool is_master);
  // Takes a reply, and asks on. The discovery is over when the exchange is.
  void receive(const Reply& reply, Exchange& exchange);

  const Graph& graph() const { return graph_; }
  Graph take_graph() { return std::move(graph_); }
  const std::vector<OtherManager>& managers() const { return managers_; }
  // Returns how many questions had no good answer, and how many nodes or links made no sense or
  // were too many.
  std::uint32_t unanswered() const { return unanswered_; }
  std::uint32_t left_out() const { return left_out_; }

 private:
  void ask(Exchange& exchange, std::uint32_t node, std::uint16_t attribute,
           std::size_t place = 0) const;
  void ask_ports(Exchange& exchange, std::uint32_t node) const;
  void receive_node_info(const Reply& reply, Exchange& exchange);
  std::uint32_t find_or_add(const wire::NodeInfo& info, const Route& route, Exchange& exchange);
  bool fits(const wire::NodeInfo& info) const;
  void join(std::uint32_t from, std::uint8_t place, std::uint32_t node, std::uint8_t port);
  void receive_port_info(const Reply& reply, Exchange& exchange);
  void receive_switch_info(const Reply& reply, Exchange& exchange);

  DiscoveryLimits limits_;
  Graph graph_;
  // The index of each node, by its GUID and, for an adapter, the port's number.
  std::map<std::pair<std::uint64_t, std::uint8_t>, std::uint32_t> index_;
  std::vector<OtherManager> managers_;
  std::uint32_t switches_ = 0;
  std::uint32_t ports_ = 0;
  std::uint32_t unanswered_ = 0;
  std::uint32_t left_out_ = 0;
  bool is_master_ = false;
};

}  // namespace tulle::management::subnet

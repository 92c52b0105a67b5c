#pragma once

// An InfiniBand subnet as its management sees it: the nodes of a topology with their agents, and
// the management datagrams that go between them, hop by hop, as directed routes and the switches'
// own forwarding tables say. It is a state machine without input or output. Datagrams take no time
// here, and nothing holds them back.
//
// Some of the nodes may be elsewhere: in the subnet of a process on another machine. Of those, this
// one knows what it is told about their ports. Cables lead to them from nodes that are here.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "fabric/cable_end.h"
#include "fabric/topology.h"
#include "management/packet.h"
#include "management/performance/agent.h"
#include "management/subnet/directed_route.h"
#include "management/subnet/node.h"

namespace tulle::fabric {

// Returns the name of a host for commands: "h3" for host 3.
std::string host_name(std::uint32_t host);
// Returns a name without spaces for commands: "h3" for host 3, and "leaf1" for the switch "leaf 1".
std::string node_name(const Topology& topology, std::uint32_t node);

class Subnet {
 public:
  // A datagram for programs of a host, or for those at port 0 of a switch.
  struct Arrival {
    std::uint32_t host = 0;  // a node
    std::uint8_t port = 0;
    management::Packet packet;
  };
  // A datagram that has made so many hops is discarded, since tables that lead in a circle would
  // keep it for ever.
  static constexpr int hops_max = 64;
  // Datagrams beyond so many under way are discarded, and counted.
  static constexpr std::size_t under_way_max = 65'536;

  // Ports of nodes are numbered from 1 on: port p of the topology is port p + 1 here. Switches must
  // have less than 255 ports. `is_elsewhere` says it of each node; empty means that all are here.
  Subnet(Time now, const Topology& topology, std::vector<bool> is_elsewhere = {});
  Subnet(const Subnet&) = delete;
  Subnet& operator=(const Subnet&) = delete;

  const Topology& topology() const { return topology_; }
  const Wiring& wiring() const { return wiring_; }
  const management::subnet::Node& node(std::uint32_t node) const { return nodes_[node].agent; }
  std::string name(std::uint32_t node) const { return node_name(topology_, node); }
  std::optional<std::uint32_t> find(std::string_view name) const;
  bool is_cut(std::uint32_t link) const { return is_cut_[link]; }
  // Returns what a port counts, numbered from 1 on. Who moves packets with data counts them here.
  management::performance::Counters& counters(std::uint32_t node, std::uint8_t port) {
    return nodes_[node].counters[port];
  }
  bool is_elsewhere(std::uint32_t node) const { return is_elsewhere_[node]; }
  // Returns true if a link has one end here and one elsewhere.
  bool leads_elsewhere(std::uint32_t link) const { return ends_.contains(link); }
  // Returns how often links have gone up or down.
  std::uint64_t link_changes() const { return link_changes_; }
  // Returns the number of datagrams that were discarded: no way, a port that is down, a circle, too
  // many.
  std::uint64_t discarded() const { return discarded_; }

  // Lets datagrams arrive at port 0 of a switch, where a program has it open.
  void open_switch(std::uint32_t node) { is_open_[node] = true; }
  // Sends a datagram from a program of a host, or from port 0 of a switch.
  void send(Time now, std::uint32_t host, std::uint8_t port, const management::Packet& packet);
  // Returns true, once, if a manager has asked that a port's clients register again.
  bool take_reregistration(std::uint32_t node, std::uint8_t port) {
    return nodes_[node].agent.take_reregistration(port);
  }
  // Says whether a subnet manager runs on a port.
  void set_manager(Time now, std::uint32_t host, std::uint8_t port, bool is_manager);
  // Cuts a link, one end of which is here, or joins it again.
  void set_cut(Time now, std::uint32_t link, bool is_cut);

  // Moves all datagrams as far as they go, and sends the traps that are due.
  void run(Time now);
  // Returns the next datagram that has arrived at a host.
  std::optional<Arrival> take_arrival();
  // Returns when run() must be called although nothing has happened.
  Time next_event() const;
  void rebase(Time by) {
    for (Node& node : nodes_) node.agent.rebase(by);
  }

  // --- nodes elsewhere ---

  // A report by which one machine tells another of a port that it has.
  struct PortReport {
    std::uint32_t node = 0;
    std::uint8_t port = 0;  // 0: that of a switch, which has its LIDs
    CableEnd::Report end;   // of a cable between the two; otherwise nothing
    wire::PortInfo info;    // without its keys
  };
  PortReport report(std::uint32_t node, std::uint8_t port) const;
  // Takes a report of a port elsewhere. The caller has checked that it comes from the machine that
  // has the node. Returns false if there is no such port.
  bool take_report(Time now, const PortReport& report);
  // The other end of a link that leads elsewhere is silent.
  void lose(Time now, std::uint32_t link);
  // A node elsewhere is silent: what it reported of its ports is no longer valid.
  void forget(std::uint32_t node);
  // Ends the leases of keys at the nodes of a part that are here and whose manager has that LID.
  void end_leases(std::span<const std::uint32_t> parts, std::uint32_t part, std::uint16_t manager);
  // Returns how often a link has come up at the end that is here, and 0 if all of it is.
  std::uint32_t ups(std::uint32_t link) const;
  // A datagram that crosses such a link.
  struct Crossing {
    std::uint32_t link = 0;
    int hops = 0;
    management::Packet packet;
    std::uint32_t attempt = 0;  // of the end here when it left
  };
  std::optional<Crossing> take_crossing();
  // Returns true if the next one left before the link went down at this end, and so goes out before
  // the other end is told of that.
  bool has_early_crossing() const {
    return !crossings_.empty() &&
           crossings_.front().attempt != ends_.at(crossings_.front().link).attempt();
  }
  // A datagram has come from the other end.
  void arrive(const Crossing& crossing);

 private:
  struct Node {
    management::subnet::Node agent;
    std::vector<management::performance::Counters> counters;  // by port
  };
  // A datagram that comes in at a port.
  struct Hop {
    std::uint32_t node = 0;
    std::uint8_t port = 0;
    int hops = 0;
    management::Packet packet;
  };

  // A port of a node, from 1 on.
  struct PortAt {
    std::uint32_t node = 0;
    std::uint8_t port = 0;
  };

  void originate(Time now, Hop& hop);
  void receive(Time now, Hop& hop);
  void receive_directed(Time now, Hop& hop);
  void take(Time now, Hop& hop, const management::subnet::RouteStep& next);
  void route_by_lid(Time now, Hop& hop);
  void deliver(Time now, Hop& hop);
  void deliver_subnet_management(Time now, Hop& hop);
  void deliver_general_service(Time now, Hop& hop);
  void arrive(const Hop& hop);
  void send_answer(Time now, const Hop& hop);
  void output(std::uint32_t node, std::uint8_t port, int hops, const management::Packet& packet);
  bool carries(std::uint32_t node, std::uint8_t port, const management::Packet& packet) const;
  void restart_links(Time now, std::uint32_t node);
  void take_down(Time now, std::uint32_t node, std::uint8_t port);
  void bring_up(Time now, std::uint32_t link);
  bool is_open(std::uint32_t link) const;
  void train(Time now, std::uint32_t link);
  PortAt end_here(std::uint32_t link) const;
  void send_traps(Time now, std::uint32_t node);

  Topology topology_;
  Wiring wiring_;
  std::vector<Node> nodes_;
  std::vector<bool> is_cut_;   // by link
  std::vector<bool> is_open_;  // by node: datagrams arrive; all hosts are open
  std::deque<Hop> under_way_;
  std::deque<Arrival> arrivals_;
  std::vector<bool> is_elsewhere_;          // by node
  std::map<std::uint32_t, CableEnd> ends_;  // by link: those that lead elsewhere
  std::deque<Crossing> crossings_;
  std::vector<std::uint32_t> with_restarted_links_;  // nodes
  std::uint64_t discarded_ = 0;
  std::uint64_t link_changes_ = 0;
};

}  // namespace tulle::fabric

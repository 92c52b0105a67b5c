#pragma once

// A cluster in virtual time: adapters, switches and the links between them, packet by packet.
//
// This driver makes no protocol decisions: adapters and switches are the same state machines as
// everywhere. The driver keeps virtual time and moves frames over links. A port sends one frame
// after the other at its link's rate, and a frame arrives a propagation delay after it was sent. A
// frame costs one event, its arrival, if it finds its port free. If it has to wait, it costs a
// second one, when the port becomes free.
//
// A run is a function of its topology, its settings and the caller's actions. There is no global
// state, each node draws from a separate random stream, and events at the same time are ordered by
// where they happen.
//
// The nodes may be divided into parts, which threads move at the same time (see part.h), in one
// process or in several (see processes.h). An observer that must see all events in order of time
// asks for that order. The simulation's results are the same.

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/time.h"
#include "fabric/recovery.h"
#include "fabric/routing.h"
#include "fabric/switch.h"
#include "fabric/topology.h"
#include "rdma/device/adapter.h"
#include "rdma/optional/host_stack.h"
#include "rdma/port/port.h"
#include "sim/addresses.h"
#include "sim/application.h"
#include "sim/network_events.h"
#include "sim/network_settings.h"
#include "sim/nodes.h"
#include "sim/part.h"
#include "sim/processes.h"
#include "sim/synchronizer.h"
#include "sim/team.h"

namespace tulle::sim {

// Returns how soon a node can be affected by another: the shortest delay of a link, with the delays
// of the nodes around it. If it is zero, the nodes cannot be divided.
Time lookahead_of(const fabric::Topology& topology, const NetworkSettings& settings);

class Network {
 public:
  // Divides the nodes among the threads of a team, and among processes that have as many threads
  // each. Team and processes must outlive the network, and there must be no more threads in all
  // than hosts. All nodes are in one part if there is no team, or if a link has no delay, since
  // nothing can then happen at the same time; there must then be one process.
  //
  // Each process has its own nodes alone. Asking for a node of another process is a bug.
  Network(const fabric::Topology& topology, const fabric::Routes& routes,
          const NetworkSettings& settings, Team* team = nullptr, Processes* processes = nullptr);
  ~Network();
  Network(const Network&) = delete;  // its parts hold pointers into it
  Network& operator=(const Network&) = delete;

  std::uint32_t hosts() const { return static_cast<std::uint32_t>(nodes_.hosts.size()); }
  // Returns true if this process has the node and moves it.
  bool owns(std::uint32_t node) const { return nodes_.places[node].part - first_part_ < threads(); }
  // Returns the process that does.
  std::uint32_t process_of(std::uint32_t node) const {
    return nodes_.places[node].part / threads();
  }
  // Returns the number of threads that move this process's nodes.
  std::uint32_t threads() const { return static_cast<std::uint32_t>(parts_.size()); }
  device::Adapter& adapter(std::uint32_t host) { return nodes_.hosts[host].adapter; }
  const device::Adapter& adapter(std::uint32_t host) const { return nodes_.hosts[host].adapter; }
  // Returns the time of the host whose event run() returned. If nothing was left to happen, it is
  // the time of the last event, of this process's nodes.
  Time now() const;

  // --- the application's side ---

  // Lets a host act. The caller must call this when the application has given the host something to
  // do. In answer to an event, only the host of that event may be named.
  void attend(std::uint32_t host) { part_of(host).attend(host); }
  // Plans an event for the application. In answer to an event, an event at another host must be at
  // least lookahead() later. Where there are several processes, each of them plans all other events
  // before anything happens, and keeps those at its own hosts.
  void alarm(Time at, std::uint32_t host, std::uint32_t token);
  // Has Application::meet_request() called at a host before anything reaches it that is sent from
  // now on. It is called at once if the host is in the same part as the one whose turn it is.
  void request(std::uint32_t host, std::uint32_t token, std::uint32_t note,
               Application& application);
  // Lets events happen until nothing is left to happen until then. `until` must not be earlier than
  // in the previous call. Returns false if the application does not continue. All processes call
  // this with the same time, and it returns the same to all. Throws what an application has thrown,
  // and std::runtime_error, with one line, if another process has sent something damaged.
  bool play(Time until, Application& application);
  // Lets events happen until one concerns the application, or the next is later than `until`. For
  // networks of one thread.
  NetworkEvent run(Time until = Time::never()) { return parts_.front()->run(until); }
  // Returns how soon a node can be affected by another: the shortest delay of a link.
  Time lookahead() const { return nodes_.lookahead; }
  // Returns the length of a round, in which each node has one turn. Rounds begin at its multiples.
  Time round() const { return parts_.front()->round_length(); }

  // Makes all events happen in order of time. The caller must call this before anything has
  // happened, and only if the network has one thread.
  void order_by_time();
  // Sets an observer of every frame and control message, in order of time.
  void on_send(std::function<void(const Sending&)> told) {
    order_by_time();
    observers_.on_send = std::move(told);
  }

  // Reroutes around links that are down. Without it, all frames for a dead port are lost.
  // `recovery` must outlive the network. The caller must call this before anything has happened.
  void follow(const fabric::Recovery& recovery);
  // Sets an observer of lost frames, in addition to on_send().
  void on_loss(std::function<void(const Loss&)> told) {
    order_by_time();
    observers_.on_loss = std::move(told);
  }
  void on_link_change(std::function<void(const LinkChange&)> told) {
    order_by_time();
    observers_.on_link_change = std::move(told);
  }
  FaultTotals fault_totals() const;
  bool has_stacks() const { return nodes_.has_kernels; }
  // Returns null if the host has no kernel stack.
  const device::HostStack* stack(std::uint32_t host) const;

  // Returns the time of the next event of all processes. Time::never() means that no event is left.
  // With other processes, this holds after play() unless the application has ended it.
  Time next_event() const;

  // These count what this process's nodes have done.
  std::uint64_t events() const;
  // Returns the sum over data packets of the links that they were sent over.
  std::uint64_t data_packet_hops() const;
  std::uint64_t frames_sent() const;
  // Returns the number of frames on links and in switches.
  std::uint64_t frames_in_use() const;
  // Returns the number of notices that switches have sent to hosts about endpoints.
  std::uint64_t notices() const;
  const fabric::Switch& switch_at(std::uint32_t node) const {
    return nodes_.switches[node - hosts()];
  }
  // Returns the counters of a port's sending side.
  const port::Counters& counters(std::uint32_t node, std::uint16_t port) const {
    return port_at(node, port).counters();
  }
  // Returns a port of an adapter or of a switch.
  const port::Port& port_at(std::uint32_t node, std::uint16_t port) const {
    return *nodes_.ends[nodes_.end_index(node, port)].port;
  }

 private:
  // Returns the part of a node of this process.
  Part& part_of(std::uint32_t node) {
    TULLE_CHECK(owns(node));
    return *parts_[nodes_.places[node].part - first_part_];
  }
  // Returns true if the end is a switch's, and a host is at the other one.
  bool is_leaf_end(const LinkEnd& end) const {
    return !nodes_.is_host(end.node) && nodes_.is_host(end.peer) && end.bits_per_second > 0;
  }
  bool has_begun() const;
  template <typename Value>
  std::uint64_t sum(Value value) const;

  // Set-up, in network_build.cc and, for faults, in network_faults.cc.
  void divide(const fabric::Topology& topology, Team* team, Processes* processes);
  void make_hosts(const std::vector<std::int64_t>& fastest);
  void make_switches(const fabric::Topology& topology);
  void make_ends(const fabric::Topology& topology);
  void connect(const fabric::Topology& topology, const fabric::Link& link,
               const std::vector<std::int64_t>& fastest);
  void set_victim_mask(const fabric::Link& link);
  void set_up_switch(fabric::Switch& at, std::uint32_t node);
  void set_partitions(const fabric::Topology& topology);
  void exchange_credits();
  void set_up_notices();
  void set_up_rounds();
  void set_up_stacks();
  void plan_faults(const fabric::Topology& topology);
  void plan_outages(const fabric::Topology& topology);
  void plan_bit_errors(const fabric::Topology& topology);
  void plan_slow_hosts();
  void plan_action(Time at, std::uint32_t node, std::uint16_t port, const FaultAction& action);

  Nodes nodes_;
  Observers observers_;
  Time short_turn_;
  bool in_order_of_time_ = false;
  std::uint32_t first_part_ = 0;  // number of the first one of this process
  std::vector<std::unique_ptr<Part>> parts_;
  std::unique_ptr<Synchronizer> synchronizer_;  // null: there is one part, here and elsewhere
};

}  // namespace tulle::sim

#pragma once

// Adapters in virtual time: the smallest possible driver. Network is the driver for whole clusters
// with switches.
//
// Nodes are device::Adapter. A network without switches joins their ports, and each port sends one
// datagram after the other at the link's rate. The caller owns the loop: `step` lets the next event
// happen and returns its node, so that the caller can look at that node's completion queues. The
// driver decides nothing else, reads no clock and has no global state. Each node's faults come from
// a separate random stream. A run is a function of its settings and the caller's actions.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "fabric/faults.h"
#include "rdma/device/adapter.h"
#include "sim/event_queue.h"

namespace tulle::sim {

using NodeNumber = Id<struct NodeNumberTag, std::uint32_t>;

// The form in which datagrams travel. As datagrams they are bytes with an ICRC (TCP's segments with
// a checksum). As packets they are headers and payload without an ICRC, so that damage reaches the
// payload undetected. That is fast, and it shows that a checker would detect damage.
enum class Carriage : std::uint8_t { datagrams, packets };

// The clocks by which the adapters are told the time. By default all are the cluster's.
struct Clocks {
  Time ahead;  // what an adapter's clock shows when the cluster begins
  // An adapter's clock moves its zero after so many events of its node, as clocks of live devices
  // do (Adapter::rebase), so that it shows `ahead` again. 0 means never.
  std::uint32_t events_per_rebase = 0;
};

struct Settings {
  std::uint64_t seed = 0;
  Carriage carriage = Carriage::datagrams;
  // True if a receiver can read the IPv4 identification, which senders choose; see port::Arrival.
  bool identification_known = true;
  std::int64_t link_bits_per_second = 100'000'000'000;
  Time link_delay = Time::microseconds(1);
  fabric::FaultSettings faults;     // the seed is not used, as each node has its own stream
  Time faults_end = Time::never();  // from this time on the network is perfect
  Clocks clocks;
};

// An event that has just happened at a node.
struct Happening {
  enum class Kind : std::uint8_t { nothing, arrival, port_free, deadline, alarm };
  Kind kind = Kind::nothing;  // nothing: no event is left
  NodeNumber node;
  std::uint64_t token = 0;  // token of an alarm
};

// A datagram that leaves a node, for observers of the traffic.
struct Departure {
  Time at;
  Time port_free_at;
  NodeNumber from;
  NodeNumber to;
  const device::Datagram& datagram;
  const fabric::Faults::Copies& copies;  // none if one of the nodes is cut off
};

// A packet that a node takes in.
struct Arrival {
  Time at;
  NodeNumber to;
  const wire::Packet& packet;
};

class Cluster {
 public:
  explicit Cluster(const Settings& settings) : settings_(settings) {}

  NodeNumber add(const device::Configuration& configuration, std::span<const Gid> gids);
  device::Adapter& adapter(NodeNumber node) { return *nodes_[node.value].adapter; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(nodes_.size()); }
  Time now() const { return now_; }

  // Lets a node act. The caller must call this when the application has given the node something to
  // do.
  void attend(NodeNumber node);
  // Plans an event for the application.
  void alarm(Time at, NodeNumber node, std::uint64_t token);
  // Disconnects the node for the rest of the run.
  void cut_off(NodeNumber node) { nodes_[node.value].cut_off = true; }

  Happening step();

  // Sets a function that is called with each datagram that leaves for another node. It must not
  // touch the cluster.
  void set_tap(std::function<void(const Departure&)> tap) { tap_ = std::move(tap); }
  // Sets a function that is called with each packet before its node handles it, or afterwards if
  // the packet is damaged and the node takes it in all the same. TCP's segments are left out. The
  // function must not touch the cluster.
  void set_arrival_tap(std::function<void(const Arrival&)> tap) { arrival_tap_ = std::move(tap); }

  // Returns a digest of all events in order. Equal runs have equal digests.
  std::uint64_t digest() const { return digest_; }
  fabric::FaultCounters faults() const;
  std::uint64_t events() const { return events_; }

 private:
  struct Plan {
    Happening::Kind kind{};
    std::uint64_t token = 0;  // token of an alarm, or slot of a datagram
  };
  struct Node {
    std::unique_ptr<device::Adapter> adapter;
    fabric::Faults faults;
    std::uint16_t identification = 0;
    bool port_busy = false;
    bool cut_off = false;
    Time deadline_planned = Time::never();
    // The adapter's clock has fallen behind so far, as its zero has moved.
    Time behind = Time::zero();
    std::uint32_t events = 0;  // since the zero moved
  };
  struct Route {
    Gid gid;
    NodeNumber node;
  };
  // A datagram on its way. Slots are reused with their memory.
  struct InFlight {
    wire::IpUdp ip;
    wire::Packet packet;
    std::vector<std::byte> bytes;   // a datagram's UDP payload, or a packet's payload
    std::uint32_t ghost_bytes = 0;  // length of a payload without bytes
    bool damaged = false;
    bool is_tcp = false;  // true: `bytes` are a segment, or the payload of one with this header
    wire::Tcp tcp;
  };

  void transmit(NodeNumber from);
  void carry(NodeNumber from, NodeNumber to, Time departs);
  std::uint32_t take_slot();
  void fill(InFlight& slot) const;
  void deliver(NodeNumber to, std::uint32_t slot);
  void fill_segment(InFlight& slot) const;
  void deliver_segment(NodeNumber to, const InFlight& flying);
  void plan_deadline(NodeNumber node);
  void rebase(Node& node);
  // Returns what the clock of the node's adapter shows.
  Time clock_of(const Node& node) const { return now_ + settings_.clocks.ahead - node.behind; }
  void record(std::uint64_t word);

  Settings settings_;
  Time now_;
  std::vector<Node> nodes_;
  std::vector<Route> routes_;
  EventQueue<Plan> queue_;
  std::vector<std::unique_ptr<InFlight>> slots_;
  std::vector<std::uint32_t> free_slots_;
  device::Datagram outgoing_;
  std::function<void(const Departure&)> tap_;
  std::function<void(const Arrival&)> arrival_tap_;
  std::uint64_t digest_ = 0xCBF2'9CE4'8422'2325;
  std::uint64_t events_ = 0;
};

}  // namespace tulle::sim

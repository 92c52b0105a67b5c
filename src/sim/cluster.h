#pragma once

// Adapters in virtual time: the smallest driver there can be, and the seed of the simulator of
// whole clusters.
//
// Nodes are device::Adapter; a network without switches joins their ports, each of which sends one
// datagram after the other at the link's rate. The caller owns the loop: `step` lets the next event
// happen and says where, so that the caller can look at that node's completion queues. Nothing here
// decides anything else, reads a clock or is global; each node's faults come from a random stream
// of its own. A run is a function of its settings and of what the caller does.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "device/adapter.h"
#include "fabric/faults.h"
#include "sim/event_queue.h"

namespace tulle::sim {

using NodeNumber = Id<struct NodeNumberTag, std::uint32_t>;

// How datagrams travel (TCP's segments as bytes with a checksum, or as headers and payload). As
// packets they have no ICRC, so that damage reaches the payload unseen:
// good for speed, and for showing that a checker would see it.
enum class Carriage : std::uint8_t { datagrams, packets };

struct Settings {
  std::uint64_t seed = 0;
  Carriage carriage = Carriage::datagrams;
  // Whether a receiver can read the IPv4 identification, which senders choose; see link::decode.
  bool identification_known = true;
  std::int64_t link_bits_per_second = 100'000'000'000;
  Time link_delay = Time::microseconds(1);
  fabric::FaultSettings faults;     // its seed is not used: each node has its own
  Time faults_end = Time::never();  // from then on the network is perfect
};

// What has just happened at a node.
struct Happening {
  enum class Kind : std::uint8_t { nothing, arrival, port_free, deadline, alarm };
  Kind kind = Kind::nothing;  // nothing: there is nothing left to happen
  NodeNumber node;
  std::uint64_t token = 0;  // alarm
};

// A datagram that leaves, for who wants to see the traffic.
struct Departure {
  Time at;
  NodeNumber from;
  NodeNumber to;
  const device::Datagram& datagram;
  const fabric::Faults::Copies& copies;
};

class Cluster {
 public:
  explicit Cluster(const Settings& settings) : settings_(settings) {}

  NodeNumber add(const device::Configuration& configuration, std::span<const Gid> gids);
  device::Adapter& adapter(NodeNumber node) { return *nodes_[node.value].adapter; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(nodes_.size()); }
  Time now() const { return now_; }

  // To be called when the application has given a node something to do.
  void attend(NodeNumber node);
  // An event of the application's own.
  void alarm(Time at, NodeNumber node, std::uint64_t token);
  // Pulls the node's cable, for good.
  void cut_off(NodeNumber node) { nodes_[node.value].cut_off = true; }

  Happening step();

  // Called with each datagram that leaves for another node; it must not touch the cluster.
  void set_tap(std::function<void(const Departure&)> tap) { tap_ = std::move(tap); }

  // Of everything that has happened, in order: equal runs have equal digests.
  std::uint64_t digest() const { return digest_; }
  fabric::FaultCounters faults() const;
  std::uint64_t events() const { return events_; }

 private:
  struct Plan {
    Happening::Kind kind{};
    std::uint64_t token = 0;  // alarm's, or the datagram's slot
  };
  struct Node {
    std::unique_ptr<device::Adapter> adapter;
    fabric::Faults faults;
    std::uint16_t identification = 0;
    bool port_busy = false;
    bool cut_off = false;
    Time deadline_planned = Time::never();
  };
  struct Route {
    Gid gid;
    NodeNumber node;
  };
  // A datagram on its way. Slots are used again, with their memory.
  struct InFlight {
    wire::IpUdp ip;
    wire::Packet packet;
    std::vector<std::byte> bytes;   // a datagram's UDP payload, or a packet's payload
    std::uint32_t ghost_bytes = 0;  // instead of bytes
    bool damaged = false;
    bool is_tcp = false;  // then `bytes` are a segment's, or its payload, of this header
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
  std::uint64_t digest_ = 0xCBF2'9CE4'8422'2325;
  std::uint64_t events_ = 0;
};

}  // namespace tulle::sim

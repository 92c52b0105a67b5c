#pragma once

// Servers of several GPUs and adapters. The GPUs of a server reach each other by a scale-up network
// (NVLink with NVSwitch, UALink), and GPUs of other servers by their server's adapters.
//
// Switches that reduce are ranks too, behind the GPUs: first the scale-up switch of each server, if
// the scale-up network reduces, then the aggregation nodes of the network.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "study/workload/aggregation.h"

namespace tulle::workload {

// These are a message's costs by another protocol than NCCL's Simple, in place of the members of
// the same names below.
struct StepCosts {
  Time scale_up_latency;
  Time message_delay;
};

struct Servers {
  std::uint32_t servers = 1;
  // These are the servers' numbers in the cluster. Empty means that they are its first ones.
  std::vector<std::uint32_t> places;
  std::uint32_t gpus = 1;      // of a server
  std::uint32_t adapters = 1;  // of a server; divides the GPUs
  // The scale-up network has one port for each GPU. It never blocks otherwise.
  std::int64_t scale_up_bits_per_second = 0;  // of a GPU, in each direction; payload
  // The rate at which one channel of a GPU sends to another GPU of its server, at most; 0: that of
  // the port. A channel is a thread block that copies, or some of them.
  std::int64_t channel_bits_per_second = 0;
  Time scale_up_latency;  // from the sending GPU's store until the receiving one sees it
  // The rate at which a GPU sends to the switch of the scale-up network, and receives, while the
  // switch reduces or shares out (NVLink SHARP); 0: the switch does neither.
  std::int64_t scale_up_reduce_bits_per_second = 0;
  Time scale_up_reduce_latency;  // of a message between a GPU and that switch
  // From the end of what a message waits for until an adapter is asked to send it: the GPU tells
  // the processor, or the adapter.
  Time message_delay;
  // These are the costs of LL and LL128 (study/workload/protocol.h). Nothing: those of Simple.
  std::optional<StepCosts> ll, ll128;
  // A GPU adds a message that it received to what it has at this rate; 0: at once. It begins when
  // the message has come.
  std::int64_t reduce_bits_per_second = 0;
  // Servers whose ranks are processes (`tulle calibrate`) have so many cores, which do all that
  // ranks do for messages within the server: a core sends at the rate of the scale-up network, and
  // adds what came at the rate above. Such a server has one adapter. 0: GPUs do not share.
  std::uint32_t cores = 0;
  Time message_work;  // with cores: what each end of a message takes besides its bytes
  // An adapter has a port in each of so many planes, and each port is a host of the network. A
  // sprayed message is cut into parts, which go by all planes at once; otherwise the connections of
  // an adapter alternate between the planes.
  std::uint32_t planes = 1;
  bool sprays = true;
  // A message to a GPU behind an adapter of another number goes by the scale-up network first, to
  // the GPU of its server with the peer's number (NCCL's PXN), in pieces of so many bytes.
  bool relays = false;
  std::uint64_t relay_bytes = 512u << 10;

  Aggregation aggregation;  // the network's switches that reduce; empty: there are none

  std::uint32_t ranks() const { return servers * gpus; }  // GPUs
  // Returns the rank of a server's scale-up switch.
  std::uint32_t scale_up_switch(std::uint32_t server) const { return ranks() + server; }
  // Returns the rank of an aggregation node.
  std::uint32_t node_rank(std::uint32_t node) const { return ranks() + servers + node; }
  std::uint32_t all_ranks() const { return node_rank(aggregation.nodes()); }
  bool is_gpu(std::uint32_t rank) const { return rank < ranks(); }
  bool is_node(std::uint32_t rank) const { return rank >= node_rank(0); }
  bool is_scale_up_switch(std::uint32_t rank) const { return !is_gpu(rank) && !is_node(rank); }
  // Aggregation nodes belong to no server, and each counts as one.
  std::uint32_t server_of(std::uint32_t rank) const {
    return is_gpu(rank) ? rank / gpus : rank - ranks();
  }
  std::uint32_t place_of(std::uint32_t server) const {
    return places.empty() ? server : places[server];
  }
  std::uint32_t gpu_of(std::uint32_t rank) const { return rank % gpus; }
  std::uint32_t rank(std::uint32_t server, std::uint32_t gpu) const { return server * gpus + gpu; }
  bool is_scale_up(std::uint32_t a, std::uint32_t b) const { return server_of(a) == server_of(b); }
  // Returns the host, an adapter of the network, by which a GPU sends and receives. Neighbouring
  // GPUs share one. The adapters of a server have consecutive numbers (fabric/topology.h). Of an
  // adapter in several planes it is the first port, where the GPU's events are.
  // An aggregation node has several ports, of which the first is meant, and a scale-up switch is
  // where its server's first adapter is.
  std::uint32_t host_of(std::uint32_t rank) const {
    if (is_node(rank)) return aggregation.home_of(rank - node_rank(0));
    const std::uint32_t first = place_of(server_of(rank)) * adapters;
    return (is_gpu(rank) ? first + adapter_of(rank) : first) * planes;
  }
  // Returns the number of a GPU's adapter in its server, which is its rail.
  std::uint32_t adapter_of(std::uint32_t rank) const { return gpu_of(rank) * adapters / gpus; }
  // Returns the host by which a rank reaches another one, to which it sends by the network.
  std::uint32_t host_towards(std::uint32_t rank, std::uint32_t peer) const {
    if (!is_node(rank)) return host_of(rank);
    const std::uint32_t node = rank - node_rank(0);
    if (is_node(peer)) return aggregation.port_to_node(node, peer - node_rank(0));
    return aggregation.port_to_host(node, host_of(peer));
  }
};

}  // namespace tulle::workload

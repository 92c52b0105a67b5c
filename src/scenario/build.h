#pragma once

// Builds a setup from the tables of a scenario.

#include <string>

#include "scenario/reader.h"
#include "scenario/scenario.h"

namespace tulle::scenario {

// A frame of so many packets of 4,096 bytes and their headers is measured in 16 bits.
inline constexpr std::uint32_t train_packets_max = 15;

// Returns how many packets a frame should stand for (host.train) so that the run of a training step
// ends in minutes: the least number with which there are no more than 2^27 frames of data. It is 1
// for all other traffic, and if the scenario says the number itself.
std::uint32_t automatic_train(const Setup& setup);

// Refuses what a model file asks for if its run would take hours even in the longest trains.
Result<void> check_length(const Setup& setup);

// Reports errors to the findings. If there are any, the setup must not be used.
Setup build_setup(TableReader root, const std::string& folder);

// The functions below build parts of a setup, each in a file of its own.
fabric::Topology build_topology(TableReader table, const std::string& folder);
// Adds the ports of aggregation nodes to the topology, if a collective of [traffic] uses them. The
// setup must have its kind of network.
void build_aggregation(TableReader traffic, const std::string& folder, Setup& setup);
// Builds the flows. The setup must have its topology and its seed already.
void build_traffic(TableReader table, const std::string& folder, Setup& setup);
// Build the job of a [traffic] whose pattern is a collective, a mixture of experts, a step of a
// training, a model that is served, or a trace. The setup must have its topology.
void build_collective(TableReader& traffic, const std::string& folder, Setup& setup);
void build_experts(TableReader& traffic, const std::string& folder, Setup& setup);
void build_step(TableReader& traffic, const std::string& folder, Setup& setup);
void build_serving(TableReader& traffic, const std::string& folder, Setup& setup);
// Adds up the pieces of the network by the list that the key `prices` names. The setup must have
// its topology and its kind of network.
void build_prices(TableReader& root, const std::string& folder, Setup& setup);
void build_trace(TableReader& traffic, const std::string& folder, Setup& setup);
// Reads [traffic.servers], for a topology all of whose adapters are those of servers, and the keys
// of [traffic] about its planes.
workload::Servers read_servers(TableReader& traffic, const std::string& folder,
                               const fabric::Topology& topology);
// Returns true if messages are sprayed over the planes of a topology.
bool read_plane(TableReader& traffic, const fabric::Topology& topology);
// Takes a graph as the setup's job, and its messages between servers as the setup's flows. If it is
// an error, or is refused by its check, that is told of the key, and there is no job. Relays are
// added where the servers have them; then it returns where each task of the graph is in the job's.
std::vector<workload::TaskGraph::Index> take_job(TableReader& traffic, std::string_view key,
                                                 Result<workload::TaskGraph> graph,
                                                 const workload::Servers& servers, Setup& setup);
// Reads [fabric], [host] and [congestion]. The setup must have its topology already, since some
// defaults depend on link rates and delays.
void build_network(TableReader fabric, TableReader host, TableReader congestion,
                   const std::string& folder, Setup& setup);

// Reads the costs of a kernel's stack: [kernel] of a host's profile, or [host.kernel].
void read_kernel(TableReader& table, device::HostStackSettings& stack);

// read_transport reads host.transport, [host.tcp] and [host.srd]. check_transport checks their
// needs of the fabric, which must have been read.
void read_transport(TableReader& host, Setup& setup);
void check_transport(TableReader& host, Setup& setup);

// Reads the part of [host] about losses. The fabric must have been read.
void read_recovery(TableReader& host, Setup& setup);

// Reads host numbers and ranges of them, as in "0-3, 8". Returns an empty list if the key is absent
// or wrong.
std::vector<std::uint32_t> read_hosts(TableReader& table, std::string_view key,
                                      std::uint32_t hosts);

// Read InfiniBand's congestion control: [fabric.congestion], and the keys of [congestion] that
// belong to it.
void read_marking(TableReader table, Setup& setup);
void read_infiniband_control(TableReader& table, Setup& setup);

// Reads [host.srd].
void read_srd(TableReader table, Setup& setup);

// build_partitions reads the list [[partition]], for a fabric that has been read. read_enforcement
// reads the fabric's key about partitions.
void build_partitions(TableReader& root, Setup& setup);
void read_enforcement(TableReader& fabric, Setup& setup);

// Reads the list [[fault]] and [recovery]. The fabric must have been read.
void build_faults(TableReader& root, Setup& setup);

// Returns the rate of the hosts' links, taken from the first host's. Topologies from a table may
// begin with any link.
std::int64_t host_bits_per_second(const fabric::Topology& topology);

// Returns the least headroom that a port needs so that no frame is lost after it has asked its
// neighbour to stop (IEEE 802.1Qbb annex N, in this simulator's terms). The headroom holds the
// bytes that arrive while the request waits for a frame before it and travels, the bytes that
// arrive while the neighbour finishes a frame, the bytes that were on the way, and the frame that
// caused the request.
std::uint32_t headroom_needed(const fabric::Topology& topology,
                              const sim::NetworkSettings& settings);

}  // namespace tulle::scenario

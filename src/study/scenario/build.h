#pragma once

// Builds a setup from the tables of a scenario.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "study/scenario/reading.h"
#include "study/scenario/scenario.h"
#include "study/workload/rails.h"

namespace tulle::scenario {

// A frame of so many packets of 4,096 bytes and their headers is measured in 16 bits.
inline constexpr std::uint32_t train_packets_max = 15;

// Returns how many packets a frame should represent (host.train) so that the run of a training step
// ends in minutes: the least number with which there are no more than 2^27 frames of data. It is 1
// for all other traffic, and if the scenario says the number itself.
std::uint32_t automatic_train(const Setup& setup);

// Refuses what a model file asks for if its run would take hours even in the longest trains.
Result<void> check_length(const Setup& setup);

// Reports errors to the findings. If there are any, the setup must not be used.
Setup build_setup(TableReader root, const std::string& folder);

// The functions below build parts of a setup, each in a separate file.
// Adds the ports of aggregation nodes to the topology, if a collective of [traffic] uses them. The
// setup must have its kind of network.
void build_aggregation(TableReader traffic, const std::string& folder, Setup& setup);
// Builds the flows of [traffic], or those of [[jobs]]. The setup must have its topology and its
// seed already.
void build_traffic(TableReader table, std::vector<TableReader> jobs, const std::string& folder,
                   Setup& setup);
// A job is built with these besides its keys.
struct JobSettings {
  const std::string& folder;  // where its files are looked for
  workload::Servers servers;
  std::uint64_t seed = 1;
};
// A kind of job: a collective, a mixture of experts, a step of a training, a model that is served,
// or a trace. The function reads its keys, and adds the job and its flows to the setup, which must
// have its topology.
struct JobPattern {
  std::string_view name;
  void (*build)(TableReader& table, const JobSettings& settings, Setup& setup);
};
inline constexpr std::size_t job_patterns = 5;
const std::array<JobPattern, job_patterns>& all_job_patterns();
// Reads from a training's table `checkpoint` how many servers store; 0 if there is none.
std::uint32_t read_storage_servers(TableReader& checkpoint);
void build_trace(TableReader& table, const JobSettings& settings, Setup& setup);
// Builds the jobs of [[jobs]] on the servers of the cluster.
void build_jobs(std::vector<TableReader> jobs, const JobSettings& cluster, Setup& setup);
// Adds up the pieces of the network by the list that the key `prices` names. The setup must have
// its topology and its kind of network.
void build_prices(TableReader& root, const std::string& folder, Setup& setup);
// Reads [traffic.servers], for a topology all of whose adapters are those of servers, and the keys
// of [traffic] about its planes.
workload::Servers read_servers(TableReader& traffic, const std::string& folder,
                               const fabric::Topology& topology);
// Returns true if messages are sprayed over the planes of a topology.
bool read_plane(TableReader& traffic, const fabric::Topology& topology);
// A job that was added to a setup, and where the tasks of its graph are once it has relays.
struct TakenJob {
  workload::Job* job = nullptr;  // null: it was refused
  workload::TaskPlaces places;
};
// Adds a graph to the setup's jobs, with relays where its servers have them, and its messages
// between servers to the setup's flows. If the graph is an error, or is refused by its check, that
// is told of the key, and nothing is added.
TakenJob take_job(TableReader& table, std::string_view key, Result<workload::TaskGraph> graph,
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

// Reads host numbers, or those of other things, and ranges of them, as in "0-3, 8". Returns an
// empty list if the key is absent or wrong.
std::vector<std::uint32_t> read_hosts(TableReader& table, std::string_view key, std::uint32_t hosts,
                                      std::string_view things = "hosts");

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

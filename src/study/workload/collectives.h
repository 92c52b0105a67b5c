#pragma once

// Collective operations as graphs of tasks, after NCCL's algorithms. Each is a function of its
// settings. An error is one line.
//
// An all-reduce, reduce-scatter or all-gather counts its bytes as nccl-tests does: the largest
// buffer of a rank. In an all-to-all, that buffer has one part for each rank.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "study/workload/pieces.h"
#include "study/workload/servers.h"
#include "study/workload/task_graph.h"

namespace tulle::workload {

enum class Collective : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
};
inline constexpr std::array<std::string_view, 5> collective_names = {
    "all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all"};

// The short names of collectives are those of nccl-tests.
struct NamedCollective {
  std::string_view name;
  std::string_view title;
  Collective collective{};
};
std::span<const NamedCollective> named_collectives();

enum class Algorithm : std::uint8_t {
  // Each channel is a ring through all ranks, server by server. It enters and leaves each server by
  // adapters of the same number, which differ from channel to channel.
  ring,
  // Each channel has two binary trees of servers (Sanders, Speck, Träff 2009). A rank that is
  // inside of one is a leaf of the other, and each has half of the bytes. A server's GPUs are a
  // chain.
  tree,
  // The GPUs of a server reduce and share by the scale-up network, each a part; the GPUs of one
  // number in all servers form a ring, or, with groups of servers, one in each group, and others
  // between the groups (BlueConnect, Cho et al., SysML 2019).
  hierarchical,
  // Recursive halving, then doubling, among a power of two of ranks (Rabenseifner 2004).
  halving_doubling,
  // Each rank sends to each other, to `window` of them at a time.
  direct,
  // Switches reduce what ranks send, and share the result out: those of the network on a tree
  // (SHARP), and those of the scale-up network in a server (NVLS).
  in_network,
  // The switches of the scale-up network reduce and share out in a server, and the GPUs of one
  // number in all servers form a ring.
  nvls,
};
inline constexpr std::array<std::string_view, 7> algorithm_names = {
    "ring", "tree", "hierarchical", "halving-doubling", "direct", "in-network", "nvls"};

// A protocol is how a GPU tells another one that data have come.
enum class Protocol : std::uint8_t {
  simple,  // by a flag, behind a fence: the data go as they are
  ll,      // each 4 bytes carry a flag of 4 bytes
  ll128,   // each 120 bytes carry a flag of 8 bytes
};
inline constexpr std::array<std::string_view, 3> protocol_names = {"simple", "ll", "ll128"};

struct CollectiveSettings {
  Collective collective = Collective::all_reduce;
  std::optional<Algorithm> algorithm;  // nothing: usual_algorithm()
  // The messages have the protocol's bytes. Their latencies are those of `servers`, in which
  // with_protocol() puts the protocol's.
  Protocol protocol = Protocol::simple;
  std::uint64_t bytes = 0;
  std::uint32_t channels = 0;  // 0: one for each adapter of a server
  // In trees and broadcasts, a rank passes on so much before the rest of a step has come.
  std::uint64_t chunk_bytes = 512u << 10;
  // Messages that a rank has under way at once, if it sends to each other one.
  std::uint32_t window = 16;
  // hierarchical: servers of a group, which divides all servers; 0: there are no groups.
  std::uint32_t group_servers = 0;
  Servers servers;
};

// Returns the algorithm by which a collective is done if none is named. NCCL takes trees for short
// all-reduces, and rings for long ones and for all other collectives with a reduction.
Algorithm usual_algorithm(const CollectiveSettings& settings);

// Returns the algorithm of the settings, or the usual one if they name none.
Algorithm algorithm_of(const CollectiveSettings& settings);

// Returns an error if the settings do not fit each other. With `pieces`, which begin empty, the
// bytes must be a multiple of piece_unit().
Result<TaskGraph> make_collective(const CollectiveSettings& settings, Pieces* pieces = nullptr);

// Returns the number of bytes of which a collective must have a multiple, so that each message has
// whole values of `value_bytes` and all ranks have equal parts.
std::uint64_t piece_unit(const CollectiveSettings& settings, std::uint32_t value_bytes = 1);

// Returns the factor by which nccl-tests multiplies a collective's bytes over its time (the
// algorithm's bandwidth) to get the bus bandwidth, which is comparable with a link's
// (nccl-tests' doc/PERFORMANCE.md).
double bus_factor(Collective collective, std::uint32_t ranks);

std::string_view name_of(Collective collective);
std::string_view name_of(Algorithm algorithm);

}  // namespace tulle::workload

#pragma once

// A trace as its file has it: what each rank computes, sends, receives and does together with
// others, in any order, with dependencies by number. Trace::build() turns it into a graph of tasks:
// it matches sends with receives, and the calls of one collective operation with one another, puts
// everything into an order, and replaces each collective by its messages
// (study/workload/collectives.h).
//
// The readers of the formats fill a trace. All bounds are here, so that no file costs more memory
// than Limits allow.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "study/workload/collectives.h"
#include "study/workload/servers.h"
#include "study/workload/task_graph.h"

namespace tulle::traces {

// These limits bound what a trace may cost. A node takes some 100 bytes, a dependency 20 and a task
// 100.
struct Limits {
  std::uint32_t ranks = 65'536;
  std::size_t nodes = 1u << 24;
  std::size_t dependencies = 1u << 26;
  std::size_t members = 1u << 24;  // of all groups together
  std::size_t tasks = workload::TaskGraph::tasks_max;
};

struct Node {
  enum class Kind : std::uint8_t {
    nothing,  // it is over when all is over that it waits for
    computation,
    send,
    receive,
    collective,
  };
  // One message or collective has at most this many bytes: 16 TiB.
  static constexpr std::uint64_t bytes_max = std::uint64_t{1} << 44;

  Kind kind = Kind::nothing;
  std::uint8_t processor = 0;  // computation
  bool is_pause = false;       // a computation that only lets time pass
  workload::Collective collective = workload::Collective::all_reduce;
  std::uint32_t rank = 0;
  std::uint32_t peer = 0;        // send, receive: the other rank
  std::uint32_t group = 0;       // collective: from Trace::add_group
  std::uint64_t bytes = 0;       // send: of the message; collective: as CollectiveSettings counts
  std::uint64_t tag = 0;         // send, receive: a receive takes the first send of its tag
  Time duration = Time::zero();  // computation
  // Where it is in the file: a line, or the number that the file gives it.
  std::uint32_t file = 0;
  std::uint64_t number = 0;
};

class Trace {
 public:
  using Index = std::uint32_t;
  enum class Numbers : std::uint8_t { lines, nodes };
  // All computations together last 50 days at most, so that no time in a run overflows.
  static constexpr Time computation_max = Time::seconds(50 * 24 * 3'600);

  // `ranks` is at least 1 and at most limits.ranks.
  Trace(std::uint32_t ranks, const Limits& limits) : ranks_(ranks), limits_(limits) {}

  Trace(const Trace&) = delete;  // groups_ points into it
  Trace& operator=(const Trace&) = delete;
  Trace(Trace&&) = default;
  Trace& operator=(Trace&&) = default;

  std::uint32_t ranks() const { return ranks_; }
  std::size_t size() const { return nodes_.size(); }
  const Node& operator[](Index node) const { return nodes_[node]; }
  const Limits& limits() const { return limits_; }

  // Adds a file's name, for errors, and returns its number.
  std::uint32_t add_file(std::string_view name, Numbers numbers);
  // Adds ranks that do collectives together, in any order, and returns the group's number. Groups
  // of the same ranks are one. The error has no place.
  Result<std::uint32_t> add_group(std::vector<std::uint32_t> ranks);
  const std::vector<std::uint32_t>& group(std::uint32_t number) const { return *groups_[number]; }

  // Adds a node whose rank exists. The error names its place: a rank that does not exist, too many
  // bytes, too much time, too many nodes.
  Result<Index> add(const Node& node);
  // Makes a node wait for the end of another one of its rank, which may come later.
  Result<void> wait(Index node, Index before);
  // Makes a node wait until another one of its rank may begin.
  Result<void> wait_for_start(Index node, Index before);

  // Returns an error of one line: the file, the line or node, the fault.
  Error error(std::uint32_t file, std::uint64_t number, std::string_view fault) const;
  Error error(Index node, std::string_view fault) const {
    return error(nodes_[node].file, nodes_[node].number, fault);
  }
  // Returns the place of a node, as an error begins.
  std::string place_of(Index node) const { return place(nodes_[node].file, nodes_[node].number); }

  // Returns the graph of tasks, for TaskGraph::check(). An error names a node without its
  // counterpart, the nodes of a cycle, or what is too much. Ranks run on the first GPUs of
  // `servers`, which have at least as many.
  Result<workload::TaskGraph> build(const workload::Servers& servers) const;

 private:
  friend class Matching;
  friend class Order;
  friend class Expansion;

  // A dependency. The node begins after `before`, or with it.
  struct Dependency {
    Index node;
    Index before;
    bool of_start;
  };
  struct File {
    std::string name;
    Numbers numbers;
  };
  std::string place(std::uint32_t file, std::uint64_t number) const;
  Result<void> add_dependency(const Dependency& dependency);

  std::uint32_t ranks_;
  Limits limits_;
  std::vector<File> files_;
  std::vector<Node> nodes_;
  std::vector<Dependency> dependencies_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> group_numbers_;
  std::vector<const std::vector<std::uint32_t>*> groups_;  // keys of group_numbers_
  std::size_t members_ = 0;
  Time computation_;
};

}  // namespace tulle::traces

#include "study/workload/in_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "study/workload/part.h"
#include "study/workload/ring.h"

namespace tulle::workload {
namespace {

using Index = TaskGraph::Index;

constexpr std::uint32_t everyone = 0xFFFF'FFFF;

// A rank has at most so much of a part under way before the result of the part's first chunk has
// come: NCCL's buffer of a channel (NCCL_BUFFSIZE, 4 MiB). Less than the rate times the latency
// would bound the rate.
constexpr std::uint64_t bytes_ahead = 4u << 20;

// Returns the chunk in which a part goes. NCCL takes shorter chunks for shorter parts, too, so that
// the stages work side by side.
std::uint64_t chunk_of(const CollectiveSettings& settings, std::uint64_t part) {
  constexpr std::uint64_t least = 16u << 10;
  return std::min(settings.chunk_bytes, std::max(least, (part + 255) / 256));
}

bool reduces(const CollectiveSettings& settings) {
  return settings.collective != Collective::all_gather;
}
bool shares_out(const CollectiveSettings& settings) {
  return settings.collective != Collective::reduce_scatter;
}

class SwitchBuilder {
 public:
  explicit SwitchBuilder(const CollectiveSettings& settings)
      : settings_(settings), servers_(settings.servers), graph_(settings.servers.all_ranks()) {}

  TaskGraph in_network();
  TaskGraph nvls();

 private:
  // A piece that goes at once. Its owner is the server whose GPU has it alone, before an all-gather
  // or after a reduce-scatter.
  struct Chunk {
    std::uint32_t gpu = 0;
    std::uint32_t owner = everyone;
    std::uint64_t bytes = 0;
  };
  // The index is a server. The GPU there that has the chunk's number waits for these.
  using OfServers = std::vector<Waits>;

  bool has_switches() const { return servers_.scale_up_reduce_bits_per_second > 0; }
  std::uint32_t gpu_of(const Chunk& chunk, std::uint32_t server) const {
    return servers_.rank(server, chunk.gpu);
  }
  bool is_owner(const Chunk& chunk, std::uint32_t server) const {
    return chunk.owner == everyone || chunk.owner == server;
  }
  Index send(std::uint32_t from, std::uint32_t to, const Chunk& chunk, const Waits& after,
             bool adds);
  void begin_chunk();
  std::vector<Chunk> chunks_of(std::uint32_t gpu) const;
  Waits reduce_in(std::uint32_t server, const Chunk& chunk);
  void share_in(std::uint32_t server, const Chunk& chunk, const Waits& after);
  Waits up(const Chunk& chunk, const OfServers& ready);
  OfServers down(const Chunk& chunk, const Waits& sums);
  bool leads_to_owner(const Chunk& chunk, std::uint32_t node) const;
  // Returns what a rank waits for before it begins with a chunk, so that it does not run ahead.
  const Waits& window(std::uint32_t rank) const { return window_[rank]; }

  const CollectiveSettings& settings_;
  const Servers& servers_;
  TaskGraph graph_;
  std::vector<Waits> window_ = std::vector<Waits>(servers_.ranks());
  // By rank and chunk of one part: the last task of the chunk that the rank has received or sent.
  std::vector<std::vector<Index>> last_;
  std::vector<bool> has_received_ = std::vector<bool>(servers_.ranks());
  std::size_t depth_ = 1;  // chunks that are under way
};

Index SwitchBuilder::send(std::uint32_t from, std::uint32_t to, const Chunk& chunk,
                          const Waits& after, bool adds) {
  Task task;
  task.rank = from;
  task.peer = to;
  task.channel = chunk.gpu;
  task.bytes = chunk.bytes;
  task.reduces = adds;
  const Index index = graph_.add_message(task, after);
  if (servers_.is_gpu(from) && !has_received_[from]) last_[from].back() = index;
  if (servers_.is_gpu(to)) {
    last_[to].back() = index;
    has_received_[to] = true;
  }
  return index;
}

void SwitchBuilder::begin_chunk() {
  for (std::uint32_t rank = 0; rank < servers_.ranks(); ++rank) {
    std::vector<Index>& last = last_[rank];
    window_[rank].clear();
    if (last.size() >= depth_ && last[last.size() - depth_] != everyone) {
      window_[rank].push_back(last[last.size() - depth_]);
    }
    last.push_back(everyone);
    has_received_[rank] = false;
  }
}

// Chunks of different owners take turns, so that all adapters have work.
std::vector<SwitchBuilder::Chunk> SwitchBuilder::chunks_of(std::uint32_t gpu) const {
  const std::uint64_t part = part_of(settings_.bytes, gpu, servers_.gpus);
  const bool has_owners = settings_.collective != Collective::all_reduce;
  const std::uint32_t owners = has_owners ? servers_.servers : 1;
  std::vector<std::uint64_t> left(owners);
  for (std::uint32_t i = 0; i < owners; ++i) left[i] = part_of(part, i, owners);
  const std::uint64_t longest = chunk_of(settings_, part);
  std::vector<Chunk> chunks;
  for (bool any = true; any;) {
    any = false;
    for (std::uint32_t i = 0; i < owners; ++i) {
      if (left[i] == 0) continue;
      const std::uint64_t bytes = std::min(left[i], longest);
      chunks.push_back({gpu, has_owners ? i : everyone, bytes});
      left[i] -= bytes;
      any = any || left[i] > 0;
    }
  }
  return chunks;
}

// The GPUs of a server send to the one of the chunk's number. Returns what that one has then.
Waits SwitchBuilder::reduce_in(std::uint32_t server, const Chunk& chunk) {
  const std::uint32_t to = gpu_of(chunk, server);
  if (servers_.gpus == 1) return window(to);
  Waits sums;
  for (std::uint32_t gpu = 0; gpu < servers_.gpus; ++gpu) {
    const std::uint32_t from = servers_.rank(server, gpu);
    if (!has_switches() && from == to) continue;
    const std::uint32_t over = has_switches() ? servers_.scale_up_switch(server) : to;
    sums.push_back(send(from, over, chunk, window(from), true));
  }
  if (has_switches()) return {send(servers_.scale_up_switch(server), to, chunk, sums, false)};
  const Waits& own = window(to);
  sums.insert(sums.end(), own.begin(), own.end());
  return sums;
}

// The GPU of the chunk's number hands the chunk to all GPUs of its server. A switch stores it at
// all of them, also at that one (multimem.st to a multicast address).
void SwitchBuilder::share_in(std::uint32_t server, const Chunk& chunk, const Waits& after) {
  if (servers_.gpus == 1) return;
  const std::uint32_t from = gpu_of(chunk, server);
  Waits waits = after;
  std::uint32_t sender = from;
  if (has_switches()) {
    sender = servers_.scale_up_switch(server);
    waits = {send(from, sender, chunk, after, false)};
  }
  for (std::uint32_t gpu = 0; gpu < servers_.gpus; ++gpu) {
    const std::uint32_t to = servers_.rank(server, gpu);
    if (to != sender) send(sender, to, chunk, waits, false);
  }
}

// Returns true if the owner is below a node.
bool SwitchBuilder::leads_to_owner(const Chunk& chunk, std::uint32_t node) const {
  if (chunk.owner == everyone) return true;
  const Aggregation& aggregation = servers_.aggregation;
  const std::uint32_t host = servers_.host_of(gpu_of(chunk, chunk.owner));
  for (std::uint32_t at = aggregation.nodes(); at-- > 0;) {
    if (aggregation.port_to_host(at, host) == AggregationNode::none) continue;
    for (; at != AggregationNode::none; at = aggregation.node[at].parent) {
      if (at == node) return true;
    }
    return false;
  }
  return false;
}

// Sends a chunk up its tree. In an all-gather only its owner has it. Returns what the root has.
Waits SwitchBuilder::up(const Chunk& chunk, const OfServers& ready) {
  const Aggregation& aggregation = servers_.aggregation;
  const std::uint32_t tree = chunk.gpu * servers_.adapters / servers_.gpus;
  const std::uint32_t first = aggregation.first_node[tree];
  std::vector<Waits> sums(aggregation.first_node[tree + 1] - first);
  for (auto node = static_cast<std::uint32_t>(sums.size()); node-- > 0;) {
    const std::uint32_t rank = servers_.node_rank(first + node);
    for (const AggregationNode::Member& member : aggregation.node[first + node].members) {
      const std::uint32_t server = member.host / servers_.adapters;
      if (!reduces(settings_) && !is_owner(chunk, server)) continue;
      sums[node].push_back(send(gpu_of(chunk, server), rank, chunk, ready[server], true));
    }
    const std::uint32_t parent = aggregation.node[first + node].parent;
    if (parent == AggregationNode::none || sums[node].empty()) continue;
    sums[parent - first].push_back(send(rank, servers_.node_rank(parent), chunk, sums[node], true));
  }
  return sums[0];
}

// Hands a chunk down from the root to the servers that need it. Returns what their GPUs have.
SwitchBuilder::OfServers SwitchBuilder::down(const Chunk& chunk, const Waits& sums) {
  const Aggregation& aggregation = servers_.aggregation;
  const std::uint32_t tree = chunk.gpu * servers_.adapters / servers_.gpus;
  const std::uint32_t first = aggregation.first_node[tree];
  const bool to_owner = !shares_out(settings_);
  std::vector<Waits> results(aggregation.first_node[tree + 1] - first);
  OfServers received(servers_.servers);
  results[0] = sums;
  for (std::uint32_t node = 0; node < results.size(); ++node) {
    const AggregationNode& at = aggregation.node[first + node];
    const std::uint32_t rank = servers_.node_rank(first + node);
    if (node > 0) {
      if (to_owner && !leads_to_owner(chunk, first + node)) continue;
      results[node] = {
          send(servers_.node_rank(at.parent), rank, chunk, results[at.parent - first], false)};
    }
    for (const AggregationNode::Member& member : at.members) {
      const std::uint32_t server = member.host / servers_.adapters;
      const bool has_it = !reduces(settings_) && is_owner(chunk, server);
      if (has_it || (to_owner && !is_owner(chunk, server))) continue;
      received[server] = {send(rank, gpu_of(chunk, server), chunk, results[node], false)};
    }
  }
  return received;
}

TaskGraph SwitchBuilder::in_network() {
  for (std::uint32_t gpu = 0; gpu < servers_.gpus; ++gpu) {
    last_.assign(servers_.ranks(), {});
    const std::vector<Chunk> chunks = chunks_of(gpu);
    depth_ = std::max<std::size_t>(1, bytes_ahead / chunks.front().bytes);
    for (const Chunk& chunk : chunks) {
      begin_chunk();
      OfServers ready(servers_.servers);
      for (std::uint32_t server = 0; server < servers_.servers; ++server) {
        ready[server] =
            reduces(settings_) ? reduce_in(server, chunk) : window(gpu_of(chunk, server));
      }
      OfServers results = ready;
      if (servers_.servers > 1) {
        results = down(chunk, up(chunk, ready));
        if (!reduces(settings_)) results[chunk.owner] = ready[chunk.owner];
      }
      for (std::uint32_t server = 0; server < servers_.servers && shares_out(settings_); ++server) {
        share_in(server, chunk, results[server]);
      }
    }
  }
  return std::move(graph_);
}

TaskGraph SwitchBuilder::nvls() {
  if (servers_.servers == 1) return in_network();
  const std::uint32_t steps =
      (servers_.servers - 1) * (settings_.collective == Collective::all_reduce ? 2 : 1);
  for (std::uint32_t gpu = 0; gpu < servers_.gpus; ++gpu) {
    last_.assign(servers_.ranks(), {});
    depth_ = everyone;
    const std::uint64_t part = part_of(settings_.bytes, gpu, servers_.gpus);
    std::vector<Chunk> chunks;
    for (std::uint64_t left = part; left > 0; left -= chunks.back().bytes) {
      chunks.push_back({gpu, everyone, std::min(left, chunk_of(settings_, part))});
    }
    Ring ring{{}, part, steps, gpu};
    if (reduces(settings_)) ring.reducing_steps = servers_.servers - 1;
    std::vector<Waits> ready;
    for (std::uint32_t server = 0; server < servers_.servers; ++server) {
      ring.ranks.push_back(servers_.rank(server, gpu));
    }
    if (reduces(settings_)) {
      std::vector<Waits> sums(servers_.servers);
      for (const Chunk& chunk : chunks) {
        begin_chunk();
        for (std::uint32_t server = 0; server < servers_.servers; ++server) {
          sums[server].push_back(reduce_in(server, chunk).front());
        }
      }
      for (std::uint32_t server = 0; server < servers_.servers; ++server) {
        Task join;
        join.kind = Task::Kind::computation;
        join.rank = ring.ranks[server];
        ready.push_back({graph_.add(join, sums[server])});
      }
    }
    const Waits last = add_ring(graph_, ring, ready);
    for (const Chunk& chunk : chunks) {
      if (!shares_out(settings_)) break;
      begin_chunk();
      for (std::uint32_t server = 0; server < servers_.servers; ++server) {
        share_in(server, chunk, {last[server]});
      }
    }
  }
  return std::move(graph_);
}

}  // namespace

Result<void> check_switches(const CollectiveSettings& settings, Algorithm algorithm) {
  const Servers& servers = settings.servers;
  const bool has_switch = servers.scale_up_reduce_bits_per_second > 0;
  if (servers.cores > 0) {
    return Error{fmt::format("{} needs switches that reduce, and ranks that share cores have none",
                             name_of(algorithm))};
  }
  const bool inside = servers.servers == 1 || algorithm == Algorithm::nvls;
  if (inside && (servers.gpus == 1 || !has_switch)) {
    return Error{
        fmt::format("{} needs servers of several GPUs whose scale-up network reduces; "
                    "take servers with scale_up_reduce_rate, or another algorithm",
                    name_of(algorithm))};
  }
  if (!inside && servers.aggregation.trees() != servers.adapters) {
    return Error{fmt::format("{} needs a network whose switches reduce; take another algorithm",
                             name_of(algorithm))};
  }
  return {};
}

double in_network_tasks(const CollectiveSettings& settings) {
  const Servers& servers = settings.servers;
  const std::uint64_t part = part_of(settings.bytes, 0, servers.gpus);
  const double chunks =
      static_cast<double>(part) / static_cast<double>(chunk_of(settings, part)) + servers.servers;
  const double nodes = servers.aggregation.nodes();
  const double inside = servers.servers * (2.0 * servers.gpus + 2);
  return servers.gpus * chunks * (inside + 2 * (servers.servers + nodes));
}

TaskGraph make_in_network(const CollectiveSettings& settings) {
  return SwitchBuilder(settings).in_network();
}

TaskGraph make_nvls(const CollectiveSettings& settings) { return SwitchBuilder(settings).nvls(); }

}  // namespace tulle::workload

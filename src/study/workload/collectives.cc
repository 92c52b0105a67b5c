#include "study/workload/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include "study/workload/in_network.h"
#include "study/workload/part.h"
#include "study/workload/protocol.h"
#include "study/workload/ring.h"

namespace tulle::workload {
namespace {

using Index = TaskGraph::Index;

// Builds the graph of one collective.
class Builder {
 public:
  Builder(const CollectiveSettings& settings, Pieces* pieces)
      : settings_(settings),
        servers_(settings.servers),
        ranks_(settings.servers.ranks()),
        pieces_(pieces),
        graph_(ranks_) {
    if (pieces_ == nullptr) return;
    pieces_->part.resize(ranks_);
    std::iota(pieces_->part.begin(), pieces_->part.end(), 0u);
  }

  TaskGraph ring();
  TaskGraph tree();
  TaskGraph hierarchical();
  TaskGraph halving_doubling();
  TaskGraph direct();
  TaskGraph broadcast();

 private:
  struct Content {
    Piece piece;
    bool reduces = false;
  };
  Index send(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, std::uint32_t channel,
             const Waits& after, const Content& content);
  // Returns where a part of the buffer begins, if each rank has one.
  std::uint64_t part_at(std::uint64_t part) const { return settings_.bytes / ranks_ * part; }
  // Returns content that is at the same place in both buffers.
  static Content at(std::uint64_t offset, bool reduces) { return {{offset, offset}, reduces}; }
  std::uint32_t reducing_steps(std::uint32_t ranks) const {
    return settings_.collective == Collective::all_gather ? 0 : ranks - 1;
  }
  std::vector<std::uint32_t> ring_of(std::uint32_t channel) const;
  std::vector<Waits> share_in_servers(std::uint64_t bytes, const std::vector<Waits>& after,
                                      bool reduces);
  std::uint32_t owner_of(const Ring& ring, std::uint32_t segment) const;
  void add_hierarchys_ring(const Ring& ring, std::vector<Waits>& ready);
  void add_ring_of_group(std::uint32_t gpu, std::uint32_t group, std::uint64_t bytes, bool gathers,
                         std::vector<Waits>& ready);
  void add_ring_between_groups(std::uint32_t gpu, std::uint32_t place, std::uint64_t bytes,
                               std::vector<Waits>& ready);
  std::uint32_t ring_step_count(std::uint32_t ranks) const {
    return settings_.collective == Collective::all_reduce ? 2 * (ranks - 1) : ranks - 1;
  }
  struct Tree {
    std::vector<std::int32_t> parent;                  // by server; -1: the root
    std::vector<std::vector<std::uint32_t>> children;  // by server
  };
  Content direct_content(int half, std::uint32_t from, std::uint32_t to) const;
  static Tree binary_tree(std::uint32_t servers, bool is_second);
  void tree_chunk(const Tree& tree, std::uint32_t leader, std::uint64_t offset, std::uint64_t bytes,
                  std::uint32_t channel);

  const CollectiveSettings& settings_;
  const Servers& servers_;
  std::uint32_t ranks_;
  Pieces* pieces_;  // null: nobody asks where the bytes are
  TaskGraph graph_;
};

Index Builder::send(std::uint32_t from, std::uint32_t to, std::uint64_t bytes,
                    std::uint32_t channel, const Waits& after, const Content& content) {
  Task task;
  task.rank = from;
  task.peer = to;
  task.channel = channel;
  task.bytes = bytes;
  task.reduces = content.reduces;
  const Index last = graph_.add_message(task, after);
  if (pieces_ != nullptr) add_pieces(*pieces_, graph_, content.piece);
  return last;
}

// Even servers are passed in one direction and odd ones in the other, so that a ring leaves a
// server by the adapter of the same number as it enters the next one.
std::vector<std::uint32_t> Builder::ring_of(std::uint32_t channel) const {
  std::vector<std::uint32_t> ring;
  ring.reserve(ranks_);
  const std::uint32_t first = channel % servers_.adapters * servers_.gpus / servers_.adapters;
  for (std::uint32_t server = 0; server < servers_.servers; ++server) {
    for (std::uint32_t i = 0; i < servers_.gpus; ++i) {
      const std::uint32_t step = server % 2 == 0 ? i : servers_.gpus - 1 - i;
      ring.push_back(servers_.rank(server, (first + step) % servers_.gpus));
    }
  }
  return ring;
}

// Returns the rank whose part a segment is. In an all-gather it starts with the rank of its number
// in the ring, and a reduce-scatter's sum ends one rank before that.
std::uint32_t Builder::owner_of(const Ring& ring, std::uint32_t segment) const {
  const auto count = static_cast<std::uint32_t>(ring.ranks.size());
  const bool ends_before = settings_.collective == Collective::reduce_scatter;
  return ring.ranks[(segment + (ends_before ? count - 1 : 0)) % count];
}

TaskGraph Builder::ring() {
  const std::uint32_t channels = settings_.channels;
  for (std::uint32_t channel = 0; channel < channels; ++channel) {
    Ring ring{ring_of(channel), part_of(settings_.bytes, channel, channels),
              ring_step_count(ranks_), channel};
    ring.reducing_steps = reducing_steps(ranks_);
    ring.pieces = pieces_;
    for (std::uint32_t segment = 0; segment < ranks_ && pieces_ != nullptr; ++segment) {
      ring.places.push_back(part_at(owner_of(ring, segment)) +
                            settings_.bytes / ranks_ / channels * channel);
    }
    add_ring(graph_, ring);
  }
  return std::move(graph_);
}

// Each GPU of a server sends each other one its part of the bytes: the other's to be summed, or its
// own. Returns what each rank must have received before it continues.
std::vector<Waits> Builder::share_in_servers(std::uint64_t bytes, const std::vector<Waits>& after,
                                             bool reduces) {
  std::vector<Waits> received(ranks_);
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    for (std::uint32_t i = 1; i < servers_.gpus; ++i) {
      const std::uint32_t peer =
          servers_.rank(servers_.server_of(rank), (servers_.gpu_of(rank) + i) % servers_.gpus);
      const std::uint32_t part = servers_.gpu_of(reduces ? peer : rank);
      received[peer].push_back(send(rank, peer, bytes, 0, after.empty() ? Waits() : after[rank],
                                    at(bytes * part, reduces)));
    }
  }
  return received;
}

// Adds a ring, after what its ranks wait for. They then wait for what they received last. With
// groups, a rank may have that before it has what it awaited so far, and still waits for it.
void Builder::add_hierarchys_ring(const Ring& ring, std::vector<Waits>& ready) {
  std::vector<Waits> before;
  for (const std::uint32_t rank : ring.ranks) before.push_back(std::move(ready[rank]));
  const Waits last = add_ring(graph_, ring, before);
  for (std::uint32_t place = 0; place < last.size(); ++place) {
    Waits& now = ready[ring.ranks[place]];
    now = settings_.group_servers == 0 ? Waits() : std::move(before[place]);
    now.push_back(last[place]);
  }
}

// Adds the rings of the GPUs of one number among the servers of a group. They hand on the segments
// of `bytes`, each of which has a part for each group.
void Builder::add_ring_of_group(std::uint32_t gpu, std::uint32_t group, std::uint64_t bytes,
                                bool gathers, std::vector<Waits>& ready) {
  const std::uint32_t size = settings_.group_servers;
  const std::uint32_t groups = servers_.servers / size;
  Ring ring{{}, bytes, size - 1};
  ring.reducing_steps = reducing_steps(size);
  ring.first_step = gathers ? ring.reducing_steps : 0;
  ring.waits_always = gathers;
  ring.pieces = pieces_;
  for (std::uint32_t place = 0; place < size; ++place) {
    ring.ranks.push_back(servers_.rank(group * size + place, gpu));
    if (pieces_ != nullptr) ring.places.push_back(part_at(gpu * servers_.servers + place * groups));
  }
  add_hierarchys_ring(ring, ready);
}

// Adds the ring of the GPUs of one number whose servers have one place in their groups, or of all
// servers if there are no groups.
void Builder::add_ring_between_groups(std::uint32_t gpu, std::uint32_t place, std::uint64_t bytes,
                                      std::vector<Waits>& ready) {
  const std::uint32_t size = std::max(settings_.group_servers, 1u);
  const std::uint32_t groups = servers_.servers / size;
  // A reduce-scatter in the group leaves the segment behind its own with each rank.
  const bool reduces = settings_.collective != Collective::all_gather;
  const std::uint32_t segment = reduces ? (place + 1) % size : place;
  Ring ring{{}, part_of(bytes, segment, size), ring_step_count(groups)};
  ring.reducing_steps = reducing_steps(groups);
  ring.pieces = pieces_;
  for (std::uint32_t group = 0; group < groups; ++group) {
    ring.ranks.push_back(servers_.rank(group * size + place, gpu));
  }
  for (std::uint32_t group = 0; group < groups && pieces_ != nullptr; ++group) {
    const std::uint32_t part = gpu * servers_.servers + segment * groups + group;
    ring.places.push_back(part_at(part));
    pieces_->part[owner_of(ring, group)] = part;
  }
  add_hierarchys_ring(ring, ready);
}

TaskGraph Builder::hierarchical() {
  const bool reduces = settings_.collective != Collective::all_gather;
  const bool gathers = settings_.collective != Collective::reduce_scatter;
  const std::uint64_t part = part_of(settings_.bytes, 0, servers_.gpus);
  std::vector<Waits> ready(ranks_);
  if (reduces) ready = share_in_servers(part, {}, true);
  const std::uint32_t size = settings_.group_servers;
  const std::uint32_t groups = size == 0 ? 0 : servers_.servers / size;
  const auto in_groups = [&](bool gather) {
    for (std::uint32_t gpu = 0; gpu < servers_.gpus; ++gpu) {
      for (std::uint32_t i = 0; i < groups; ++i) add_ring_of_group(gpu, i, part, gather, ready);
    }
  };
  if (reduces) in_groups(false);
  for (std::uint32_t gpu = 0; gpu < servers_.gpus && servers_.servers > 1; ++gpu) {
    for (std::uint32_t place = 0; place < std::max(size, 1u); ++place) {
      add_ring_between_groups(gpu, place, part, ready);
    }
  }
  if (gathers) in_groups(true);
  if (gathers) share_in_servers(part, ready, false);
  return std::move(graph_);
}

// In each halving a rank exchanges half of what it still has with a partner, the furthest first;
// the doublings go the same way back.
TaskGraph Builder::halving_doubling() {
  std::vector<std::pair<std::uint32_t, std::uint64_t>> exchanges;  // distance and bytes
  std::uint64_t bytes = settings_.bytes;
  for (std::uint32_t distance = ranks_ / 2; distance > 0; distance /= 2) {
    bytes = (bytes + 1) / 2;
    exchanges.emplace_back(distance, bytes);
  }
  const std::size_t halvings = exchanges.size();
  if (settings_.collective == Collective::all_gather) std::ranges::reverse(exchanges);
  if (settings_.collective == Collective::all_reduce) {
    for (std::size_t i = halvings; i-- > 0;) exchanges.push_back(exchanges[i]);
  }
  std::vector<Waits> received(ranks_);
  std::vector<Index> now(ranks_);
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    const auto& [distance, length] = exchanges[i];
    const bool halves = settings_.collective != Collective::all_gather && i < halvings;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      // Halves go to the partner's side, and what is doubled is on the rank's own.
      const std::uint32_t first = (halves ? rank ^ distance : rank) & ~(distance - 1);
      now[rank ^ distance] =
          send(rank, rank ^ distance, length, 0, received[rank], at(part_at(first), halves));
    }
    // A rank's next message holds parts of all that it has received.
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) received[rank].push_back(now[rank]);
  }
  return std::move(graph_);
}

Builder::Content Builder::direct_content(int half, std::uint32_t from, std::uint32_t to) const {
  const Collective collective = settings_.collective;
  if (collective == Collective::all_to_all) return {{part_at(to), part_at(from)}, false};
  if (half > 0 || collective == Collective::all_gather) return at(part_at(from), false);
  return at(part_at(to), true);
}

// Each rank begins with the one behind it, so that not all send to the same one.
TaskGraph Builder::direct() {
  const bool is_twice = settings_.collective == Collective::all_reduce;
  std::vector<Waits> received(ranks_), ready;
  Waits waits;
  for (int half = 0; half < (is_twice ? 2 : 1); ++half) {
    std::vector<std::vector<Index>> sent(ranks_);  // by rank, in order
    for (std::uint32_t i = 1; i < ranks_; ++i) {
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        const std::uint32_t peer = (rank + i) % ranks_;
        const std::uint32_t segment = half == 0 ? peer : rank;
        waits = ready.empty() ? Waits() : ready[rank];
        if (i > settings_.window) waits = {sent[rank][i - 1 - settings_.window]};
        const Index last = send(rank, peer, part_of(settings_.bytes, segment, ranks_), 0, waits,
                                direct_content(half, rank, peer));
        sent[rank].push_back(last);
        if (is_twice) received[peer].push_back(last);
      }
    }
    ready = std::exchange(received, std::vector<Waits>(ranks_));
  }
  return std::move(graph_);
}

// A chain through all ranks from rank 0, in chunks.
TaskGraph Builder::broadcast() {
  for (std::uint32_t channel = 0; channel < settings_.channels; ++channel) {
    std::vector<std::uint32_t> chain = ring_of(channel);
    std::rotate(chain.begin(), std::ranges::find(chain, 0u), chain.end());
    std::uint64_t left = part_of(settings_.bytes, channel, settings_.channels);
    const std::uint64_t end = start_of(settings_.bytes, channel, settings_.channels) + left;
    while (left > 0) {
      const std::uint64_t bytes = std::min(left, settings_.chunk_bytes);
      const Content content = at(end - left, false);
      left -= bytes;
      Waits waits;
      for (std::uint32_t place = 0; place + 1 < ranks_; ++place) {
        waits = {send(chain[place], chain[place + 1], bytes, channel, waits, content)};
      }
    }
  }
  return std::move(graph_);
}

// The first tree is the binary tree in which a server with an odd number is a leaf: number i has
// children i - b/2 and i + b/2, where b is its lowest bit. Server 0 is above all others. The second
// tree is the same with the servers shifted by one, or mirrored if their number is even, so that
// leaves of one are inside of the other.
Builder::Tree Builder::binary_tree(std::uint32_t servers, bool is_second) {
  Tree tree{std::vector<std::int32_t>(servers, -1),
            std::vector<std::vector<std::uint32_t>>(servers)};
  const auto number = [&](std::uint32_t place) {
    if (!is_second) return place;
    return servers % 2 == 0 ? servers - 1 - place : (place + 1) % servers;
  };
  for (std::uint32_t place = 1; place < servers; ++place) {
    const std::uint32_t bit = place & (~place + 1);
    // The parent clears the lowest bit and sets the next one, unless there is no such server.
    std::uint32_t parent = (place ^ bit) | bit << 1;
    if (parent >= servers) parent = place ^ bit;
    tree.parent[number(place)] = static_cast<std::int32_t>(number(parent));
    tree.children[number(parent)].push_back(number(place));
  }
  return tree;
}

// Adds one chunk that is summed up the tree and handed down again. In each server the GPUs are a
// chain that ends at the leader, which talks to the other servers.
void Builder::tree_chunk(const Tree& tree, std::uint32_t leader, std::uint64_t offset,
                         std::uint64_t bytes, std::uint32_t channel) {
  const Content up = at(offset, true);
  const Content down = at(offset, false);
  const auto gpu = [&](std::uint32_t server, std::uint32_t place) {
    return servers_.rank(server, (leader + place) % servers_.gpus);
  };
  std::vector<Waits> sums(servers_.servers);  // what each leader must have before it sends up
  for (std::uint32_t server = 0; server < servers_.servers; ++server) {
    Waits waits;
    for (std::uint32_t place = servers_.gpus - 1; place > 0; --place) {
      waits = {send(gpu(server, place), gpu(server, place - 1), bytes, channel, waits, up)};
    }
    sums[server] = waits;
  }
  // Servers in the order in which their parents come later.
  std::vector<std::uint32_t> order;
  order.reserve(servers_.servers);
  for (std::uint32_t server = 0; server < servers_.servers; ++server) {
    if (tree.parent[server] < 0) order.push_back(server);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const std::uint32_t child : tree.children[order[i]]) order.push_back(child);
  }
  for (std::size_t i = order.size(); i-- > 1;) {
    const std::uint32_t server = order[i];
    const auto parent = static_cast<std::uint32_t>(tree.parent[server]);
    sums[parent].push_back(send(gpu(server, 0), gpu(parent, 0), bytes, channel, sums[server], up));
  }
  std::vector<Waits> results(servers_.servers);  // what each leader must have before it sends down
  results[order[0]] = sums[order[0]];
  for (const std::uint32_t server : order) {
    for (const std::uint32_t child : tree.children[server]) {
      results[child] = {send(gpu(server, 0), gpu(child, 0), bytes, channel, results[server], down)};
    }
    Waits waits = results[server];
    for (std::uint32_t place = 0; place + 1 < servers_.gpus; ++place) {
      waits = {send(gpu(server, place), gpu(server, place + 1), bytes, channel, waits, down)};
    }
  }
}

TaskGraph Builder::tree() {
  const Tree trees[] = {binary_tree(servers_.servers, false), binary_tree(servers_.servers, true)};
  for (std::uint32_t channel = 0; channel < settings_.channels; ++channel) {
    const std::uint32_t leader = channel % servers_.adapters * servers_.gpus / servers_.adapters;
    const std::uint64_t of_channel = part_of(settings_.bytes, channel, settings_.channels);
    for (std::uint32_t half = 0; half < 2; ++half) {
      std::uint64_t left = part_of(of_channel, half, 2);
      const std::uint64_t end = start_of(settings_.bytes, channel, settings_.channels) +
                                start_of(of_channel, half, 2) + left;
      while (left > 0) {
        const std::uint64_t bytes = std::min(left, settings_.chunk_bytes);
        tree_chunk(trees[half], leader, end - left, bytes, 2 * channel + half);
        left -= bytes;
      }
    }
  }
  return std::move(graph_);
}

bool can_do(Collective collective, Algorithm algorithm) {
  const bool is_segmented = collective == Collective::all_reduce ||
                            collective == Collective::reduce_scatter ||
                            collective == Collective::all_gather;
  switch (algorithm) {
    case Algorithm::ring:
      return is_segmented || collective == Collective::broadcast;
    case Algorithm::tree:
      return collective == Collective::all_reduce;
    case Algorithm::hierarchical:
    case Algorithm::halving_doubling:
    case Algorithm::in_network:
    case Algorithm::nvls:
      return is_segmented;
    case Algorithm::direct:
      return is_segmented || collective == Collective::all_to_all;
  }
  return false;
}

Result<void> check(const CollectiveSettings& settings, Algorithm algorithm) {
  const Servers& servers = settings.servers;
  const std::uint32_t ranks = servers.ranks();
  if (ranks < 2) return Error{"a collective needs at least 2 GPUs"};
  if (servers.adapters == 0 || servers.gpus % servers.adapters != 0) {
    return Error{fmt::format("{} adapters cannot be dealt to the {} GPUs of a server evenly",
                             servers.adapters, servers.gpus)};
  }
  if (!can_do(settings.collective, algorithm)) {
    return Error{
        fmt::format("{} is not done by {}", name_of(settings.collective), name_of(algorithm))};
  }
  if (algorithm == Algorithm::halving_doubling && !std::has_single_bit(ranks)) {
    return Error{fmt::format("halving-doubling needs a power of two of GPUs, and not {}", ranks)};
  }
  if (settings.bytes < std::uint64_t{ranks} * settings.channels) {
    return Error{fmt::format("{} bytes cannot be cut for {} GPUs in {} channels; take more",
                             settings.bytes, ranks, settings.channels)};
  }
  if (algorithm == Algorithm::in_network || algorithm == Algorithm::nvls) {
    if (auto right = check_switches(settings, algorithm); !right) return right;
  }
  if (settings.group_servers != 0) {
    if (algorithm != Algorithm::hierarchical) {
      return Error{
          fmt::format("{} has no groups of servers; hierarchical has", name_of(algorithm))};
    }
    const bool divides = servers.servers % settings.group_servers == 0;
    if (!divides || settings.group_servers < 2 || settings.group_servers == servers.servers) {
      return Error{fmt::format("{} servers cannot be dealt to groups of {} evenly, of two at least",
                               servers.servers, settings.group_servers)};
    }
  }
  if (settings.window == 0) return Error{"at least one message must be under way"};
  if (settings.chunk_bytes == 0 || settings.chunk_bytes > Task::bytes_max) {
    return Error{"a chunk has 1 byte to 1 GiB"};
  }
  return {};
}

// Returns about how many steps the rings of a hierarchy take, one behind the other.
double steps_of_hierarchy(const CollectiveSettings& settings) {
  const double servers = settings.servers.servers;
  if (settings.group_servers == 0) return servers;
  return settings.group_servers + servers / settings.group_servers;
}

// Returns about how many tasks a collective takes, before any is made.
double tasks_of(const CollectiveSettings& settings, Algorithm algorithm) {
  const double ranks = settings.servers.ranks();
  const double channels = settings.channels;
  const double chunks =
      static_cast<double>(settings.bytes) / static_cast<double>(settings.chunk_bytes) + channels;
  switch (algorithm) {
    case Algorithm::ring:
      if (settings.collective == Collective::broadcast) return ranks * chunks;
      return 2 * ranks * ranks * channels;
    case Algorithm::tree:
      return 2 * ranks * (chunks + channels);
    case Algorithm::hierarchical:
      return 2 * ranks * (steps_of_hierarchy(settings) + settings.servers.gpus);
    case Algorithm::halving_doubling:
      return 2 * ranks * std::bit_width(settings.servers.ranks());
    case Algorithm::direct:
      return 2 * ranks * ranks;
    case Algorithm::in_network:
    case Algorithm::nvls:
      return in_network_tasks(settings);
  }
  return 0;
}

}  // namespace

std::span<const NamedCollective> named_collectives() {
  static constexpr auto all = std::to_array<NamedCollective>({
      {"allreduce", "An all-reduce", Collective::all_reduce},
      {"reducescatter", "A reduce-scatter", Collective::reduce_scatter},
      {"allgather", "An all-gather", Collective::all_gather},
      {"broadcast", "A broadcast", Collective::broadcast},
      {"alltoall", "An all-to-all", Collective::all_to_all},
  });
  return all;
}

Algorithm usual_algorithm(const CollectiveSettings& settings) {
  switch (settings.collective) {
    case Collective::all_reduce:
      // A tree's latency grows with the logarithm of the servers, and it moves as much as a ring.
      return settings.servers.servers > 1 && settings.bytes < 1u << 20 ? Algorithm::tree
                                                                       : Algorithm::ring;
    case Collective::all_to_all:
      return Algorithm::direct;
    default:
      return Algorithm::ring;
  }
}

Algorithm algorithm_of(const CollectiveSettings& settings) {
  return settings.algorithm.value_or(usual_algorithm(settings));
}

std::uint64_t piece_unit(const CollectiveSettings& settings, std::uint32_t value_bytes) {
  const std::uint32_t channels =
      settings.channels == 0 ? settings.servers.adapters : settings.channels;
  // Two trees share a channel's bytes.
  return std::uint64_t{2} * channels * settings.servers.ranks() * value_bytes;
}

Result<TaskGraph> make_collective(const CollectiveSettings& given, Pieces* pieces) {
  CollectiveSettings settings = given;
  if (settings.channels == 0) settings.channels = settings.servers.adapters;
  const Algorithm algorithm = algorithm_of(settings);
  if (auto right = check(settings, algorithm); !right) return right.error();
  if (auto right = check_protocol(settings, algorithm); !right) return right.error();
  settings.bytes = wire_bytes(settings.protocol, settings.bytes);
  if (tasks_of(settings, algorithm) > static_cast<double>(TaskGraph::tasks_max)) {
    return Error{
        fmt::format("{} by {} among {} GPUs takes more than {} messages; name another "
                    "algorithm, or take fewer channels or longer chunks",
                    name_of(settings.collective), name_of(algorithm), settings.servers.ranks(),
                    TaskGraph::tasks_max)};
  }
  const bool has_switches = algorithm == Algorithm::in_network || algorithm == Algorithm::nvls;
  if (pieces != nullptr && has_switches) {
    return Error{
        fmt::format("{} is simulated, and not done among processes, which have no switch "
                    "that reduces; take another algorithm",
                    name_of(algorithm))};
  }
  if (pieces != nullptr && settings.protocol != Protocol::simple) {
    return Error{"processes have no protocol but simple"};
  }
  if (pieces != nullptr && settings.bytes % piece_unit(settings) != 0) {
    return Error{fmt::format("{} bytes have no equal parts for {} GPUs; take a multiple of {}",
                             settings.bytes, settings.servers.ranks(), piece_unit(settings))};
  }
  Builder builder(settings, pieces);
  switch (algorithm) {
    case Algorithm::ring:
      return settings.collective == Collective::broadcast ? builder.broadcast() : builder.ring();
    case Algorithm::tree:
      return builder.tree();
    case Algorithm::hierarchical:
      return builder.hierarchical();
    case Algorithm::halving_doubling:
      return builder.halving_doubling();
    case Algorithm::direct:
      return builder.direct();
    case Algorithm::in_network:
      return make_in_network(settings);
    case Algorithm::nvls:
      return make_nvls(settings);
  }
  return Error{"there is no such algorithm"};
}

double bus_factor(Collective collective, std::uint32_t ranks) {
  const double others = ranks - 1.0;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * others / ranks;
    case Collective::broadcast:
      return 1;
    default:
      return others / ranks;
  }
}

std::string_view name_of(Collective collective) {
  return collective_names[static_cast<std::size_t>(collective)];
}
std::string_view name_of(Algorithm algorithm) {
  return algorithm_names[static_cast<std::size_t>(algorithm)];
}

}  // namespace tulle::workload

// Plays collectives in memory, in random orders that their graphs allow, and compares what each
// rank has at the end with what the collective promises.

#include "study/workload/pieces.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "study/workload/collectives.h"

namespace tulle::workload {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Sums are modulo 256, so that they do not depend on the order either.
std::uint8_t input_of(std::uint32_t rank, std::uint64_t offset) {
  return static_cast<std::uint8_t>((offset + 1) * 0x9E37'79B9u * (rank + 1) >> 13);
}

class Replay {
 public:
  Replay(const CollectiveSettings& settings, std::uint32_t seed)
      : settings_(settings), graph_(1), draw_(seed) {
    auto graph = make_collective(settings, &pieces_);
    EXPECT_TRUE(graph) << graph.error().message;
    if (graph) graph_ = std::move(*graph);
    EXPECT_EQ(pieces_.of.size(), graph_.size());
    for (std::uint32_t rank = 0; rank < graph_.ranks(); ++rank) {
      Bytes input(settings.bytes);
      for (std::uint64_t i = 0; i < input.size(); ++i) input[i] = input_of(rank, i);
      buffers_.push_back(input);
    }
    results_ = settings.collective == Collective::all_to_all
                   ? std::vector<Bytes>(graph_.ranks(), Bytes(settings.bytes))
                   : std::vector<Bytes>();
  }

  void play();
  // Returns the first byte of a rank that is not what the collective promises, or nothing.
  std::string fault() const;

 private:
  using Connection = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
  struct Message {
    TaskGraph::Index task = 0;
    Bytes bytes;  // empty: they are read when they arrive
  };
  void start(TaskGraph::Index task);
  void take(TaskGraph::Index task, const Bytes& bytes);
  void arrive(const Message& message);
  void release(TaskGraph::Index task, std::uint32_t rank);
  Bytes read(TaskGraph::Index task) const {
    const auto& buffer = buffers_[graph_[task].rank];
    const auto from = buffer.begin() + static_cast<std::ptrdiff_t>(pieces_.of[task].source);
    return {from, from + static_cast<std::ptrdiff_t>(graph_[task].bytes)};
  }
  std::uint8_t expected(std::uint32_t rank, std::uint64_t offset) const;

  CollectiveSettings settings_;
  Pieces pieces_;
  TaskGraph graph_;
  std::mt19937 draw_;
  std::vector<Bytes> buffers_, results_;
  std::vector<std::size_t> awaited_;
  std::map<Connection, std::deque<Message>> under_way_;
};

void Replay::start(TaskGraph::Index task) {
  // An adapter reads the bytes at any time until the message has left. Those that are only stored
  // may be in place long before the receiver is told.
  const Task& message = graph_[task];
  const Bytes bytes = read(task);
  if (!message.reduces && draw_() % 2 == 0) take(task, bytes);
  under_way_[{message.rank, message.peer, message.channel}].push_back(
      {task, draw_() % 2 == 0 ? bytes : Bytes()});
}

void Replay::release(TaskGraph::Index task, std::uint32_t rank) {
  for (TaskGraph::Index i = 0; i < graph_.size(); ++i) {
    if (graph_[i].rank != rank) continue;
    for (const auto before : graph_.waits_for(i)) {
      if (before == task && --awaited_[i] == 0) start(i);
    }
  }
}

void Replay::take(TaskGraph::Index index, const Bytes& bytes) {
  const Task& task = graph_[index];
  Bytes& into = results_.empty() ? buffers_[task.peer] : results_[task.peer];
  const std::uint64_t target = pieces_.of[index].target;
  ASSERT_LE(target + bytes.size(), into.size());
  for (std::uint64_t i = 0; i < bytes.size(); ++i) {
    std::uint8_t& at = into[target + i];
    at = static_cast<std::uint8_t>(task.reduces ? at + bytes[i] : bytes[i]);
  }
}

void Replay::arrive(const Message& message) {
  const Task& task = graph_[message.task];
  take(message.task, message.bytes.empty() ? read(message.task) : message.bytes);
  release(message.task, task.rank);
  release(message.task, task.peer);
}

void Replay::play() {
  for (TaskGraph::Index i = 0; i < graph_.size(); ++i) {
    awaited_.push_back(graph_.waits_for(i).size());
  }
  for (TaskGraph::Index i = 0; i < graph_.size(); ++i) {
    if (graph_.waits_for(i).empty()) start(i);
  }
  std::size_t arrived = 0;
  while (!under_way_.empty()) {
    auto next = under_way_.begin();
    std::advance(next, draw_() % under_way_.size());
    const Message message = std::move(next->second.front());
    next->second.pop_front();
    if (next->second.empty()) under_way_.erase(next);
    arrive(message);
    ++arrived;
  }
  EXPECT_EQ(arrived, graph_.size());
}

std::uint8_t Replay::expected(std::uint32_t rank, std::uint64_t offset) const {
  const std::uint64_t part_bytes = settings_.bytes / graph_.ranks();
  const auto part = static_cast<std::uint32_t>(offset / part_bytes);
  switch (settings_.collective) {
    case Collective::broadcast:
      return input_of(0, offset);
    case Collective::all_gather:
      for (std::uint32_t owner = 0; owner < graph_.ranks(); ++owner) {
        if (pieces_.part[owner] == part) return input_of(owner, offset);
      }
      return 0;
    case Collective::all_to_all:
      if (part == rank) return 0;  // nobody sends to itself
      return input_of(part, rank * part_bytes + offset % part_bytes);
    default:
      break;
  }
  unsigned sum = 0;
  for (std::uint32_t each = 0; each < graph_.ranks(); ++each) sum += input_of(each, offset);
  return static_cast<std::uint8_t>(sum);
}

std::string Replay::fault() const {
  const std::uint64_t part_bytes = settings_.bytes / graph_.ranks();
  for (std::uint32_t rank = 0; rank < graph_.ranks(); ++rank) {
    const Bytes& bytes = results_.empty() ? buffers_[rank] : results_[rank];
    for (std::uint64_t i = 0; i < bytes.size(); ++i) {
      const bool is_own = i / part_bytes == pieces_.part[rank];
      if (settings_.collective == Collective::reduce_scatter && !is_own) continue;
      if (bytes[i] != expected(rank, i)) {
        return "rank " + std::to_string(rank) + ", byte " + std::to_string(i);
      }
    }
  }
  return "";
}

struct Pair {
  Collective collective;
  Algorithm algorithm;
  bool has_groups = false;
};

class EachPair : public testing::TestWithParam<Pair> {};

TEST_P(EachPair, HasTheResultInAnyOrder) {
  constexpr std::pair<std::uint32_t, std::uint32_t> shapes[] = {
      {1, 2}, {1, 3}, {1, 4}, {1, 7}, {1, 8}, {2, 1}, {2, 2},
      {3, 1}, {3, 2}, {4, 4}, {5, 3}, {7, 1}, {8, 1}, {13, 1}};
  constexpr std::pair<std::uint32_t, std::uint32_t> grouped_shapes[] = {
      {4, 1}, {4, 3}, {6, 1}, {6, 2}, {8, 2}, {9, 1}, {10, 2}, {12, 1}};
  std::uint32_t played = 0;
  using Shapes = std::span<const std::pair<std::uint32_t, std::uint32_t>>;
  const Shapes used = GetParam().has_groups ? Shapes(grouped_shapes) : Shapes(shapes);
  for (const auto& [servers, gpus] : used) {
    for (const std::uint32_t channels : {1u, 2u, 3u}) {
      CollectiveSettings settings;
      settings.collective = GetParam().collective;
      settings.algorithm = GetParam().algorithm;
      settings.servers.servers = servers;
      settings.servers.gpus = gpus;
      settings.channels = channels;
      if (GetParam().has_groups) settings.group_servers = servers % 3 == 0 ? 3 : 2;
      settings.chunk_bytes = 7;
      settings.window = 2;
      settings.bytes = 3 * piece_unit(settings);
      if (!make_collective(settings)) continue;  // halving needs a power of two
      for (std::uint32_t seed = 1; seed <= 3; ++seed) {
        Replay replay(settings, seed);
        replay.play();
        EXPECT_EQ(replay.fault(), "") << servers << " servers of " << gpus << " GPUs, " << channels
                                      << " channels, seed " << seed;
        ++played;
      }
    }
  }
  EXPECT_GE(played, 60u);
}

INSTANTIATE_TEST_SUITE_P(
    Pieces, EachPair,
    testing::Values(Pair{Collective::all_reduce, Algorithm::ring},
                    Pair{Collective::all_reduce, Algorithm::tree},
                    Pair{Collective::all_reduce, Algorithm::hierarchical},
                    Pair{Collective::all_reduce, Algorithm::halving_doubling},
                    Pair{Collective::all_reduce, Algorithm::direct},
                    Pair{Collective::reduce_scatter, Algorithm::ring},
                    Pair{Collective::reduce_scatter, Algorithm::hierarchical},
                    Pair{Collective::reduce_scatter, Algorithm::halving_doubling},
                    Pair{Collective::reduce_scatter, Algorithm::direct},
                    Pair{Collective::all_gather, Algorithm::ring},
                    Pair{Collective::all_gather, Algorithm::hierarchical},
                    Pair{Collective::all_gather, Algorithm::halving_doubling},
                    Pair{Collective::all_gather, Algorithm::direct},
                    Pair{Collective::all_reduce, Algorithm::hierarchical, true},
                    Pair{Collective::reduce_scatter, Algorithm::hierarchical, true},
                    Pair{Collective::all_gather, Algorithm::hierarchical, true},
                    Pair{Collective::broadcast, Algorithm::ring},
                    Pair{Collective::all_to_all, Algorithm::direct}),
    [](const testing::TestParamInfo<Pair>& info) {
      std::string name = std::string(name_of(info.param.collective)) + "_by_" +
                         std::string(name_of(info.param.algorithm)) +
                         (info.param.has_groups ? "_in_groups" : "");
      for (char& letter : name) letter = letter == '-' ? '_' : letter;
      return name;
    });

TEST(Pieces, NeedEqualParts) {
  CollectiveSettings settings;
  settings.servers.gpus = 3;
  settings.bytes = 100;
  Pieces pieces;
  EXPECT_TRUE(make_collective(settings));
  auto graph = make_collective(settings, &pieces);
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().message,
            "100 bytes have no equal parts for 3 GPUs; take a multiple of 6");
  EXPECT_EQ(piece_unit(settings, 4), 24u);
}

}  // namespace
}  // namespace tulle::workload

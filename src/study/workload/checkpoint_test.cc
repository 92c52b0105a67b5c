// Checkpoints as tasks: who writes how much to whom, and what waits for what.

#include "study/workload/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "study/workload/training.h"

namespace tulle::workload {
namespace {

Servers five_servers() {
  Servers servers;
  servers.servers = 5;
  servers.gpus = servers.adapters = 2;
  servers.scale_up_bits_per_second = 1'000'000'000'000;
  return servers;
}

// Three servers train with a tensor group each, and two store.
TrainingSettings trained() {
  TrainingSettings settings;
  settings.model = {.layers = 2,
                    .hidden = 64,
                    .feed_forward = 256,
                    .heads = 4,
                    .key_value_heads = 2,
                    .sequence = 128};
  settings.gpu.operations_per_second = 1e12;
  settings.servers = five_servers();
  settings.tensor = 2;
  settings.steps = 4;
  settings.checkpoint.storage = 2;
  settings.checkpoint.every = 2;
  settings.checkpoint.piece_bytes = 10'000;
  settings.checkpoint.depth = 3;
  settings.checkpoint.drive_bits_per_second = 8'000'000;
  return settings;
}

std::string error_of(const TrainingSettings& settings) {
  auto made = make_training(settings);
  return made ? "" : made.error().message;
}

TEST(Checkpoint, EachGpuWritesItsPartToTheTargetOfItsAdapter) {
  const TrainingSettings settings = trained();
  auto training = make_training(settings);
  ASSERT_TRUE(training);
  ASSERT_TRUE(training->graph.check());
  ASSERT_EQ(training->checkpoints.size(), 1u) << "behind step 2, and none behind step 4";
  std::map<std::uint32_t, std::uint64_t> wrote;
  std::map<std::uint32_t, std::vector<std::uint32_t>> targets;
  double drive_seconds = 0;
  const TaskRange range = training->checkpoints[0];
  for (TaskGraph::Index i = range.first; i < range.end; ++i) {
    const Task& task = training->graph[i];
    if (!task.is_message()) {
      EXPECT_GE(task.rank, 6u) << "storage servers have drives";
      drive_seconds += task.duration.to_seconds();
      continue;
    }
    EXPECT_TRUE(task.by_host);
    if (task.rank >= 6 || task.bytes == CheckpointSettings::command_bytes) continue;
    wrote[task.rank] += task.bytes;
    targets[task.rank].push_back(task.peer);
  }
  const double weights = settings.model.layer_weights() * 2;
  EXPECT_EQ(settings.checkpoint_bytes(), weights * 14);
  std::uint64_t all = 0;
  ASSERT_EQ(wrote.size(), 6u);
  for (const auto& [rank, bytes] : wrote) {
    EXPECT_NEAR(static_cast<double>(bytes), weights * 14 / 6, 1) << rank;
    all += bytes;
    const std::vector<std::uint32_t>& of_rank = targets[rank];
    EXPECT_EQ(of_rank.size(), (bytes + 9'999) / 10'000);
    // Servers 3 and 4 store: server s and adapter a go to number (s + a) mod 2 of them.
    const std::uint32_t adapter = rank % 2;
    const std::uint32_t expected = (3 + (rank / 2 + adapter) % 2) * 2 + adapter;
    EXPECT_EQ(std::ranges::count(of_rank, expected), static_cast<std::ptrdiff_t>(of_rank.size()));
  }
  EXPECT_EQ(all, static_cast<std::uint64_t>(weights * 14));
  // Each of a server's two adapters has half of the drives' 1 MB/s.
  EXPECT_NEAR(drive_seconds, weights * 14 / 500'000, 1e-6);
}

// A command waits for the completion of the one that is `depth` before it.
TEST(Checkpoint, SoManyCommandsAreUnderWay) {
  auto training = make_training(trained());
  ASSERT_TRUE(training);
  const TaskGraph& graph = training->graph;
  const TaskRange range = training->checkpoints[0];
  std::vector<TaskGraph::Index> commands, completions;
  for (TaskGraph::Index i = range.first; i < range.end; ++i) {
    const Task& task = graph[i];
    if (task.rank == 0 && task.bytes == CheckpointSettings::command_bytes) commands.push_back(i);
    const bool answers = task.is_message() && task.peer == 0;
    if (answers && !graph[graph.waits_for(i)[0]].is_message()) completions.push_back(i);
  }
  ASSERT_EQ(commands.size(), completions.size());
  ASSERT_GT(commands.size(), 4u);
  const TaskRange end_of_step = training->step_ends[1];
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const auto waits = graph.waits_for(commands[i]);
    ASSERT_EQ(waits.size(), 1u);
    EXPECT_EQ(waits[0], i < 3 ? end_of_step.first : completions[i - 3]) << i;
  }
}

// Returns true if the first task of a GPU's next step waits for something of the checkpoint.
bool next_step_waits(bool overlaps) {
  TrainingSettings settings = trained();
  settings.checkpoint.overlaps = overlaps;
  auto training = make_training(settings);
  const TaskRange range = training->checkpoints[0];
  TaskGraph::Index next = range.end;
  while (training->graph[next].rank != 0) ++next;
  return std::ranges::any_of(training->graph.waits_for(next), [&](TaskGraph::Index before) {
    return before >= range.first && before < range.end;
  });
}

TEST(Checkpoint, TheNextStepWaitsUnlessItOverlaps) {
  EXPECT_TRUE(next_step_waits(false));
  EXPECT_FALSE(next_step_waits(true));
}

TEST(Checkpoint, OneStepIsTheSameWithoutIt) {
  TrainingSettings settings = trained();
  settings.servers.servers = 3;
  settings.checkpoint = {};
  auto one = make_training_step(settings);
  ASSERT_TRUE(one);
  settings.steps = 1;
  auto same = make_training(settings);
  ASSERT_TRUE(same);
  EXPECT_EQ(one->size(), same->graph.size());
  EXPECT_TRUE(same->step_ends.empty());
  settings.steps = 3;
  auto three = make_training(settings);
  ASSERT_TRUE(three);
  EXPECT_EQ(three->graph.size(), 3 * (one->size() + 6)) << "with a join for each GPU";
  EXPECT_EQ(three->step_ends.size(), 3u);
  EXPECT_EQ(time_without_communication(three->graph).ps, 3 * time_without_communication(*one).ps);
}

TEST(Checkpoint, RefusesWhatCannotBe) {
  TrainingSettings settings = trained();
  settings.checkpoint.storage = 5;
  EXPECT_EQ(error_of(settings), "5 storage servers leave none of 5 to train");
  settings = trained();
  settings.tensor = 1;
  settings.pipeline = 2;
  settings.servers.gpus = settings.servers.adapters = 1;
  EXPECT_EQ(error_of(settings),
            "replicas of 2 GPUs (tensor 1 times pipeline 2) do not fill 3 GPUs");
  settings = trained();
  settings.checkpoint.piece_bytes = 0;
  EXPECT_NE(error_of(settings).find("pieces of 1 byte to 1 GiB"), std::string::npos);
  settings = trained();
  settings.checkpoint.drive_bits_per_second = 1;
  EXPECT_NE(error_of(settings).find("for more than 50 days"), std::string::npos);
  settings = trained();
  settings.optimizer_bytes = 1'000'000;
  settings.checkpoint.piece_bytes = 1;
  EXPECT_NE(error_of(settings).find("more than 134217728 tasks"), std::string::npos);
  settings = trained();
  settings.steps = 0;
  EXPECT_EQ(error_of(settings), "steps must be 1 or more");
}

}  // namespace
}  // namespace tulle::workload

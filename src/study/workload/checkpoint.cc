#include "study/workload/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/time.h"
#include "study/workload/part.h"

namespace tulle::workload {
namespace {

using Index = TaskGraph::Index;

constexpr std::uint32_t command_channel = 0;  // also of requests and completions
constexpr std::uint32_t data_channel = 1;

// Returns the rank by which a GPU's target sends and receives. GPUs keep to adapters of one number,
// and those of a server are dealt to the storage servers round robin.
std::uint32_t target_of(std::uint32_t gpu, const Servers& servers, std::uint32_t storage) {
  const std::uint32_t gpus_of_adapter = servers.gpus / servers.adapters;
  const std::uint32_t adapter = servers.gpu_of(gpu) / gpus_of_adapter;
  const std::uint32_t first = servers.servers - storage;
  return servers.rank(first + (servers.server_of(gpu) + adapter) % storage,
                      adapter * gpus_of_adapter);
}

// Writes one GPU's part.
class Writer {
 public:
  Writer(TaskGraph& graph, const CheckpointSettings& settings, const CheckpointPhases& phases,
         double drive_bytes_per_second, std::uint32_t gpu, std::uint32_t target)
      : graph_(graph),
        settings_(settings),
        phases_(phases),
        drive_bytes_per_second_(drive_bytes_per_second),
        gpu_(gpu),
        target_(target) {}

  Waits write(std::uint64_t bytes, const Waits& ready) {
    Waits completions;  // of the commands that are under way, in order
    std::uint64_t piece = 0;
    for (std::uint64_t left = bytes; left > 0; ++piece) {
      const std::uint64_t now = std::min(left, settings_.piece_bytes);
      const bool is_first = completions.size() < settings_.depth;
      const Index written = is_first ? write_piece(now, ready)
                                     : write_piece(now, {completions[piece % settings_.depth]});
      if (is_first) {
        completions.push_back(written);
      } else {
        completions[piece % settings_.depth] = written;
      }
      left -= now;
    }
    return completions;
  }

 private:
  Index send(bool is_from_gpu, std::uint64_t bytes, std::uint32_t channel, const Waits& after) {
    Task task;
    task.rank = is_from_gpu ? gpu_ : target_;
    task.peer = is_from_gpu ? target_ : gpu_;
    task.bytes = bytes;
    task.channel = channel;
    task.phase = phases_.data;
    task.by_host = true;
    return graph_.add(task, after);
  }

  Index write_piece(std::uint64_t bytes, const Waits& after) {
    const Index command = send(true, CheckpointSettings::command_bytes, command_channel, after);
    const Index request =
        send(false, CheckpointSettings::request_bytes, command_channel, {command});
    Index there = send(true, bytes, data_channel, {request});
    if (drive_bytes_per_second_ > 0) {
      Task drive;
      drive.kind = Task::Kind::computation;
      drive.rank = target_;
      drive.duration = Time::picoseconds(
          static_cast<std::int64_t>(static_cast<double>(bytes) / drive_bytes_per_second_ * 1e12));
      drive.phase = phases_.drives;
      drive.exchanges = true;  // no GPU computes meanwhile
      there = graph_.add(drive, {there});
    }
    return send(false, CheckpointSettings::completion_bytes, command_channel, {there});
  }

  TaskGraph& graph_;
  const CheckpointSettings& settings_;
  const CheckpointPhases& phases_;
  double drive_bytes_per_second_;  // of the target; 0: as fast as data come
  std::uint32_t gpu_, target_;
};

// Returns the rate of the drives behind each adapter of a storage server, in bytes a second.
double target_rate(const Servers& servers, const CheckpointSettings& settings) {
  return static_cast<double>(settings.drive_bits_per_second) / 8 / servers.adapters;
}

}  // namespace

std::uint32_t gpus_that_compute(const Servers& servers, const CheckpointSettings& settings) {
  return (servers.servers - settings.storage) * servers.gpus;
}

Result<void> check_checkpoint(const Servers& servers, const CheckpointSettings& settings) {
  if (settings.storage >= servers.servers) {
    return Error{fmt::format("{} storage servers leave none of {} to train", settings.storage,
                             servers.servers)};
  }
  if (settings.storage == 0) return {};
  if (settings.every == 0 || settings.depth == 0 || settings.piece_bytes == 0 ||
      settings.piece_bytes > Task::bytes_max) {
    return Error{"a checkpoint needs every and depth above 0, and pieces of 1 byte to 1 GiB"};
  }
  return {};
}

double checkpoint_tasks(const Servers& servers, const CheckpointSettings& settings, double bytes) {
  const double tasks_of_piece = settings.drive_bits_per_second > 0 ? 5 : 4;
  const double pieces = bytes / static_cast<double>(settings.piece_bytes);
  return tasks_of_piece * (pieces + 2.0 * gpus_that_compute(servers, settings));
}

double checkpoint_seconds(const Servers& servers, const CheckpointSettings& settings,
                          double bytes) {
  return settings.drive_bits_per_second > 0 ? bytes / target_rate(servers, settings) : 0;
}

std::vector<Waits> add_checkpoint(TaskGraph& graph, const Servers& servers,
                                  const CheckpointSettings& settings,
                                  const CheckpointPhases& phases, std::uint64_t bytes,
                                  const std::vector<Waits>& ready) {
  const std::uint32_t gpus = gpus_that_compute(servers, settings);
  std::vector<Waits> written(gpus);
  for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
    Writer writer(graph, settings, phases, target_rate(servers, settings), gpu,
                  target_of(gpu, servers, settings.storage));
    written[gpu] = writer.write(part_of(bytes, gpu, gpus), ready[gpu]);
  }
  return written;
}

}  // namespace tulle::workload

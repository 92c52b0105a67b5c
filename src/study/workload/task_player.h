#pragma once

// Plays a graph of tasks on adapters. Messages within a server take the scale-up network, which is
// a rate and a latency here; all others are flows (study/workload/player.h). Each processor of a
// rank computes one thing at a time, and the rank sends meanwhile.

#include <atomic>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/time.h"
#include "study/workload/batches.h"
#include "study/workload/cores.h"
#include "study/workload/flows.h"
#include "study/workload/job.h"
#include "study/workload/player.h"
#include "study/workload/servers.h"
#include "study/workload/task_graph.h"

namespace tulle::workload {

// The messages of a graph that need adapters, as flows between these, and the task of each.
struct TaskFlows {
  Flows flows;
  std::vector<TaskGraph::Index> task_of;  // by flow; the parts of a message follow one another
  std::uint32_t connections = 0;          // that flows share
};
// Shared connections have numbers from `first_connection` on.
TaskFlows flows_of(const TaskGraph& graph, const Servers& servers,
                   std::uint32_t first_connection = 0);

struct TaskResult {
  Time start = Time::never();  // never: it did not begin
  Time end = Time::never();    // it was computed, or its message has left; never: it was not
  // Its message was received; or, of a task of a batch, its first round is over.
  Time arrived = Time::never();
};

// Returns true if a rank of the task has begun or received something of it.
inline bool has_happened(const TaskResult& result) {
  return !result.start.is_never() || !result.arrived.is_never();
}

class TaskPlayer final : public Schedule {
 public:
  // The job, whose graph was checked, must outlive this. The carrier has its flows, and those of
  // other jobs.
  TaskPlayer(const Job& job, Carrier& carrier, Stage stage);

  // Sets alarms for the tasks that wait for nothing, at the job's arrival.
  void begin();
  // Returns true if the token is of an alarm of such a player, and then its task, counted through
  // all jobs.
  static bool is_own(std::uint32_t token) { return (token & own_bit) != 0; }
  static std::uint32_t task_of(std::uint32_t token) { return token & ((1u << step_shift) - 1); }
  void handle_alarm(Time now, std::uint32_t token);
  // Returns true if another process may send an alarm with such a token for a host.
  bool accepts_alarm(std::uint32_t host, std::uint32_t token) const;

  void arrived(Time now, std::uint32_t flow) override;
  void sent(Time now, std::uint32_t flow) override;

  const std::vector<TaskResult>& results() const { return results_; }
  // Returns the time at which the first of these tasks began, and that at which the last one was
  // over; never if some are not.
  Time begin_of(const TaskRange& range) const;
  Time end_of(const TaskRange& range) const;
  // Returns true if all messages were received and their senders know that they have left, and all
  // else is over.
  bool is_done() const { return parts_left() == 0; }
  // The parts of a job are the ends of its tasks: a message has two.
  std::size_t parts() const { return parts_; }
  std::size_t parts_left() const { return parts_left_.load(std::memory_order_relaxed); }
  std::size_t parts_done() const { return parts_ - parts_left(); }
  // Returns the time at which the last task ended, or a part of it; zero if none has.
  Time end() const;
  const Job& job() const { return job_; }

  // Adds what another process knows of a task, and the parts that are done there, after the run.
  void merge(TaskGraph::Index task, const TaskResult& other);
  void add_parts_done(std::size_t parts) { parts_left_ -= parts; }

 private:
  static constexpr std::uint32_t own_bit = 1u << 30;
  static constexpr std::uint32_t step_shift = 27;
  static constexpr std::uint32_t step_mask = 7;
  enum class Step : std::uint8_t {
    begin,      // nothing is waited for any more
    over,       // it was computed, or its message has left by the scale-up network
    reached,    // the first byte is at the receiving GPU
    done,       // all bytes are
    added,      // the receiver has added them, or its processor has taken note of them
    round,      // the batch of the task's rank has done a round
    part_left,  // a part of its message has left by one of an adapter's planes
    part_come,  // or has come
  };
  void set_alarm(Time at, std::uint32_t rank, TaskGraph::Index task, Step step);
  void begin_task(Time now, TaskGraph::Index task);
  void send_to_neighbour(Time now, TaskGraph::Index task);
  bool reduces_inside(const Task& task) const;
  Time scale_up_time(const Task& task) const;
  bool is_of_channel(const Task& task) const;
  Time channel_time(const Task& task) const;
  void reach(Time now, TaskGraph::Index task);
  void receive(Time now, TaskGraph::Index task);
  void end_sending(Time now, TaskGraph::Index task);
  void work(Time now, std::uint32_t rank, const Cores::Work& work);
  void begin_work(Time now, std::uint32_t server);
  void end_work(Time now, std::uint32_t rank);
  void begin_round(Time now, std::uint32_t rank);
  void end_round(Time now, std::uint32_t rank);
  void release(Time now, TaskGraph::Index task, std::uint32_t rank);
  void leave(Time now, TaskGraph::Index task);
  void arrive(Time now, TaskGraph::Index task);
  void start_flows(Time now, TaskGraph::Index task);

  const Job& job_;
  const TaskGraph& graph_;
  const Servers& servers_;
  const std::vector<TaskGraph::Index>& task_of_;  // by flow of the job
  Carrier& carrier_;
  Stage stage_;
  // With planes, a message has several flows.
  struct Parts {
    std::uint8_t to_leave = 0, to_come = 0;
  };
  std::vector<Parts> flow_parts_;             // by task; empty without planes
  std::vector<std::uint32_t> flow_of_;        // by task: its first one
  std::vector<std::size_t> first_dependent_;  // by task: index in dependents_
  std::vector<TaskGraph::Index> dependents_;
  std::vector<std::uint32_t> awaited_;  // by task: how many tasks it still waits for
  std::vector<TaskResult> results_;
  // By rank and processor: until when it is busy.
  std::vector<Time> computes_until_;
  // By rank: until when its additions and the two directions of its scale-up port are busy.
  std::vector<Time> sends_until_, receives_until_, adds_until_;
  // By sender, and then by receiver and channel, where channels have a rate: until when one sends.
  std::vector<std::map<std::pair<std::uint32_t, std::uint32_t>, Time>> channel_until_;
  Cores cores_;
  Batches batches_;
  std::size_t parts_ = 0;  // of the job
  // Hosts that have their turns at the same time count together.
  std::atomic<std::size_t> parts_left_ = 0;
};

}  // namespace tulle::workload

#pragma once

// Runs a setup and gathers its results, which depend on the setup alone: not on wall-clock time,
// not on the machine.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "fabric/recovery.h"
#include "fabric/routing.h"
#include "fabric/topology.h"
#include "sim/application.h"
#include "sim/network.h"
#include "sim/processes.h"
#include "study/experiment/capture.h"
#include "study/experiment/measured.h"
#include "study/experiment/sampler.h"
#include "study/experiment/threads.h"
#include "study/experiment/timeline.h"
#include "study/report/outcome.h"
#include "study/scenario/setup.h"
#include "study/workload/jobs_player.h"
#include "study/workload/player.h"

namespace tulle::experiment {

struct Progress {
  Time now;
  std::uint64_t events = 0;
  std::uint64_t flows = 0;
  std::uint64_t flows_done = 0;
  double share_done = 0;  // share of the bytes
};
// Called now and then. Returns false to stop the run.
using OnProgress = std::function<bool(const Progress& progress)>;

class Run : sim::Application {
 public:
  // Sets the network up, to be moved by so many threads (1 to Threads::most) of this process, and
  // of each other one. The results are the same with any number of both. The error is one line. If
  // there are processes, all of them must call the same functions of their runs, the setup must be
  // divisible (why_undivided()), and there must be no more of them than hosts or parts of a
  // network. It fails in all of them or in none.
  static Result<std::unique_ptr<Run>> prepare(scenario::Setup setup, std::uint32_t threads = 1,
                                              sim::Processes* processes = nullptr);
  ~Run() override;
  // Returns the number of threads that move the network, which is less than asked for if the setup
  // does not allow more.
  std::uint32_t threads() const { return network_.threads(); }
  // Returns the reason, for people.
  std::string why_fewer_threads() const;
  // Returns why only one thread of one process can simulate the setup, for people, or nothing.
  static std::string why_undivided(const scenario::Setup& setup);
  // Shows every frame that leaves a port to the capture, which must outlive the run, or to a
  // function. The run must have one thread, as for order_by_time().
  void show_to(Capture& capture);
  void show_to(std::function<void(const sim::Sending&)> told);
  // Runs all hosts and switches in the order of time, not in turns. This is slower and has the same
  // results.
  void order_by_time() { network_.order_by_time(); }
  // Runs until all flows are done, a payload is found damaged, nothing is left to happen, the time
  // of stop_at has come, or `on_progress` returns false in any process. Throws std::runtime_error,
  // with one line, if another process has sent something damaged. Returns false if it was stopped;
  // all processes return the same.
  bool run(const OnProgress& on_progress);
  // The first of several processes alone has the outcome, and what the functions below return.
  report::Outcome outcome() const;
  // The error names the first flow whose bytes did not arrive as they were sent, which is a bug in
  // Tulle.
  Result<void> check_payloads() const;
  // Returns the time that a job took, from its arrival on; nothing if it is not done.
  std::optional<Time> time_of_job(std::size_t job) const;

 private:
  static Result<std::unique_ptr<Run>> prepare_alone(scenario::Setup setup, std::uint32_t threads,
                                                    sim::Processes* processes);
  Run(scenario::Setup setup, fabric::Routes routes, fabric::Recovery recovery,
      std::uint32_t threads, sim::Processes* processes);
  Result<void> introduce_hosts();
  void handle_completions(Time now, std::uint32_t host) override;
  void handle_alarm(Time now, std::uint32_t host, std::uint32_t token) override;
  void meet_request(std::uint32_t host, std::uint32_t token, std::uint32_t note) override;
  bool accepts_alarm(std::uint32_t host, std::uint32_t token) const override;
  bool accepts_request(std::uint32_t host, std::uint32_t token, std::uint32_t note) const override;
  bool goes_on() override { return (*on_progress_)(progress()); }
  workload::Stage stage();
  std::uint16_t pkey_index(std::uint32_t from, std::uint32_t to) const;
  workload::PathRecord path(std::uint32_t from, std::uint32_t to, std::uint8_t qos_level,
                            std::uint8_t path_bits) const;
  bool play_and_sample(Time until);
  // A process's own counts, and its vote on whether to continue.
  struct Tally {
    workload::FlowCounts flows;
    std::uint64_t task_parts = 0;
    std::uint64_t events = 0;
    std::uint64_t goes_on = 1;
  };
  Tally own_tally() const;
  bool ask_others(bool goes_on);
  Progress progress() const;
  bool is_done() const;

  scenario::Setup setup_;
  fabric::Routes routes_;
  fabric::Recovery recovery_;
  fabric::Wiring wiring_;
  sim::Processes* processes_;      // null: this is the only one
  std::unique_ptr<Threads> team_;  // null: there is one thread
  sim::Network network_;
  Measured measured_;
  workload::Player player_;
  std::optional<workload::JobsPlayer> jobs_;  // if the setup has jobs
  Sampler sampler_;
  TimelineSampler timeline_;
  std::uint64_t bytes_ = 0;
  Tally elsewhere_;  // of the other processes together, when they were asked last
  const OnProgress* on_progress_ = nullptr;  // that of the present call of run()
};

}  // namespace tulle::experiment

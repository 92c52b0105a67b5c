#pragma once

// Runs a setup and gathers its results, which depend on the setup alone: not on wall-clock time,
// not on the machine.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "scenario/capture.h"
#include "scenario/samples.h"
#include "scenario/scenario.h"
#include "verbs/types.h"

namespace tulle::scenario {

// The outcome of a message, whatever the number of queue pairs that share it.
struct FlowOutcome {
  workload::Flow flow;
  Time start = Time::never();    // never: it did not begin
  Time end = Time::never();      // time of the acknowledgement; never: there was none by the end
  Time arrived = Time::never();  // time when the receiver was told; never: it was not
  double slowdown = 0;           // ratio of its time to that in an empty network
  verbs::CompletionStatus status = verbs::CompletionStatus::success;
};

// One direction of a link.
struct LinkOutcome {
  std::string from, to;
  std::uint16_t port = 0;
  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;
  double utilisation = 0;  // share of the time until the last flow's end
  std::uint64_t queue_bytes_max = 0;
  std::uint64_t dropped = 0;
  std::uint64_t marked = 0;
  std::uint64_t pauses = 0;  // pauses that stopped this direction
  Time paused;
  std::uint64_t credit_stalls = 0;
  std::uint64_t lost = 0;     // frames lost to faults
  std::uint64_t damaged = 0;  // frames
  std::uint64_t watchdog_trips = 0;
  std::uint64_t watchdog_dropped = 0;  // frames
};

struct Quantiles {
  double min = 0, median = 0, p99 = 0, max = 0;
};
// Computes quantiles by the nearest rank. All are 0 if there are no values.
Quantiles quantiles(std::vector<double> values);

// The work of the hosts' kernels.
struct StackOutcome {
  struct Host {
    std::string name;
    device::HostStack::Counters counters;
  };
  std::vector<Host> hosts;
  double cpu_seconds = 0;          // total of all hosts
  double cpu_seconds_per_gib = 0;  // per GiB of payload moved, both ends together
  double busiest_core = 0;         // share of the time in which that core was busy, 0 to 1
};

// The effects of faults.
struct FaultOutcome {
  std::uint64_t lost = 0;        // frames
  std::uint64_t lost_bytes = 0;  // headers included
  std::uint64_t unrouted = 0;    // those of the lost frames that had no route left
  std::uint64_t damaged = 0;     // frames damaged by bit errors
  std::uint64_t watchdog_trips = 0;
  std::uint64_t watchdog_dropped = 0;  // frames
  std::uint64_t ports_paused = 0;      // ports that were asked to stop at any time
  // Time from the first fault to the last frame that a fault cost; zero if none was lost.
  Time recovery;
};

// The outcome of the flows of one kind, if traffic has names.
struct KindOutcome {
  std::string name;
  std::uint64_t flows = 0;
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  Time end;  // end of its last flow
  Quantiles completion_us;
  Quantiles slowdown;
  double share_of_ideal = 0;
  double goodput_bits_per_second = 0;  // from the start of its first flow to the end of its last
};

struct Outcome {
  std::string variant;
  std::uint64_t seed = 0;
  std::vector<FlowOutcome> flows;
  std::vector<LinkOutcome> links;

  std::vector<KindOutcome> kinds;      // empty if traffic has no names
  std::vector<std::uint32_t> kind_of;  // by flow; empty if traffic has no names

  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  Time end;                 // end of the last flow
  Quantiles completion_us;  // completion times of flows that finished
  Quantiles slowdown;
  double share_of_ideal = 0;           // mean over finished flows of 1 / slowdown
  Quantiles latency_us;                // one-way times of flows whose receivers were told
  std::uint64_t arrivals = 0;          // number of those flows
  double goodput_bits_per_second = 0;  // payload acknowledged until the last flow's end, all flows
  std::uint64_t events = 0;
  std::uint64_t packet_hops = 0;  // data packets times links
  std::uint64_t link_traversals = 0;
  std::uint64_t dropped = 0;
  std::uint64_t lossless_dropped = 0;  // drops that flow control was to prevent
  std::uint64_t discarded = 0;         // frames that stood at the head of a queue too long
  std::uint64_t unmapped = 0;          // frames dropped because their service level had no lane
  std::uint64_t pkey_dropped = 0;     // frames that switches dropped: not of their port's partition
  std::uint64_t pkey_violations = 0;  // packets that hosts dropped: not of their QP's partition
  std::uint64_t marked = 0;
  std::uint64_t notifications = 0;
  std::uint64_t notices = 0;  // notices that switches sent about endpoints
  std::uint64_t pauses = 0;
  Time paused;
  std::uint64_t credit_stalls = 0;
  std::uint64_t retransmitted = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t buffer_bytes_max = 0;  // most bytes held by one switch
  // None if the scenario has neither faults nor a watchdog in its switches.
  std::optional<FaultOutcome> faults;
  Samples samples;                     // samples over time, if the scenario asks for them
  std::optional<StackOutcome> stacks;  // present if hosts have a kernel's stack
  // Payload bytes that arrived undamaged. None if payloads are ghosts.
  std::optional<std::uint64_t> bytes_verified;
};

struct Progress {
  Time now;
  std::uint64_t events = 0;
  std::uint64_t flows = 0;
  std::uint64_t flows_done = 0;
  double share_done = 0;  // share of the bytes
};
// Called now and then. Returns false to stop the run.
using OnProgress = std::function<bool(const Progress& progress)>;

class Run {
 public:
  // Sets the network up. The error is one line.
  static Result<std::unique_ptr<Run>> prepare(Setup setup);
  // Shows every frame that leaves a port to the capture, which must outlive the run, or to a
  // function.
  void show_to(Capture& capture);
  void show_to(std::function<void(const sim::Sending&)> told);
  // Runs all hosts and switches in the order of time, not in turns. This is slower and has the same
  // results.
  void order_by_time() { network_.order_by_time(); }
  // Runs until all flows are done, a payload is found damaged, nothing is left to happen, the time
  // of stop_at has come, or `on_progress` returns false.
  void run(const OnProgress& on_progress);
  Outcome outcome() const;
  // The error names the first flow whose bytes did not arrive as they were sent, which is a bug in
  // Tulle.
  Result<void> check_payloads() const;

 private:
  Run(Setup setup, fabric::Routes routes, fabric::Recovery recovery);
  workload::Stage stage();
  std::uint16_t pkey_index(std::uint32_t from, std::uint32_t to) const;
  workload::PathRecord path(std::uint32_t from, std::uint32_t to, std::uint8_t qos_level,
                            std::uint8_t path_bits) const;
  bool play(Time until, const OnProgress& on_progress);
  bool play_and_sample(Time until, const OnProgress& on_progress);
  Progress progress() const;
  FlowOutcome gather_flow(std::uint32_t first, std::uint32_t end) const;
  void gather_flows(Outcome& outcome) const;
  void gather_kinds(Outcome& outcome) const;
  void gather_links(Outcome& outcome) const;
  void gather_hosts(Outcome& outcome) const;
  void gather_faults(Outcome& outcome) const;
  void gather_stacks(Outcome& outcome) const;

  Setup setup_;
  fabric::Routes routes_;
  fabric::Recovery recovery_;
  fabric::Wiring wiring_;
  sim::Network network_;
  workload::Player player_;
  Sampler sampler_;
  std::uint64_t bytes_ = 0;
};

}  // namespace tulle::scenario

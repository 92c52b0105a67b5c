#pragma once

// Runs a setup and gathers what came of it. What is in the results depends on the setup alone: no
// wall-clock time, no machine.

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

// A message, whatever the number of queue pairs that share it.
struct FlowOutcome {
  workload::Flow flow;
  Time start = Time::never();    // never: it did not begin
  Time end = Time::never();      // acknowledged; never: it was not, by the end
  Time arrived = Time::never();  // the receiver was told; never: it was not
  double slowdown = 0;           // times what it takes in an empty network
  verbs::CompletionStatus status = verbs::CompletionStatus::success;
};

// One direction of a link.
struct LinkOutcome {
  std::string from, to;
  std::uint16_t port = 0;
  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;
  double utilisation = 0;  // of the time until the last flow's end
  std::uint64_t queue_bytes_max = 0;
  std::uint64_t dropped = 0;
  std::uint64_t marked = 0;
  std::uint64_t pauses = 0;  // that stopped this direction
  Time paused;
  std::uint64_t credit_stalls = 0;
  std::uint64_t lost = 0;     // frames, to faults
  std::uint64_t damaged = 0;  // frames
  std::uint64_t watchdog_trips = 0;
  std::uint64_t watchdog_dropped = 0;  // frames
};

struct Quantiles {
  double min = 0, median = 0, p99 = 0, max = 0;
};
// By the nearest rank; all 0 where there are no values.
Quantiles quantiles(std::vector<double> values);

// What hosts' kernels did.
struct StackOutcome {
  struct Host {
    std::string name;
    device::HostStack::Counters counters;
  };
  std::vector<Host> hosts;
  double cpu_seconds = 0;          // of all of them
  double cpu_seconds_per_gib = 0;  // of payload moved, of both ends together
  double busiest_core = 0;         // share of the time in which it was busy, 0 to 1
};

// What faults came to.
struct FaultOutcome {
  std::uint64_t lost = 0;        // frames
  std::uint64_t lost_bytes = 0;  // with their headers
  std::uint64_t unrouted = 0;    // of the frames lost, those that had no way left
  std::uint64_t damaged = 0;     // frames, by bit errors
  std::uint64_t watchdog_trips = 0;
  std::uint64_t watchdog_dropped = 0;  // frames
  std::uint64_t ports_paused = 0;      // that were asked to stop at any time
  // From the first fault to the last frame that one cost; zero: none was.
  Time recovery;
};

// What flows of one kind came to, where traffic has names.
struct KindOutcome {
  std::string name;
  std::uint64_t flows = 0;
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  Time end;  // of its last flow
  Quantiles completion_us;
  Quantiles slowdown;
  double share_of_ideal = 0;
  double goodput_bits_per_second = 0;  // from the first one's start until its last one's end
};

struct Outcome {
  std::string variant;
  std::uint64_t seed = 0;
  std::vector<FlowOutcome> flows;
  std::vector<LinkOutcome> links;

  std::vector<KindOutcome> kinds;      // empty: traffic has no names
  std::vector<std::uint32_t> kind_of;  // by flow; empty likewise

  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  Time end;                 // of the last flow
  Quantiles completion_us;  // of flows that finished
  Quantiles slowdown;
  double share_of_ideal = 0;           // mean over finished flows of 1 / slowdown
  Quantiles latency_us;                // one way, of flows whose receivers were told
  std::uint64_t arrivals = 0;          // of which that is
  double goodput_bits_per_second = 0;  // payload acknowledged, until the last flow's end, of all
  std::uint64_t events = 0;
  std::uint64_t packet_hops = 0;  // data packets times links
  std::uint64_t link_traversals = 0;
  std::uint64_t dropped = 0;
  std::uint64_t lossless_dropped = 0;  // where flow control was to prevent it
  std::uint64_t discarded = 0;         // frames that stood at the head of a queue too long
  std::uint64_t unmapped = 0;          // frames dropped, as their service level had no lane
  std::uint64_t pkey_dropped = 0;     // by switches: frames of a partition that is not their port's
  std::uint64_t pkey_violations = 0;  // by hosts: packets of another than their queue pair's
  std::uint64_t marked = 0;
  std::uint64_t notifications = 0;
  std::uint64_t notices = 0;  // that switches sent about endpoints
  std::uint64_t pauses = 0;
  Time paused;
  std::uint64_t credit_stalls = 0;
  std::uint64_t retransmitted = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t buffer_bytes_max = 0;  // held by one switch
  // None: the scenario has no faults.
  std::optional<FaultOutcome> faults;
  Samples samples;                     // over time, where the scenario asks for them
  std::optional<StackOutcome> stacks;  // where hosts have a kernel's stack
  // Of payloads that are bytes: how many arrived as they were sent. None: they are ghosts.
  std::optional<std::uint64_t> bytes_verified;
};

struct Progress {
  Time now;
  std::uint64_t events = 0;
  std::uint64_t flows = 0;
  std::uint64_t flows_done = 0;
  double share_done = 0;  // of the bytes
};
// Called now and then; false: stop.
using OnProgress = std::function<bool(const Progress& progress)>;

class Run {
 public:
  // Sets the network up; the error is one line.
  static Result<std::unique_ptr<Run>> prepare(Setup setup);
  // Every frame that leaves is shown to the capture, which must outlive the run; or to anyone.
  void show_to(Capture& capture);
  void show_to(std::function<void(const sim::Sending&)> told);
  // All hosts and switches in the order of time, and not in turns: slower, and the same comes of
  // it.
  void order_by_time() { network_.order_by_time(); }
  // Until all flows are done, nothing is left to happen, or it is to stop.
  void run(const OnProgress& on_progress);
  Outcome outcome() const;
  // The error names the first flow whose bytes did not arrive as they were sent: a bug of ours.
  Result<void> check_payloads() const;

 private:
  Run(Setup setup, fabric::Routes routes, fabric::Recovery recovery);
  workload::Stage stage();
  std::uint16_t pkey_index(std::uint32_t from, std::uint32_t to) const;
  workload::Path path(std::uint32_t from, std::uint32_t to, std::uint8_t qos_level,
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

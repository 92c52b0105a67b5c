#pragma once

// Plays the jobs of a setup at flow level: the tasks are played as always
// (study/workload/task_player.h), and their messages are fluids.
//
// The messages of a connection follow one another, as an adapter sends them: the next one begins
// when the last byte of the one before has left.

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "study/fluid/play.h"
#include "study/scenario/setup.h"
#include "study/workload/carrier.h"
#include "study/workload/jobs_player.h"
#include "study/workload/player.h"

namespace tulle::experiment {

class FlowJobs final : private workload::Carrier {
 public:
  // The times of a flow in an empty network, from its post on.
  struct Ideal {
    Time one_way;  // until its last byte is there
    Time whole;    // until the acknowledgement is back
  };

  // Keeps the references, which must outlive it. The play is that of the traffic, whose flows are
  // those of the setup; their starts are set here.
  FlowJobs(const scenario::Setup& setup, const std::vector<Ideal>& ideals, fluid::Traffic& traffic,
           fluid::Play& play);

  // Plays until all is done, or the setup's stop_at. `goes_on` is called now and then with the
  // number of flows that are done, and returns false to stop.
  void run(const std::function<bool(std::uint64_t done)>& goes_on);

  const workload::JobsPlayer& jobs() const { return jobs_; }
  const std::vector<workload::FlowResult>& results() const { return results_; }

 private:
  enum class What : std::uint8_t { alarm, post, arrival, completion };
  struct Event {
    Time at;
    std::uint64_t number = 0;  // events of one time happen in the order in which they were set
    What what = What::alarm;
    std::uint32_t subject = 0;  // of an alarm: its token; otherwise a flow

    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };
  struct Connection {
    bool is_busy = false;
    std::deque<std::uint32_t> waiting;  // flows
  };

  void start(Time at, std::uint32_t flow) override;
  void set(Time at, What what, std::uint32_t subject) {
    events_.push({at, next_number_++, what, subject});
  }
  workload::Stage stage();
  void handle(const Event& event);
  void post(Time now, std::uint32_t flow);
  void end_first(double now);

  const scenario::Setup& setup_;
  const std::vector<Ideal>& ideals_;
  fluid::Traffic& traffic_;
  fluid::Play& play_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_number_ = 0;
  std::uint64_t done_ = 0;
  std::vector<Connection> connections_;
  std::vector<workload::FlowResult> results_;
  workload::JobsPlayer jobs_;
};

}  // namespace tulle::experiment

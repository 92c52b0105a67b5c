#pragma once

// Moves the parts of a network through rounds that all of them have at the same time, in this
// process and in others. Between two rounds, the threads and the processes meet: what has crossed
// is taken, and the next round is chosen.

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "base/packed.h"
#include "base/time.h"
#include "sim/application.h"
#include "sim/part.h"
#include "sim/processes.h"
#include "sim/round_message.h"
#include "sim/team.h"

namespace tulle::sim {

class Synchronizer {
 public:
  using Parts = std::vector<std::unique_ptr<Part>>;

  // The parts are those of this process, in their order. Each thread of the team moves one of them;
  // null means that there is one. Null processes mean that this is the only one. All of these must
  // outlive it.
  Synchronizer(const Parts& parts, Team* team, Processes* processes);

  // Plays until nothing is left to happen until then (Network::play()).
  bool play(Time until, Application& application);
  // Returns the time of the earliest event, as of the last meeting of all processes.
  Time next_event() const;
  // Returns the part that has a round on this thread. Null means that none has.
  static Part* acting();

 private:
  struct Round {
    Time start, end;
    unsigned parity = 0;
    unsigned sent = 0;     // parity of the round before, from which crossings are to be taken
    bool is_last = false;  // nothing is to be played any more
  };
  Time length() const { return parts_.front()->round_length(); }
  std::uint32_t threads() const { return static_cast<std::uint32_t>(parts_.size()); }
  void play_rounds(Part& part, Time until, Application& application);
  void take_crossings(Part& part, Application& application);
  void meet(Time until, Application& application);
  RoundReport report(Time until, Application& application);
  Time next_event_here() const;
  bool is_next(const RoundReport& report) const;
  void exchange(RoundReport& report);
  void plan_round(Time until);

  const Parts& parts_;
  Team* team_;
  Processes* processes_;
  std::uint32_t first_part_;  // number of the first one of this process
  Round round_;
  // These have, by process, the messages of the present meeting, and what those that came contain.
  std::vector<OutgoingMessage> sent_;
  std::vector<Bytes> came_;
  std::vector<RoundMessage> messages_;
  RoundReport all_;       // what all processes have said at the last meeting, as of one
  bool has_met_ = false;  // no round has followed that meeting
  std::uint64_t events_looked_at_ = 0;  // their number when the application was last asked
  bool goes_on_ = true;
  // Exceptions on the threads, by part. One of them ends the rounds of all.
  std::vector<std::exception_ptr> failures_;
};

}  // namespace tulle::sim

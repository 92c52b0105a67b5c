#pragma once

// A rank: plays its tasks of a plan's graph over verbs, with the messages, the order and the
// channels that the graph has. Decision 030 says how.

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ranks/endpoint.h"
#include "ranks/frames.h"
#include "ranks/plan.h"

namespace tulle::ranks {

class Rank {
 public:
  // The plan must outlive this. `leader` is a socket to the process that leads the ranks.
  Rank(const Plan& plan, const Group& group, std::uint32_t rank, FrameSocket leader);

  // Plays all iterations. The error is one line without the number of the rank. Empty: the leader
  // has gone, or has said that the run is over.
  Result<void> run();
  // Tells the leader of an error.
  void report(const Error& error);

 private:
  using Index = workload::TaskGraph::Index;
  using Clock = std::chrono::steady_clock;
  struct Sending {
    Index task = 0;
    std::uint64_t bytes = 0;  // that were posted
  };
  // A flow is what is under way by a link.
  struct Flow {
    std::deque<Sending> waiting;
    std::uint64_t sent = 0;     // chunks
    std::uint32_t credits = 0;  // chunks that may be sent
    std::uint64_t taken = 0;    // chunks that came
    std::uint32_t owed = 0;     // of these, what the peer has not been told
  };

  Result<void> meet();
  Result<void> iterate(std::uint32_t iteration);
  void index_tasks();
  void reset();
  Result<void> play();
  Result<void> start(Index task);
  Result<void> pump(std::uint32_t link);
  Result<void> handle(const ibv_wc& completion);
  Result<void> take_chunk(std::uint32_t link, Index task);
  Result<void> give_back(std::uint32_t link);
  Result<void> release(Index task);
  Result<void> sleep();
  // Returns what the leader has said, if anything. An error means that the run is over.
  Result<std::optional<Frame>> take_frame();
  // Waits for a frame of the leader, who shows that it is there.
  Result<Frame> hear(FrameKind kind);
  // Returns what the leader said last, now that the run is over.
  Error hear_why();
  // Returns what a frame to the leader came to, or why the run is over if the leader has gone.
  Result<void> unless_over(const Result<void>& sent);
  Result<void> tell(FrameKind kind, std::uint64_t number);
  void show_life(FrameKind kind);

  const Plan& plan_;
  const Group& group_;
  std::uint32_t rank_;
  FrameSocket leader_;
  std::chrono::steady_clock::time_point heard_;  // when the leader last said something
  Endpoint endpoint_;
  std::vector<Flow> flows_;                     // by link
  std::vector<Index> own_;                      // this rank's tasks
  std::vector<std::uint32_t> first_dependent_;  // by task: index in dependents_
  std::vector<Index> dependents_;               // tasks of this rank
  std::vector<std::uint32_t> awaited_;          // by task
  std::vector<std::uint64_t> received_;         // by task: bytes
  std::size_t incoming_ = 0;                    // messages of the graph to this rank
  std::size_t left_ = 0;                        // messages that have not left or not come yet
  std::uint64_t wrong_ = 0;
  Clock::time_point shown_life_, progress_;
};

}  // namespace tulle::ranks

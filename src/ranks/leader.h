#pragma once

// The process that leads the ranks of a run: it hands their addresses on, has them begin each
// iteration together, and ends all as soon as one of them fails, dies or says nothing any more.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ranks/frames.h"
#include "ranks/plan.h"

namespace tulle::ranks {

class Leader {
 public:
  // `interrupts` is a descriptor that is readable once the user wants the run to end.
  Leader(const Plan& plan, const Group& group, int interrupts);

  // Takes a rank whose socket is connected. `pid` is its process on this host, or 0.
  void add(std::uint32_t rank, FrameSocket socket, pid_t pid);
  // Listens at "HOST:PORT", and takes ranks of the same work from there until all are met.
  // Strangers are held for some seconds at most, and 32 of them. `work` and `token` are as in
  // Greeting.
  Result<void> meet(const std::string& address, std::uint64_t work, const std::string& token);

  // Leads the ranks through all iterations. The error is one line.
  Result<Times> run();
  // Ends the ranks of this host and waits for them. `because` is told to the others.
  void end(const std::string& because);

 private:
  using Clock = std::chrono::steady_clock;
  struct Member {
    FrameSocket socket;
    pid_t pid = 0;
    Clock::time_point heard;
    std::optional<Frame> answer;
    bool is_met = false;
  };
  struct Stranger {
    FrameSocket socket;
    Clock::time_point since;
  };

  bool all_met() const;
  void accept_stranger(int listener, std::vector<Stranger>& strangers);
  void greet(std::vector<Stranger>& strangers, std::uint64_t work, const std::string& token);
  // Returns why this one cannot be a rank, or takes it.
  std::string admit(const Greeting& greeting, Stranger& stranger, std::uint64_t work,
                    const std::string& token);
  // Waits until each rank has sent a frame of that kind.
  Result<std::vector<Frame>> gather(FrameKind kind);
  Result<void> listen_once(FrameKind kind);
  Result<void> read(std::uint32_t rank, FrameKind kind);
  Result<void> check_silence() const;
  Result<void> tell_all(FrameKind kind);
  Result<void> hand_on_addresses();
  // Returns a line about a rank that closed its socket.
  std::string death_of(std::uint32_t rank);

  const Plan& plan_;
  const Group& group_;
  int interrupts_;
  std::vector<Member> members_;
};

}  // namespace tulle::ranks

#pragma once

// Starts ranks and leads them.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "ranks/plan.h"

namespace tulle::ranks {

// Runs all ranks as processes of this host. The error is one line. No process is left.
Result<Times> run_here(const Plan& plan, const Group& group);

// The ranks of several hosts meet at an address.
struct Meeting {
  std::string address;     // "HOST:PORT"; rank 0 listens there
  std::string token;       // 64 bytes at most; all have the same; empty: none
  std::uint64_t work = 0;  // a number of the command line's meaning, the same for all
};

// Runs one rank as a process of this host. Rank 0 leads and returns the times; the others return
// none.
Result<Times> run_rank(const Plan& plan, const Group& group, std::uint32_t rank,
                       const Meeting& meeting);

// Returns the number of the signal by which the user has ended the run, such as SIGINT, or 0.
int interrupted_by();

}  // namespace tulle::ranks

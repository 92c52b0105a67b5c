#pragma once

// The ranks that mpirun has started to simulate together. Each is a process that goes through the
// same calls. Rank 0 alone prints and writes results.

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "sim/mpi/launch.h"
#include "sim/mpi/ranks.h"

namespace tulle::study {

// There is one such object in the life of a process. It handles SIGALRM while ranks join, and
// SIGTERM later. Messages for people are on standard error.
class JoinedRanks {
 public:
  // Finds out by the environment whether mpirun has started this process. Until then, it is alone.
  // The error is of what was asked for.
  Result<void> look();
  // Returns true if mpirun has started several ranks, whether or not they have joined.
  bool are_several() const { return launch_.has_value(); }
  // Returns true unless this is a rank other than 0.
  bool is_first() const { return !launch_ || launch_->rank == 0; }

  // Brings all ranks together, if there are several. They must be one program with one command
  // line. The folder has the libraries that call an MPI; empty: there is none.
  Result<void> join(const std::string& library_folder);
  // Returns the ranks that have joined; null if this process is alone.
  mpi::Ranks* get() const { return joined_.get(); }

  // Rank 0 prints this line if it is ended from outside, as mpirun does when another rank has died.
  void print_when_ended(const std::string& line) const;
  // Waits for the other ranks at the end of the program. Returns the status of this process. A rank
  // other than 0 leaves it to rank 0 to report what has failed, which has failed as well.
  int leave(int status);
  // Ends all ranks at once, because this one cannot continue, and prints why. Returns if this
  // process is alone.
  void abort(const std::string& message);

 private:
  std::optional<mpi::Launch> launch_;
  std::unique_ptr<mpi::Ranks> joined_;
};

}  // namespace tulle::study

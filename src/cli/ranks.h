#pragma once

// The ranks that mpirun has started to simulate together. Each is a process that goes through the
// same command. Rank 0 alone prints and writes.

#include <string>

#include "base/result.h"
#include "sim/mpi/ranks.h"

namespace tulle::cli {

// Finds out whether mpirun has started this process. If so, ranks other than 0 say nothing from now
// on. Called before the command line is read, for the commands that simulate.
Result<void> look_for_ranks();
// Returns true if mpirun has started several ranks, whether or not they have joined.
bool has_ranks();
// Returns true unless this is a rank other than 0. Such a rank leaves it to rank 0 to speak.
bool is_first_rank();

// Brings all ranks together, if mpirun has started several. They must be one program with one
// command line. Called once, before ranks().
Result<void> join_ranks();
// Returns the ranks; null if this process is alone.
mpi::Ranks* ranks();
// Rank 0 prints this line if it is ended from outside, as mpirun does when another rank has died.
void say_when_ended(const std::string& line);

// Returns an error message: what makes points does not run under mpirun.
std::string no_ranks_for(const std::string& what);

// Called at the end of the program: waits for the other ranks. Returns the status of this process.
// A rank other than 0 leaves it to rank 0 to say what has failed, which has failed as well.
int leave_ranks(int status);
// Ends all ranks at once, because this one cannot continue, and says why. Returns 1 without ranks.
int fail_all_ranks(const std::string& message);

}  // namespace tulle::cli

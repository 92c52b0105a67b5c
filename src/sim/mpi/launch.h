#pragma once

// Finds out whether an MPI launcher has started this process, and which one, from the variables
// that launchers set.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tulle::mpi {

enum class Library : std::uint8_t { open_mpi, mpich };
// Returns the name of the library for people, and that of the file that speaks to it.
std::string_view name_of(Library library);
std::string_view file_of(Library library);

struct Launch {
  Library library{};
  std::uint32_t rank = 0;
  std::uint32_t size = 0;  // at least 2
  // False if the launcher says that another rank is the first one on this host.
  bool is_first_on_host = true;
};

// Returns the value of a variable of the environment, or null.
using Variable = std::function<const char*(const char* name)>;

// Returns how this process was started, or nothing if it was started by itself: by no launcher, as
// the only rank, or with TULLE_MPI=none. The error, of one line, names a variable that makes no
// sense.
//
// These are the variables: Open MPI's mpirun sets OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE.
// MPICH's, and a batch system with PMI-1 or PMI-2, set PMI_RANK and PMI_SIZE. One with PMIx sets
// PMIX_RANK, and Slurm the number of ranks (SLURM_STEP_NUM_TASKS): either MPI may then be meant,
// and Open MPI is unless TULLE_MPI says mpich.
Result<std::optional<Launch>> launch_of(const Variable& variable);

// Returns true if a process of root or of this user, from which this one descends without others in
// between, is an MPI launcher. `processes` is /proc, or a test's.
bool is_below_launcher(const std::string& processes = "/proc");

}  // namespace tulle::mpi

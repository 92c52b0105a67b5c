#include "mpi/launch.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/quoted.h"

namespace tulle::mpi {
namespace {

struct Launcher {
  Library library;
  const char* rank;
  const char* size;
  const char* rank_on_host;
};

// The first one whose variables are there counts. Open MPI's mpirun also sets PMIx's.
constexpr std::array launchers = {
    Launcher{Library::open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK"},
    Launcher{Library::mpich, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    Launcher{Library::open_mpi, "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};

std::optional<std::uint32_t> number_in(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number ? std::optional(number) : std::nullopt;
}

Error no_rank(const Launcher& launcher, const char* rank, const char* size) {
  return Error{fmt::format(
      "{} is {} and {} is {}, which no mpirun has set: unset them, or set TULLE_MPI=none",
      launcher.rank, tulle::quoted(rank), launcher.size, tulle::quoted(size))};
}

}  // namespace

std::string_view name_of(Library library) {
  return library == Library::open_mpi ? "Open MPI" : "MPICH";
}

std::string_view file_of(Library library) {
  return library == Library::open_mpi ? "libtulle_openmpi.so" : "libtulle_mpich.so";
}

Result<std::optional<Launch>> launch_of(const Variable& variable) {
  const char* chosen = variable("TULLE_MPI");
  const std::string_view choice = chosen == nullptr ? "" : chosen;
  if (choice == "none") return std::optional<Launch>();
  if (!choice.empty() && choice != "openmpi" && choice != "mpich") {
    return Error{fmt::format("TULLE_MPI is {}: it may be openmpi, mpich or none",
                             tulle::quoted(std::string(choice)))};
  }
  for (const Launcher& launcher : launchers) {
    const char* rank = variable(launcher.rank);
    const char* size = variable(launcher.size);
    if (rank == nullptr || size == nullptr) continue;
    const auto ranks = number_in(size), number = number_in(rank);
    if (!ranks || !number || *number >= *ranks) return no_rank(launcher, rank, size);
    if (*ranks == 1) return std::optional<Launch>();
    Library library = launcher.library;
    if (!choice.empty()) library = choice == "openmpi" ? Library::open_mpi : Library::mpich;
    const char* on_host = variable(launcher.rank_on_host);
    if (on_host == nullptr) on_host = variable("SLURM_LOCALID");
    const bool is_first = on_host == nullptr || std::string_view(on_host) == "0";
    return std::optional(Launch{library, *number, *ranks, is_first});
  }
  return std::optional<Launch>();
}

}  // namespace tulle::mpi

#include "sim/mpi/launch.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>

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

bool is_below_launcher(const std::string& processes) {
  namespace fs = std::filesystem;
  constexpr std::array<std::string_view, 13> names = {
      "mpirun",     "mpiexec",    "orterun",       "orted",           "prte",
      "prterun",    "prted",      "mpiexec.hydra", "hydra_pmi_proxy", "hydra_bstrap_proxy",
      "slurmstepd", "flux-shell", "palsd"};
  constexpr int generations_max = 64;
  std::string process = "self";
  for (int i = 0; i < generations_max; ++i) {
    std::string line;
    std::getline(std::ifstream(fs::path(processes) / process / "stat"), line);
    // "PID (name) S PARENT ...", where the name may have anything in it.
    const std::size_t name_end = line.rfind(')');
    if (name_end == std::string::npos || name_end + 4 >= line.size()) return false;
    const std::size_t begin = name_end + 4;
    process = line.substr(begin, line.find(' ', begin) - begin);
    struct stat its {};
    const fs::path folder = fs::path(processes) / process;
    if (process == "0" || stat(folder.c_str(), &its) != 0) return false;
    if (its.st_uid != 0 && its.st_uid != geteuid()) return false;
    std::error_code error;
    const std::string program = fs::read_symlink(folder / "exe", error).filename().string();
    const auto is_it = [&program](std::string_view name) {
      return program == name || program.starts_with(std::string(name) + ".");
    };
    if (!error && std::ranges::any_of(names, is_it)) return true;
  }
  return false;
}

}  // namespace tulle::mpi

#include "sim/mpi/launch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/folder_test.h"

namespace tulle::mpi {
namespace {

using Environment = std::map<std::string, const char*>;

Result<std::optional<Launch>> launch_in(const Environment& environment) {
  return launch_of([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second;
  });
}

// The environments are those that Open MPI 4.1 and MPICH 4.0 make, and Slurm as its documents say.
TEST(Launch, IsKnownByTheVariablesOfItsLauncher) {
  struct Row {
    Environment environment;
    Library library;
    std::uint32_t rank, size;
  };
  const Row table[] = {
      {{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}},
       Library::open_mpi,
       1,
       2},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"PMI_FD", "6"}}, Library::mpich, 0, 4},
      {{{"PMIX_RANK", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}}, Library::open_mpi, 3, 4},
      {{{"PMIX_RANK", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"TULLE_MPI", "mpich"}},
       Library::mpich,
       3,
       4},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"TULLE_MPI", "openmpi"}}, Library::open_mpi, 0, 4},
  };
  for (const auto& [environment, library, rank, size] : table) {
    auto launch = launch_in(environment);
    ASSERT_TRUE(launch && *launch) << environment.begin()->first;
    EXPECT_EQ((*launch)->library, library);
    EXPECT_EQ((*launch)->rank, rank);
    EXPECT_EQ((*launch)->size, size);
  }
}

TEST(Launch, OneRankOfEachHostIsTheFirst) {
  Environment environment{{"PMI_RANK", "4"}, {"PMI_SIZE", "8"}};
  EXPECT_TRUE((*launch_in(environment))->is_first_on_host);
  environment["MPI_LOCALRANKID"] = "0";
  EXPECT_TRUE((*launch_in(environment))->is_first_on_host);
  environment["MPI_LOCALRANKID"] = "1";
  EXPECT_FALSE((*launch_in(environment))->is_first_on_host);
}

// A job of a batch system that has not started this process by itself sets SLURM_ variables only.
TEST(Launch, IsNoneOfAProcessByItself) {
  const Environment table[] = {
      {},
      {{"TULLE_MPI", ""}},
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
      {{"OMPI_COMM_WORLD_SIZE", "2"}},
      {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}},
      {{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"TULLE_MPI", "none"}},
  };
  for (const Environment& environment : table) {
    auto launch = launch_in(environment);
    ASSERT_TRUE(launch);
    EXPECT_FALSE(*launch);
  }
}

TEST(Launch, NonsenseIsNamedInOneLine) {
  for (const char* rank : {"", "x", "-1", "1x", " 1", "2", "3", "99999999999", "0x1"}) {
    auto launch = launch_in({{"PMI_RANK", rank}, {"PMI_SIZE", "2"}});
    ASSERT_FALSE(launch) << rank;
    EXPECT_TRUE(launch.error().message.starts_with("PMI_RANK is \"")) << launch.error().message;
  }
  for (const char* size : {"", "x", "0", "4294967296", "1\n2"}) {
    auto launch = launch_in({{"PMI_RANK", "0"}, {"PMI_SIZE", size}});
    ASSERT_FALSE(launch) << size;
    EXPECT_EQ(launch.error().message.find('\n'), std::string::npos);
  }
  auto launch = launch_in({{"TULLE_MPI", "/tmp/evil.so"}});
  ASSERT_FALSE(launch);
  EXPECT_EQ(launch.error().message,
            "TULLE_MPI is \"/tmp/evil.so\": it may be openmpi, mpich or none");
}

// A process of a folder that looks like /proc.
void put(const std::filesystem::path& processes, const std::string& process, int parent,
         const std::string& program) {
  namespace fs = std::filesystem;
  fs::create_directories(processes / process);
  std::ofstream(processes / process / "stat") << process << " (a) name) S " << parent << " 1 1\n";
  fs::create_symlink("/usr/bin/" + program, processes / process / "exe");
}

// su keeps the variables of a launcher, and the launcher above su is another user's.
TEST(Launch, ALauncherMustBeAmongTheAncestors) {
  for (const char* launcher : {"mpirun", "prterun", "mpiexec.hydra", "orted", "mpirun.openmpi"}) {
    const Folder folder;
    const std::filesystem::path processes = folder.path();
    put(processes, "self", 20, "tulle");
    put(processes, "20", 10, "bash");
    put(processes, "10", 1, launcher);
    put(processes, "1", 0, "systemd");
    EXPECT_TRUE(is_below_launcher(processes)) << launcher;
    std::filesystem::remove(processes / "10/exe");
    std::filesystem::create_symlink("/usr/bin/su", processes / "10/exe");
    EXPECT_FALSE(is_below_launcher(processes));
    if (geteuid() != 0) continue;
    std::filesystem::remove(processes / "10/exe");
    std::filesystem::create_symlink(std::string("/usr/bin/") + launcher, processes / "10/exe");
    ASSERT_EQ(chown((processes / "20").c_str(), 65'533, 65'533), 0);
    EXPECT_FALSE(is_below_launcher(processes)) << "another user's process is in between";
  }
  const Folder empty;
  EXPECT_FALSE(is_below_launcher(empty.path()));
}

}  // namespace
}  // namespace tulle::mpi

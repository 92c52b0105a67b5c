#include "sim/mpi/ranks.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>
#include <stdexcept>

#include "base/own_group.h"
#include "base/quoted.h"

namespace tulle::mpi {
namespace {

// Returns false if somebody else than root, this user, or the owner of this program could have
// chosen what is in the file.
bool is_trusted(const std::string& path) {
  struct stat file {
  }, program{};
  if (stat(path.c_str(), &file) != 0 || stat("/proc/self/exe", &program) != 0) return false;
  const bool is_ours =
      file.st_uid == 0 || file.st_uid == geteuid() || file.st_uid == program.st_uid;
  const bool is_groups = (file.st_mode & S_IWGRP) != 0 && !is_own_group(file.st_gid);
  return is_ours && S_ISREG(file.st_mode) && !is_groups && (file.st_mode & S_IWOTH) == 0;
}

static_assert(sim::Processes::pieces_max == TULLE_MPI_PIECES_MAX);

struct Rooms {
  std::vector<Bytes>& from;
  std::exception_ptr thrown;
};

// Exceptions cannot pass through the library, which is written in C.
void* room_for(void* context, std::uint32_t rank, std::uint64_t bytes) {
  auto& rooms = *static_cast<Rooms*>(context);
  if (bytes > Ranks::message_bytes_max) return nullptr;
  try {
    rooms.from[rank].clear();  // nothing of it has to be kept if it grows
    rooms.from[rank].resize(bytes);
  } catch (...) {
    rooms.thrown = std::current_exception();
    return nullptr;
  }
  return rooms.from[rank].data();
}

}  // namespace

Result<std::unique_ptr<Ranks>> Ranks::join(const std::string& folder, const Launch& launch) {
  const std::string path = folder + "/" + std::string(file_of(launch.library));
  if (access(path.c_str(), R_OK) != 0) {
    return Error{fmt::format(
        "{} has started {} ranks, but {} is missing: install {}'s headers, run cmake again in the "
        "build folder (`cmake build`) and build, or set TULLE_MPI=none",
        name_of(launch.library), launch.size, path, name_of(launch.library))};
  }
  if (!is_trusted(path)) {
    return Error{
        fmt::format("{} is not loaded, because other users may have changed it: try "
                    "`chmod go-w`, or see whose it is",
                    path)};
  }
  // The MPI library loads parts of itself, which look for its functions among all.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return Error{fmt::format("cannot load {}: {}", path, dlerror())};
  const auto begin = reinterpret_cast<tulle_mpi_begin_function>(dlsym(library, TULLE_MPI_BEGIN));
  const tulle_mpi* mpi = begin == nullptr ? nullptr : begin(TULLE_MPI_VERSION);
  if (mpi == nullptr) {
    return Error{fmt::format("{} cannot be started: is {} of this version of Tulle?",
                             name_of(launch.library), path)};
  }
  std::unique_ptr<Ranks> ranks(new Ranks(*mpi));
  if (mpi->any_thread == 0) {
    return Error{fmt::format("{} was built without support of threads, which Tulle needs",
                             name_of(launch.library))};
  }
  if (mpi->size == launch.size && mpi->rank == launch.rank) return ranks;
  return Error{
      fmt::format("{} reports {} here, but the environment says {}: start Tulle with the "
                  "mpirun of one "
                  "MPI, or set TULLE_MPI",
                  name_of(launch.library),
                  mpi->size == 1 ? "one rank" : fmt::format("{} ranks", mpi->size), launch.size)};
}

Ranks::~Ranks() { mpi_.end(); }

void Ranks::exchange_pieces(const std::vector<sim::Pieces>& to, std::vector<Bytes>& from) {
  std::vector<tulle_mpi_piece> pieces;
  for (const sim::Pieces& message : to) {
    for (const std::span<const std::byte> piece : message) {
      pieces.push_back({piece.data(), piece.size()});
    }
  }
  std::vector<tulle_mpi_message> messages;
  const tulle_mpi_piece* next = pieces.data();
  for (const sim::Pieces& message : to) {
    messages.push_back({next, message.size()});
    next += message.size();
  }
  Rooms rooms{from, {}};
  const char* failed = mpi_.exchange(messages.data(), room_for, &rooms);
  if (rooms.thrown) std::rethrow_exception(rooms.thrown);
  if (failed != nullptr) {
    throw std::runtime_error(fmt::format("cannot reach other ranks: {}", one_line(failed)));
  }
}

void Ranks::watch(std::uint32_t seconds, tulle_mpi_silence told) {
  mpi_.watch(std::uint64_t{seconds} * 1'000'000'000, told);
}

void Ranks::abort(int status) {
  mpi_.abort(status);
  std::_Exit(status);
}

}  // namespace tulle::mpi

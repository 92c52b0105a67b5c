#pragma once

// The processes that mpirun has started, which MPI calls ranks.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/packed.h"
#include "base/result.h"
#include "sim/mpi/launch.h"
#include "sim/mpi/plugin.h"
#include "sim/processes.h"

namespace tulle::mpi {

class Ranks final : public sim::Processes {
 public:
  // A message that is longer is refused: 64 GiB.
  static constexpr std::uint64_t message_bytes_max = 1ull << 36;

  // Loads the library that speaks to the MPI of the launch, from this folder, and starts MPI. There
  // can be one such object in the life of a process. The error is one line.
  static Result<std::unique_ptr<Ranks>> join(const std::string& folder, const Launch& launch);
  ~Ranks() override;  // waits for the other ranks
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  std::uint32_t number() const override { return mpi_.rank; }
  std::uint32_t count() const override { return mpi_.size; }
  void exchange_pieces(const std::vector<sim::Pieces>& to, std::vector<Bytes>& from) override;

  // Sets a function that is called once in each exchange that waits for so many seconds, with the
  // ranks for which it waits, in rising order. The exchange continues to wait.
  void watch(std::uint32_t seconds, tulle_mpi_silence told);
  // Ends all ranks at once.
  [[noreturn]] void abort(int status);

 private:
  explicit Ranks(const tulle_mpi& mpi) : mpi_(mpi) {}

  const tulle_mpi& mpi_;
};

}  // namespace tulle::mpi

// Ranks that mpirun has started send each other messages of pieces of any length, again and again,
// and check every byte. Usage: mpirun -n N mpi_pieces FOLDER, where FOLDER has the libraries that
// speak to MPI. Each rank prints "ok".

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/random.h"
#include "sim/mpi/launch.h"
#include "sim/mpi/ranks.h"

namespace {

using tulle::Bytes;

constexpr std::uint32_t rounds = 300;
// A message of up to 3,700 bytes goes with the first one between two ranks.
constexpr std::size_t lengths[] = {0,     1,     63,    64,     1'850,  3'699,
                                   3'700, 3'701, 4'096, 20'000, 300'000};

// Returns the pieces that a rank sends to another one in a round, as both of them know.
std::vector<Bytes> pieces_of(std::uint32_t round, std::uint32_t from, std::uint32_t to) {
  tulle::Random random(std::uint64_t{round} << 32 | from << 16 | to);
  std::vector<Bytes> pieces(random.below(tulle::sim::Processes::pieces_max + 1));
  for (Bytes& piece : pieces) {
    // Most are short, so that some messages are short altogether.
    piece.resize(lengths[random.below(round % 3 == 0 ? 3 : std::size(lengths))]);
    for (std::byte& byte : piece) byte = static_cast<std::byte>(random.next());
  }
  return pieces;
}

void exchange(tulle::mpi::Ranks& ranks, std::uint32_t round, std::vector<Bytes>& from) {
  std::vector<std::vector<Bytes>> sent(ranks.count());
  std::vector<tulle::sim::Pieces> to(ranks.count());
  for (std::uint32_t rank = 0; rank < ranks.count(); ++rank) {
    if (rank == ranks.number()) continue;
    sent[rank] = pieces_of(round, ranks.number(), rank);
    to[rank].assign(sent[rank].begin(), sent[rank].end());
  }
  ranks.exchange_pieces(to, from);
  for (std::uint32_t rank = 0; rank < ranks.count(); ++rank) {
    if (rank == ranks.number()) continue;
    Bytes expected;
    for (const Bytes& piece : pieces_of(round, rank, ranks.number())) {
      expected.insert(expected.end(), piece.begin(), piece.end());
    }
    if (from[rank] == expected) continue;
    std::fprintf(stderr, "round %u: what came from rank %u differs (%zu bytes)\n", round, rank,
                 from[rank].size());
    std::_Exit(1);
  }
}

}  // namespace

int main(int count, char** arguments) {
  auto launch = tulle::mpi::launch_of([](const char* name) { return std::getenv(name); });
  if (count != 2 || !launch || !*launch) {
    std::fprintf(stderr, "usage: mpirun -n N mpi_pieces FOLDER\n");
    return 2;
  }
  auto ranks = tulle::mpi::Ranks::join(arguments[1], **launch);
  if (!ranks) {
    std::fprintf(stderr, "%s\n", ranks.error().message.c_str());
    return 1;
  }
  std::vector<Bytes> from((*ranks)->count());
  for (std::uint32_t round = 0; round < rounds; ++round) exchange(**ranks, round, from);
  std::puts("ok");
  return 0;
}

// Runs a ring, an all-to-all, an all-reduce and one-sided access among all ranks, each in sizes
// from a few bytes to those that take a rendezvous. Every byte is checked. Rank 0 prints one line
// at the end.

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks;

static void* allocate(size_t bytes) {
  void* memory = malloc(bytes > 0 ? bytes : 1);
  if (memory == NULL) {
    fprintf(stderr, "rank %d: no memory for %zu bytes\n", rank, bytes);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return memory;
}

// Returns the word that `from` sends to `to` in round `round`, at `index`. Words close to one
// another differ.
static uint32_t pattern(int from, int to, int round, size_t index) {
  uint32_t x =
      (uint32_t)(from * 1000003 + to * 7919 + round * 104729) + (uint32_t)index * 2654435761u;
  x ^= x >> 15;
  return x * 2246822519u;
}

static void expect(const char* what, int from, size_t words, size_t index, uint64_t wanted,
                   uint64_t found) {
  if (wanted == found) return;
  fprintf(stderr, "rank %d: %s of %zu words: word %zu from rank %d is %llx instead of %llx\n", rank,
          what, words, index, from, (unsigned long long)found, (unsigned long long)wanted);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// Every rank sends to the right and receives from the left, until each rank's block has come
// around.
static void ring(size_t words) {
  uint32_t* out = allocate(words * sizeof *out);
  uint32_t* in = allocate(words * sizeof *in);
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  for (size_t i = 0; i < words; ++i) out[i] = pattern(rank, 0, 1, i);
  for (int hop = 1; hop <= ranks; ++hop) {
    MPI_Sendrecv(out, (int)words, MPI_UINT32_T, right, hop, in, (int)words, MPI_UINT32_T, left, hop,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const int origin = (rank + ranks - hop) % ranks;
    for (size_t i = 0; i < words; ++i) {
      expect("ring", origin, words, i, pattern(origin, 0, 1, i), in[i]);
      out[i] = in[i];
    }
  }
  free(out);
  free(in);
}

static void all_to_all(size_t words) {
  const size_t total = words * (size_t)ranks;
  uint32_t* out = allocate(total * sizeof *out);
  uint32_t* in = allocate(total * sizeof *in);
  for (size_t i = 0; i < total; ++i) {
    out[i] = pattern(rank, (int)(i / words), 2, i % words);
    in[i] = 0;
  }
  MPI_Alltoall(out, (int)words, MPI_UINT32_T, in, (int)words, MPI_UINT32_T, MPI_COMM_WORLD);
  for (size_t i = 0; i < total; ++i) {
    const int from = (int)(i / words);
    expect("all-to-all", from, words, i % words, pattern(from, rank, 2, i % words), in[i]);
  }
  free(out);
  free(in);
}

static void all_reduce(size_t words) {
  uint64_t* out = allocate(words * sizeof *out);
  uint64_t* in = allocate(words * sizeof *in);
  for (size_t i = 0; i < words; ++i) out[i] = pattern(rank, 0, 3, i);
  MPI_Allreduce(out, in, (int)words, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  for (size_t i = 0; i < words; ++i) {
    uint64_t sum = 0;
    for (int from = 0; from < ranks; ++from) sum += pattern(from, 0, 3, i);
    expect("all-reduce", rank, words, i, sum, in[i]);
  }
  free(out);
  free(in);
}

// One-sided access: every rank puts a block into its right neighbour's window and gets it back, and
// all ranks count in one word of rank 0.
static void one_sided(size_t words) {
  uint32_t* memory = NULL;
  MPI_Win window;
  const MPI_Aint bytes = (MPI_Aint)((words + 2) * sizeof *memory);
  MPI_Win_allocate(bytes, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  for (size_t i = 0; i < words + 2; ++i) memory[i] = 0;
  uint32_t* block = allocate(words * sizeof *block);
  for (size_t i = 0; i < words; ++i) block[i] = pattern(rank, right, 4, i);
  MPI_Win_fence(0, window);
  MPI_Put(block, (int)words, MPI_UINT32_T, right, 2, (int)words, MPI_UINT32_T, window);
  MPI_Win_fence(0, window);
  for (size_t i = 0; i < words; ++i) {
    expect("put", left, words, i, pattern(left, rank, 4, i), memory[i + 2]);
    block[i] = 0;
  }
  MPI_Win_fence(0, window);
  MPI_Get(block, (int)words, MPI_UINT32_T, right, 2, (int)words, MPI_UINT32_T, window);
  const uint32_t one = 1;
  MPI_Accumulate(&one, 1, MPI_UINT32_T, 0, 0, 1, MPI_UINT32_T, MPI_SUM, window);
  MPI_Win_fence(0, window);
  for (size_t i = 0; i < words; ++i) {
    expect("get", right, words, i, pattern(rank, right, 4, i), block[i]);
  }
  if (rank == 0) expect("accumulate", 0, 1, 0, (uint64_t)ranks, memory[0]);
  free(block);
  MPI_Win_free(&window);
}

// Returns to rank 0 the number of network namespaces among which the ranks are spread.
static int networks(void) {
  enum { name_bytes = 64 };
  char mine[name_bytes] = {0};
  if (readlink("/proc/self/ns/net", mine, sizeof mine - 1) < 0) MPI_Abort(MPI_COMM_WORLD, 2);
  char* all = allocate((size_t)ranks * name_bytes);
  MPI_Gather(mine, name_bytes, MPI_CHAR, all, name_bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
  int distinct = 0;
  for (int i = 0; rank == 0 && i < ranks; ++i) {
    int j = 0;
    while (strcmp(all + i * name_bytes, all + j * name_bytes) != 0) ++j;
    distinct += i == j;
  }
  free(all);
  return distinct;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  static const size_t sizes[] = {1, 7, 256, 2049, 65536, 300001};
  const size_t count = sizeof sizes / sizeof *sizes;
  for (size_t i = 0; i < count; ++i) {
    ring(sizes[i]);
    all_to_all(sizes[i]);
    all_reduce(sizes[i]);
    one_sided(sizes[i]);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const int spread = networks();
  if (rank == 0) printf("ok: %d ranks in %d networks, %zu sizes\n", ranks, spread, count);
  MPI_Finalize();
  return 0;
}

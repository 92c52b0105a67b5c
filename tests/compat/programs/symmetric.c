// OpenSHMEM: every rank puts words into every other rank's symmetric memory, gets them back, and
// counts with atomics. Every word is checked. Rank 0 prints one line at the end.

#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { words = 20011 };

static int rank, ranks;

static long pattern(int from, int to, int index) {
  return (long)from * 1000003 + (long)to * 7919 + (long)index * 31 + 1;
}

static void expect(const char* what, int index, long wanted, long found) {
  if (wanted == found) return;
  fprintf(stderr, "rank %d: %s: word %d is %ld instead of %ld\n", rank, what, index, found, wanted);
  shmem_global_exit(1);
}

int main(void) {
  shmem_init();
  rank = shmem_my_pe();
  ranks = shmem_n_pes();
  // One block for each rank to write into, and one counter.
  long* blocks = shmem_malloc((size_t)ranks * words * sizeof *blocks);
  long* counter = shmem_malloc(sizeof *counter);
  long* local = malloc(words * sizeof *local);
  if (blocks == NULL || counter == NULL || local == NULL) shmem_global_exit(2);
  for (int i = 0; i < ranks * words; ++i) blocks[i] = 0;
  *counter = 0;
  shmem_barrier_all();

  for (int to = 0; to < ranks; ++to) {
    for (int i = 0; i < words; ++i) local[i] = pattern(rank, to, i);
    shmem_long_put(blocks + (size_t)rank * words, local, words, to);
    shmem_quiet();
  }
  const long each = 500;
  for (long i = 0; i < each; ++i) shmem_long_atomic_inc(counter, 0);
  shmem_barrier_all();

  for (int from = 0; from < ranks; ++from) {
    for (int i = 0; i < words; ++i) {
      expect("put", i, pattern(from, rank, i), blocks[from * words + i]);
    }
  }
  const int right = (rank + 1) % ranks;
  shmem_long_get(local, blocks + (size_t)rank * words, words, right);
  for (int i = 0; i < words; ++i) expect("get", i, pattern(rank, right, i), local[i]);
  expect("atomic increments", 0, each * ranks, shmem_long_atomic_fetch(counter, 0));
  shmem_barrier_all();

  // Each rank takes its turn, by compare and swap.
  const long turn = each * ranks + rank;
  while (shmem_long_atomic_compare_swap(counter, turn, turn + 1, 0) != turn) {
  }
  shmem_barrier_all();
  expect("compare and swap", 0, each * ranks + ranks, shmem_long_atomic_fetch(counter, 0));
  shmem_barrier_all();
  if (rank == 0) printf("ok: %d ranks, %d words\n", ranks, words);
  shmem_finalize();
  return 0;
}

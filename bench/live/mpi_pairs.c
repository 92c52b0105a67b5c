// Two ranks of an MPI job send to each other, as OSU's latency and bandwidth tests do. The program
// prints {"latency_us", "gb_per_second"}: half a round trip of `bytes`, the median of all, and the
// rate of windows of 64 messages of them, each window acknowledged by one message.
//
//   mpi_pairs BYTES ITERATIONS

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { window = 64, warm_up = 200 };

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double latency_us(int rank, char* bytes, int count, int iterations) {
  double* times = malloc((size_t)iterations * sizeof *times);
  for (int i = -warm_up; i < iterations; ++i) {
    const double start = MPI_Wtime();
    if (rank == 0) {
      MPI_Send(bytes, count, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
      MPI_Recv(bytes, count, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(bytes, count, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(bytes, count, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
    if (i >= 0) times[i] = (MPI_Wtime() - start) / 2 * 1e6;
  }
  qsort(times, (size_t)iterations, sizeof *times, compare);
  const double median = times[iterations / 2];
  free(times);
  return median;
}

static double gb_per_second(int rank, char* bytes, int count, int iterations) {
  MPI_Request requests[window];
  double start = 0;
  const int windows = iterations / window + 1;
  for (int i = -4; i < windows; ++i) {
    if (i == 0) start = MPI_Wtime();
    for (int k = 0; k < window; ++k) {
      if (rank == 0) {
        MPI_Isend(bytes, count, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &requests[k]);
      } else {
        MPI_Irecv(bytes, count, MPI_CHAR, 0, 2, MPI_COMM_WORLD, &requests[k]);
      }
    }
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    char done = 0;
    if (rank == 0) {
      MPI_Recv(&done, 1, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Send(&done, 1, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
    }
  }
  return (double)count * window * windows / (MPI_Wtime() - start) * 1e-9;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int count = argc > 2 ? atoi(argv[1]) : 0;
  const int iterations = argc > 2 ? atoi(argv[2]) : 0;
  if (ranks != 2 || count < 1 || iterations < 1) {
    if (rank == 0) fprintf(stderr, "usage: two ranks of mpi_pairs BYTES ITERATIONS\n");
    MPI_Finalize();
    return 2;
  }
  char* bytes = malloc((size_t)count);
  memset(bytes, 1, (size_t)count);
  const double us = latency_us(rank, bytes, count, iterations);
  const double rate = gb_per_second(rank, bytes, count, iterations);
  if (rank == 0) printf("{\"latency_us\": %.4f, \"gb_per_second\": %.4f}\n", us, rate);
  free(bytes);
  MPI_Finalize();
  return 0;
}

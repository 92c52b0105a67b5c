/*
 * The interface between `tulle` and the small libraries that call an MPI library. There is one such
 * library for Open MPI and one for MPICH, since each MPI has its own ABI. `tulle` loads one of them
 * only if mpirun has started it, and so needs no MPI otherwise.
 */
#ifndef TULLE_MPI_PLUGIN_H
#define TULLE_MPI_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. It changes with every change here. */
#define TULLE_MPI_VERSION 3u

/* The maximum number of pieces of a message. */
#define TULLE_MPI_PIECES_MAX 32

struct tulle_mpi_piece {
  const void* bytes;
  uint64_t count;
};

struct tulle_mpi_message {
  const struct tulle_mpi_piece* pieces;
  uint64_t count; /* of pieces */
};

/* Returns where so many bytes from a rank are to go, or null if they are refused. */
/* NOLINTNEXTLINE(modernize-use-using): this is C. */
typedef void* (*tulle_mpi_room)(void* context, uint32_t rank, uint64_t bytes);

/*
 * Is called with the ranks, in rising order and at least one, for which this one has waited as long
 * as set by watch(). A rank among them may itself wait for another one.
 */
/* NOLINTNEXTLINE(modernize-use-using): this is C. */
typedef void (*tulle_mpi_silence)(const uint32_t* ranks, uint32_t count);

struct tulle_mpi {
  uint32_t rank;
  uint32_t size;
  uint32_t any_thread; /* 1: any thread may call, one at a time; 0: only the one that began */
  /*
   * Sends to[r] to each other rank r, and takes what each has sent. All ranks call it as often as
   * each other. Returns null, or a line that says what has failed, which stays valid.
   */
  const char* (*exchange)(const struct tulle_mpi_message* to, tulle_mpi_room room, void* context);
  /*
   * Sets a function that is called once in each exchange() that waits for so many nanoseconds, with
   * the ranks for which it waits. The exchange continues to wait.
   */
  void (*watch)(uint64_t nanoseconds, tulle_mpi_silence told);
  void (*end)(void);
  void (*abort)(int status); /* ends all ranks, and does not return */
};

/* Starts MPI. Returns null if that fails, or if the caller has another version of this. */
/* NOLINTNEXTLINE(modernize-use-using): this is C. */
typedef const struct tulle_mpi* (*tulle_mpi_begin_function)(uint32_t version);
#define TULLE_MPI_BEGIN "tulle_mpi_begin"

#ifdef __cplusplus
}
#endif

#endif

#pragma once

/* The page that a program shares with the driver of tests/chaos: what the program counts, and what
   the driver asks for. It outlives a kill, and costs the program no system call.
   tests/chaos/page.py reads the lists of this file, so that each of them exists once. */

#include <stdint.h>

/* clang-format off */
#define PAGE_FIELDS(FIELD)                                                                         \
  FIELD(pid)                 /* the process that writes here */                                    \
  FIELD(step)                /* the number of what it does, a row of PAGE_STEPS */                 \
  FIELD(sessions)            /* connections that were made */                                      \
  FIELD(rounds)              /* rounds in which each operation succeeded on both sides */          \
  FIELD(operations)          /* operations that completed with success */                          \
  FIELD(failed_operations)   /* operations that completed with an error */                         \
  FIELD(kilobytes_verified)                                                                        \
  FIELD(wrong_bytes)         /* bytes that no operation may have placed */                         \
  FIELD(false_successes)     /* successes whose bytes or whose receive are not there */            \
  FIELD(bad_completions)     /* completions with a wrong number, order, opcode or length */        \
  FIELD(refusals)            /* calls that make something and failed */                            \
  FIELD(undestroyed)         /* objects that could not be destroyed */                             \
  FIELD(longest_ns)          /* the longest call since the driver stored 0 here */                 \
  FIELD(longest_call)        /* its number, a row of PAGE_CALLS */                                 \
  FIELD(interrupted)         /* driver: odd while it interrupts this process itself */             \
  FIELD(agent)               /* driver: the host agent's process */                                \
  FIELD(peer)                /* driver: the peer's process */                                      \
  FIELD(command)             /* driver: a row of PAGE_COMMANDS; the program stores 0 */            \
  FIELD(argument)            /* driver: the memory that a command means, 0 to 2 */                 \
  FIELD(microseconds)        /* driver: how long a command's effect lasts */                       \
  FIELD(peer_may_lose)       /* driver: 1 while the peer may be without memory that it had */      \
  FIELD(allocations_left)    /* driver: allocations that succeed before some fail; 0: all do */    \
  FIELD(allocations_to_fail) /* driver: how many then fail */                                      \
  FIELD(allocations_failed)

#define PAGE_STEPS(STEP)                                                                           \
  STEP(starts) STEP(opens_the_device) STEP(connects) STEP(prepares) STEP(waits_for_the_peer)       \
  STEP(posts) STEP(waits_for_completions) STEP(verifies) STEP(closes) STEP(watches)

#define PAGE_CALLS(CALL)                                                                           \
  CALL(none) CALL(post_send) CALL(post_recv) CALL(poll_cq) CALL(req_notify_cq) CALL(modify_qp)     \
  CALL(destroy_qp) CALL(dereg_mr) CALL(destroy_cq) CALL(destroy_srq)

#define PAGE_COMMANDS(COMMAND)                                                                     \
  COMMAND(nothing) COMMAND(fork_and_live) COMMAND(fork_and_exit) COMMAND(fork_and_close)           \
  COMMAND(fork_and_exec) COMMAND(exec_itself) COMMAND(exec_another) COMMAND(unmap)                 \
  COMMAND(protect_all) COMMAND(protect_writes) COMMAND(close_device) COMMAND(quit)
/* clang-format on */

#define PAGE_BYTES 4096

#define PAGE_MEMBER(name) uint64_t name;
struct page {
  PAGE_FIELDS(PAGE_MEMBER)
};
#define STEP_VALUE(name) STEP_##name,
enum step { PAGE_STEPS(STEP_VALUE) };
#define CALL_VALUE(name) CALL_##name,
enum call { PAGE_CALLS(CALL_VALUE) };
#define COMMAND_VALUE(name) COMMAND_##name,
enum command { PAGE_COMMANDS(COMMAND_VALUE) };

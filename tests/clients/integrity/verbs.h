#pragma once

/* The operations that the programs of several folders do, and what libibverbs calls them. */

#include <infiniband/verbs.h>

enum verb {
  SEND,
  SEND_IMMEDIATE,
  WRITE,
  WRITE_IMMEDIATE,
  READ,
  COMPARE_AND_SWAP,
  FETCH_AND_ADD,
  VERBS
};

static const enum ibv_wr_opcode opcodes[VERBS] = {
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_RDMA_READ,
    IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
};
static const enum ibv_wc_opcode completions[VERBS] = {
    IBV_WC_SEND,      IBV_WC_SEND,      IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE,
    IBV_WC_RDMA_READ, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD,
};

// Small programs that break a rule which adapters keep, or keep it. The exit status is 0 if the
// program got through, and 1 if the device refused it.
//
//   strict never-signals       a send queue of 16, 64 WRITEs, no completion asked for
//   strict signals-some        the same, every eighth is signalled and polled
//   strict locked-memory       registers 1 MiB where 64 KiB may be locked
//   strict locked-in-turn      registers and deregisters 32 KiB, often

#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { depth = 16, writes = 64, memory_bytes = 1 << 20, locked_bytes = 64 << 10 };

static struct ibv_context* context;
static struct ibv_pd* pd;
static char* memory;

static void fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(2);
}

static int refused(const char* what) {
  printf("%s: %s\n", what, strerror(errno));
  return 1;
}

static struct ibv_qp* connect_to_itself(struct ibv_cq* cq) {
  struct ibv_qp_init_attr wanted = {
      .send_cq = cq, .recv_cq = cq, .cap = {depth, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  struct ibv_qp* qp = ibv_create_qp(pd, &wanted);
  if (qp == NULL) fail("queue pair");
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) {
    fail("INIT");
  }
  a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024};
  a.dest_qp_num = qp->qp_num;
  a.ah_attr.is_global = a.ah_attr.port_num = 1;
  if (ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid)) fail("GID");
  if (ibv_modify_qp(qp, &a,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
    fail("RTR");
  }
  a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
  if (ibv_modify_qp(qp, &a,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)) {
    fail("RTS");
  }
  return qp;
}

// Posts the writes. While the queue is full, it polls, and gives up after two seconds.
static int write_often(int signal_each) {
  struct ibv_mr* region =
      ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  struct ibv_cq* cq = ibv_create_cq(context, depth, NULL, NULL, 0);
  if (region == NULL || cq == NULL) fail("objects");
  struct ibv_qp* qp = connect_to_itself(cq);
  struct ibv_wc done;
  for (int i = 1; i <= writes; ++i) {
    struct ibv_sge from = {(unsigned long)memory, 64, region->lkey};
    struct ibv_send_wr request = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE},
                       *bad;
    request.wr.rdma.remote_addr = (unsigned long)memory + 1024;
    request.wr.rdma.rkey = region->rkey;
    if (signal_each > 0 && i % signal_each == 0) request.send_flags = IBV_SEND_SIGNALED;
    const time_t began = time(NULL);
    while ((errno = ibv_post_send(qp, &request, &bad)) == ENOMEM && time(NULL) - began < 3) {
      if (ibv_poll_cq(cq, 1, &done) > 0 && done.status != IBV_WC_SUCCESS) fail("completion");
    }
    if (errno != 0) return refused("post");
  }
  return 0;
}

static struct ibv_mr* lock_memory(size_t bytes) {
  return ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
}

// Gives up the right to lock any memory, and leaves 64 KiB.
static void limit_memory(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
  if (syscall(SYS_capget, &header, data) != 0) fail("capabilities");
  data[0].effective &= ~(1u << CAP_IPC_LOCK);
  data[0].permitted &= ~(1u << CAP_IPC_LOCK);
  if (syscall(SYS_capset, &header, data) != 0) fail("capabilities");
  const struct rlimit limit = {locked_bytes, locked_bytes};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) fail("limit");
}

int main(int count, char** arguments) {
  const char* what = count > 1 ? arguments[1] : "";
  struct ibv_device** devices = ibv_get_device_list(NULL);
  if (devices == NULL || devices[0] == NULL) fail("device");
  context = ibv_open_device(devices[0]);
  pd = context != NULL ? ibv_alloc_pd(context) : NULL;
  memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pd == NULL || memory == MAP_FAILED) fail("objects");
  if (strcmp(what, "never-signals") == 0) return write_often(0);
  if (strcmp(what, "signals-some") == 0) return write_often(8);
  limit_memory();
  if (strcmp(what, "locked-memory") == 0) {
    return lock_memory(memory_bytes) == NULL ? refused("register") : 0;
  }
  if (strcmp(what, "locked-in-turn") == 0) {
    for (int i = 0; i < 100; ++i) {
      struct ibv_mr* region = lock_memory(locked_bytes / 2);
      if (region == NULL) return refused("register");
      if (ibv_dereg_mr(region) != 0) fail("deregister");
    }
    return 0;
  }
  fprintf(stderr, "no such program: %s\n", what);
  return 2;
}

// Measures what a connected, idle RC queue pair costs: memory of the process, and the time to
// create and connect it (the calls alone, without the exchange of addresses, which is the
// application's part).

#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const char* what, int error) {
  std::fprintf(stderr, "queue_pairs: %s: %s\n", what, std::strerror(error));
  std::exit(1);
}

std::uint64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long all = 0, resident = 0;
  if (file == nullptr || std::fscanf(file, "%lu %lu", &all, &resident) != 2) {
    die("/proc/self/statm", errno);
  }
  std::fclose(file);
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

void modify(ibv_qp* qp, ibv_qp_attr attributes, int mask) {
  const int error = ibv_modify_qp(qp, &attributes, mask);
  if (error != 0) die("ibv_modify_qp", error);
}

ibv_qp* create(ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = init.cap.max_recv_wr = 16;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  ibv_qp* qp = ibv_create_qp(pd, &init);
  if (qp == nullptr) die("ibv_create_qp", errno);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  modify(qp, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return qp;
}

void connect(ibv_qp* qp, std::uint32_t peer, const ibv_gid& gid) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = gid;
  attributes.ah_attr.grh.hop_limit = 64;
  modify(qp, attributes,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 1;
  modify(qp, attributes,
         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
             IBV_QP_MAX_QP_RD_ATOMIC);
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 1000;
  if (count < 2 || count % 2 != 0) {
    std::fprintf(stderr, "usage: queue_pairs [COUNT]   an even number, 1000 if not given\n");
    return 2;
  }
  ibv_device** devices = ibv_get_device_list(nullptr);
  ibv_context* context =
      devices != nullptr && devices[0] != nullptr ? ibv_open_device(devices[0]) : nullptr;
  if (context == nullptr) die("no device", errno);
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_cq* cq = ibv_create_cq(context, 1024, nullptr, nullptr, 0);
  ibv_gid gid{};
  if (pd == nullptr || cq == nullptr || ibv_query_gid(context, 1, 0, &gid) != 0) {
    die("setting up", errno);
  }
  // These come before the measurement, since the first queue pairs bring along more than their own.
  std::vector<ibv_qp*> qps{create(pd, cq), create(pd, cq)};
  const std::uint64_t before = resident_bytes();
  const auto start = Clock::now();
  for (int i = 0; i < count; i += 2) {
    ibv_qp* first = create(pd, cq);
    ibv_qp* second = create(pd, cq);
    connect(first, second->qp_num, gid);
    connect(second, first->qp_num, gid);
    qps.insert(qps.end(), {first, second});
  }
  const std::chrono::duration<double, std::micro> all = Clock::now() - start;
  const std::uint64_t after = resident_bytes();
  std::printf("{\"bytes\": %.0f, \"setup_us\": %.3f}\n",
              static_cast<double>(after - before) / count, all.count() / count);
  for (ibv_qp* qp : qps) ibv_destroy_qp(qp);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  ibv_free_device_list(devices);
  return 0;
}

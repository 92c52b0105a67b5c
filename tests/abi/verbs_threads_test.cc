// Tests that the C API is thread-safe: threads with queue pairs of their own share a device, while
// devices are opened and closed.

#include <atomic>
#include <thread>

#include "verbs_fixture.h"

namespace tulle::shim {
namespace {

constexpr int threads_max = 4;
constexpr int rounds = 200;

class Threads : public Verbs {
 protected:
  // Uses two queue pairs on a completion queue of their own. The thread that calls it makes and
  // destroys them.
  void write_and_read(std::size_t thread) {
    ibv_cq* own = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    ASSERT_NE(own, nullptr);
    ibv_qp_init_attr init = {nullptr, own, own, nullptr, {8, 8, 1, 1, 0}, IBV_QPT_RC, 0};
    ibv_qp* left = ibv_create_qp(pd, &init);
    ibv_qp* right = ibv_create_qp(pd, &init);
    ASSERT_NE(left, nullptr);
    ASSERT_NE(right, nullptr);
    connect(left, right);
    connect(right, left);
    const std::size_t area = 1024 * thread;
    for (int round = 0; round < rounds; ++round) {
      ibv_sge sge = piece(area, 256);
      ibv_send_wr wr = request(round % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &sge);
      wr.wr.rdma = {at(area + 512), mr->rkey};
      ASSERT_EQ(post(left, wr), 0);
      ibv_wc wc = {};
      while (ibv_poll_cq(own, 1, &wc) == 0) std::this_thread::yield();
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    }
    EXPECT_EQ(ibv_destroy_qp(left), 0);
    EXPECT_EQ(ibv_destroy_qp(right), 0);
    EXPECT_EQ(ibv_destroy_cq(own), 0);
  }

  static void open_and_close() {
    ibv_device** devices = ibv_get_device_list(nullptr);
    ASSERT_NE(devices, nullptr);
    ibv_context* other = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    ASSERT_NE(other, nullptr);
    ibv_pd* other_pd = ibv_alloc_pd(other);
    EXPECT_NE(other_pd, nullptr);
    EXPECT_EQ(ibv_close_device(other), 0);
  }
};

TEST_F(Threads, ShareADevice) {
  std::atomic<bool> done = false;
  std::thread opener([&done] {
    while (!done) open_and_close();
  });
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads_max; ++i) {
    workers.emplace_back([this, i] { write_and_read(i); });
  }
  for (std::thread& worker : workers) worker.join();
  done = true;
  opener.join();
}

// Two threads build work on one queue pair. The requests of one are never mixed with those of the
// other.
TEST_F(Threads, BuildWorkInTurn) {
  create_pair(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(a);
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < 2; ++i) {
    workers.emplace_back([this, qp, i] {
      for (int round = 0; round < rounds; ++round) {
        ibv_wr_start(qp);
        for (const std::size_t part : {0u, 1u}) {
          qp->wr_id = i;
          qp->wr_flags = part == 1 ? IBV_SEND_SIGNALED : 0;
          ibv_wr_rdma_write(qp, mr->rkey, at(4096 + 1024 * i));
          ibv_wr_set_sge(qp, mr->lkey, at(1024 * i), 64);
        }
        ASSERT_EQ(ibv_wr_complete(qp), 0);
        ibv_wc wc = {};
        while (ibv_poll_cq(cq, 1, &wc) == 0) std::this_thread::yield();
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_TRUE(equal(0, 4096, 64));
  EXPECT_TRUE(equal(1024, 5120, 64));
}

}  // namespace
}  // namespace tulle::shim

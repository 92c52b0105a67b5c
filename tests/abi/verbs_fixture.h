#pragma once

// An open device. A test that needs them creates two queue pairs that talk to each other.

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

namespace tulle::shim {

inline constexpr int all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND;
inline constexpr std::uint32_t qkey = 0x1111'1111;

class Verbs : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    ibv_device** devices = ibv_get_device_list(&count);
    ASSERT_NE(devices, nullptr);
    ASSERT_EQ(count, 1);
    context = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    ASSERT_NE(context, nullptr);
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    cq = ibv_create_cq(context, 64, this, channel, 0);
    ASSERT_NE(cq, nullptr);
    std::iota(memory.begin(), memory.end(), std::uint8_t{0});
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), all_access);
    ASSERT_NE(mr, nullptr);
  }

  void TearDown() override {
    for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }

  ibv_qp* create(ibv_qp_type type, std::uint64_t operations = 0, ibv_srq* srq = nullptr) {
    ibv_qp_init_attr_ex attributes = {};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.srq = srq;
    attributes.cap = {8, 8, 4, 4, 64};
    attributes.qp_type = type;
    attributes.pd = pd;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (operations != 0) {
      attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      attributes.send_ops_flags = operations;
    }
    ibv_qp* qp = ibv_create_qp_ex(context, &attributes);
    if (qp != nullptr) qps.push_back(qp);
    return qp;
  }

  static ibv_ah_attr path() {
    ibv_ah_attr attributes = {};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.hop_limit = 1;
    attributes.grh.dgid.raw[10] = attributes.grh.dgid.raw[11] = 0xFF;
    attributes.grh.dgid.raw[12] = 127;
    attributes.grh.dgid.raw[15] = 1;
    return attributes;
  }

  static int to_init(ibv_qp* qp) {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = all_access & ~IBV_ACCESS_MW_BIND;
    attributes.qkey = qkey;
    const int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    return ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last);
  }

  static void connect(ibv_qp* qp, const ibv_qp* peer) {
    ASSERT_EQ(to_init(qp), 0);
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer->qp_num;
    attributes.rq_psn = 0x100;
    attributes.max_dest_rd_atomic = 4;
    attributes.min_rnr_timer = 12;
    attributes.ah_attr = path();
    int mask = IBV_QP_STATE;
    if (qp->qp_type != IBV_QPT_UD) {
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    }
    if (qp->qp_type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    ASSERT_EQ(ibv_modify_qp(qp, &attributes, mask), 0);
    attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = 0x100;
    attributes.timeout = 14;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 7;
    attributes.max_rd_atomic = 4;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (qp->qp_type == IBV_QPT_RC) {
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    ASSERT_EQ(ibv_modify_qp(qp, &attributes, mask), 0);
    ASSERT_EQ(qp->state, IBV_QPS_RTS);
  }

  void create_pair(ibv_qp_type type, std::uint64_t operations = 0) {
    a = create(type, operations);
    b = create(type, operations);
    ASSERT_NE(a, nullptr);
    ASSERT_NE(b, nullptr);
    connect(a, b);
    connect(b, a);
  }

  std::uint64_t at(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(memory.data()) + offset;
  }
  ibv_sge piece(std::size_t offset, std::uint32_t length) const {
    return {at(offset), length, mr->lkey};
  }
  bool equal(std::size_t left, std::size_t right, std::size_t length) const {
    return std::memcmp(&memory[left], &memory[right], length) == 0;
  }

  int receive(ibv_qp* qp, std::uint64_t wr_id, std::size_t offset, std::uint32_t length) const {
    ibv_sge sge = piece(offset, length);
    ibv_recv_wr wr = {wr_id, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
  }

  static ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge* sge,
                             unsigned flags = IBV_SEND_SIGNALED) {
    ibv_send_wr wr = {};
    wr.wr_id = 7;
    wr.sg_list = sge;
    wr.num_sge = sge != nullptr ? 1 : 0;
    wr.opcode = opcode;
    wr.send_flags = flags;
    return wr;
  }

  static int post(ibv_qp* qp, ibv_send_wr& wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }

  ibv_wc next() const {
    ibv_wc wc = {};
    for (int tries = 0; tries < 1000; ++tries) {
      if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
    }
    ADD_FAILURE() << "no completion";
    return wc;
  }
  void expect(std::uint64_t wr_id, ibv_wc_opcode opcode,
              ibv_wc_status status = IBV_WC_SUCCESS) const {
    const ibv_wc wc = next();
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.status, status) << ibv_wc_status_str(wc.status);
    if (status == IBV_WC_SUCCESS) {
      EXPECT_EQ(wc.opcode, opcode);
    }
  }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  alignas(8) std::array<std::uint8_t, 8192> memory;
  std::vector<ibv_qp*> qps;
  ibv_qp* a = nullptr;
  ibv_qp* b = nullptr;
};

}  // namespace tulle::shim

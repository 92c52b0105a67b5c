// Tests the C API over a loopback device: extended reliable connections, atomic WRITEs, multicast
// groups.

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "verbs_fixture.h"

namespace tulle::shim {
namespace {

class Extended : public Verbs {
 protected:
  void SetUp() override {
    Verbs::SetUp();
    xrcd = open(context, -1, O_CREAT);
    ASSERT_NE(xrcd, nullptr);
  }
  void TearDown() override {
    for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
    qps.clear();
    if (srq != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(srq), 0);
    }
    EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
    Verbs::TearDown();
  }
  static ibv_xrcd* open(ibv_context* context, int fd, int oflags) {
    ibv_xrcd_init_attr attributes = {IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, fd, oflags};
    return ibv_open_xrcd(context, &attributes);
  }
  ibv_srq_init_attr_ex srq_attributes() const {
    ibv_srq_init_attr_ex out = {};
    out.attr = {8, 2, 0};
    out.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                    IBV_SRQ_INIT_ATTR_CQ;
    out.srq_type = IBV_SRQT_XRC;
    out.pd = pd;
    out.xrcd = xrcd;
    out.cq = cq;
    return out;
  }
  ibv_qp* create_target(ibv_xrcd* of) {
    ibv_qp_init_attr_ex attributes = {};
    attributes.qp_type = IBV_QPT_XRC_RECV;
    attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attributes.xrcd = of;
    ibv_qp* qp = ibv_create_qp_ex(context, &attributes);
    if (qp != nullptr) qps.push_back(qp);
    return qp;
  }
  static void climb(ibv_qp* qp, std::uint32_t to) {
    ASSERT_EQ(to_init(qp), 0);
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = to;
    attributes.ah_attr = path();
    attributes.max_dest_rd_atomic = 4;
    ASSERT_EQ(ibv_modify_qp(qp, &attributes,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              0);
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 14;
    attributes.max_rd_atomic = 4;
    ASSERT_EQ(ibv_modify_qp(qp, &attributes,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
              0);
  }
  // Creates the initiator a, the target b, and srq with its number.
  void create_connection(std::uint64_t operations = 0) {
    a = create(IBV_QPT_XRC_SEND, operations);
    b = create_target(xrcd);
    ASSERT_NE(a, nullptr);
    ASSERT_NE(b, nullptr);
    climb(a, b->qp_num);
    climb(b, a->qp_num);
    ibv_srq_init_attr_ex attributes = srq_attributes();
    srq = ibv_create_srq_ex(context, &attributes);
    ASSERT_NE(srq, nullptr);
    ASSERT_EQ(ibv_get_srq_num(srq, &srq_number), 0);
    ASSERT_NE(srq_number, 0u);
  }
  void post_shared(std::uint64_t wr_id, std::size_t offset, std::uint32_t bytes) const {
    ibv_sge sge = piece(offset, bytes);
    ibv_recv_wr wr = {wr_id, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  }

  ibv_xrcd* xrcd = nullptr;
  ibv_srq* srq = nullptr;
  std::uint32_t srq_number = 0;
};

TEST_F(Extended, SendReachesTheQueueThatItNames) {
  create_connection();
  post_shared(3, 4096, 512);
  ibv_sge sge = piece(0, 300);
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, &sge);
  wr.imm_data = 0x11223344;
  wr.qp_type.xrc.remote_srqn = srq_number;
  ASSERT_EQ(post(a, wr), 0);
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    if (wc.opcode != IBV_WC_RECV) continue;
    EXPECT_EQ(wc.wr_id, 3u);
    EXPECT_EQ(wc.qp_num, b->qp_num);
    EXPECT_EQ(wc.byte_len, 300u);
    EXPECT_EQ(wc.imm_data, 0x11223344u);
  }
  EXPECT_TRUE(equal(0, 4096, 300));
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma = {at(2048), mr->rkey};
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(equal(0, 2048, 300));
}

TEST_F(Extended, BuildersNameTheirQueue) {
  create_connection(IBV_QP_EX_WITH_SEND);
  post_shared(3, 4096, 512);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(a);
  qp->wr_id = 5;
  qp->wr_flags = IBV_SEND_SIGNALED;
  for (const std::uint32_t number : {0u, 1u << 24}) {
    ibv_wr_start(qp);
    ibv_wr_send(qp);
    ibv_wr_set_xrc_srqn(qp, number);
    ibv_wr_set_sge(qp, mr->lkey, at(0), 100);
    EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  }
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  ibv_wr_set_xrc_srqn(qp, srq_number);
  ibv_wr_set_sge(qp, mr->lkey, at(0), 100);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(equal(0, 4096, 100));
}

TEST_F(Extended, DomainsAreFiles) {
  char name[] = "/tmp/tulle-xrcd-XXXXXX";
  const int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  unlink(name);
  EXPECT_EQ(open(context, fd, 0), nullptr);
  EXPECT_EQ(errno, EAGAIN) << "nobody has made it";
  ibv_xrcd* first = open(context, fd, O_CREAT);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(open(context, fd, O_CREAT | O_EXCL), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_context* other = ibv_open_device(context->device);
  ASSERT_NE(other, nullptr);
  ibv_xrcd* second = open(other, fd, 0);
  ASSERT_NE(second, nullptr);
  // One context has made a target, and the other opens it. A change through either shows in both.
  b = create_target(first);
  ibv_qp_open_attr attributes = {};
  attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE |
                         IBV_QP_OPEN_ATTR_CONTEXT;
  attributes.qp_num = b->qp_num;
  attributes.xrcd = second;
  attributes.qp_context = this;
  attributes.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* again = ibv_open_qp(other, &attributes);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->qp_num, b->qp_num);
  EXPECT_EQ(again->qp_context, this);
  EXPECT_EQ(ibv_close_xrcd(second), EBUSY);
  climb(again, 0x100);
  ibv_qp_attr found = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(b, &found, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(found.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(init.qp_type, IBV_QPT_XRC_RECV);
  EXPECT_EQ(ibv_destroy_qp(again), 0);
  ASSERT_EQ(ibv_query_qp(b, &found, IBV_QP_STATE, nullptr), 0) << "it lives on";
  EXPECT_EQ(ibv_close_xrcd(second), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
  EXPECT_EQ(ibv_destroy_qp(b), 0);
  qps.clear();
  EXPECT_EQ(ibv_close_xrcd(first), 0);
  EXPECT_EQ(open(context, fd, 0), nullptr) << "it went with its last";
  close(fd);
}

TEST_F(Extended, ADeviceThatIsClosedTakesAllAlong) {
  ibv_context* other = ibv_open_device(context->device);
  ASSERT_NE(other, nullptr);
  ibv_xrcd* theirs = open(other, -1, O_CREAT);
  ibv_qp_init_attr_ex target = {};
  target.qp_type = IBV_QPT_XRC_RECV;
  target.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  target.xrcd = theirs;
  ASSERT_NE(ibv_create_qp_ex(other, &target), nullptr);
  ibv_srq_init_attr_ex attributes = srq_attributes();
  attributes.pd = ibv_alloc_pd(other);
  attributes.cq = ibv_create_cq(other, 4, nullptr, nullptr, 0);
  attributes.xrcd = theirs;
  ASSERT_NE(ibv_create_srq_ex(other, &attributes), nullptr);
  EXPECT_EQ(ibv_close_device(other), 0);
}

TEST_F(Extended, WhatIsRefused) {
  EXPECT_EQ(open(context, -1, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(open(context, -1, O_CREAT | O_APPEND), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(open(context, 999, O_CREAT), nullptr);
  EXPECT_EQ(errno, EBADF);
  ibv_xrcd_init_attr incomplete = {IBV_XRCD_INIT_ATTR_FD, -1, O_CREAT};
  EXPECT_EQ(ibv_open_xrcd(context, &incomplete), nullptr);
  EXPECT_EQ(errno, EINVAL);
  incomplete.comp_mask = ~0u;
  EXPECT_EQ(ibv_open_xrcd(context, &incomplete), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  const auto create_srq = [&](auto change) {
    ibv_srq_init_attr_ex attributes = srq_attributes();
    change(attributes);
    EXPECT_EQ(ibv_create_srq_ex(context, &attributes), nullptr);
    EXPECT_EQ(errno, EINVAL);
  };
  create_srq([](auto& attributes) { attributes.comp_mask &= ~unsigned{IBV_SRQ_INIT_ATTR_XRCD}; });
  create_srq([](auto& attributes) { attributes.comp_mask &= ~unsigned{IBV_SRQ_INIT_ATTR_CQ}; });
  create_srq([](auto& attributes) { attributes.xrcd = nullptr; });
  create_srq([](auto& attributes) { attributes.cq = nullptr; });
  create_srq([](auto& attributes) { attributes.pd = nullptr; });
  create_srq([](auto& attributes) { attributes.attr.max_wr = 1u << 30; });
  EXPECT_EQ(create_target(nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(create(IBV_QPT_XRC_RECV), nullptr) << "without a domain";
  EXPECT_EQ(errno, EINVAL);
  create_connection();
  EXPECT_EQ(create(IBV_QPT_XRC_SEND, 0, srq), nullptr) << "an initiator receives nothing";
  EXPECT_EQ(create(IBV_QPT_RC, 0, srq), nullptr) << "nor does RC by a domain's queue";
  EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
  EXPECT_EQ(receive(a, 1, 0, 8), EINVAL);
  EXPECT_EQ(receive(b, 1, 0, 8), EINVAL);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  EXPECT_EQ(post(a, wr), EINVAL) << "it names no queue";
  wr.qp_type.xrc.remote_srqn = srq_number;
  EXPECT_EQ(post(b, wr), EINVAL);
  ibv_qp_open_attr attributes = {};
  attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attributes.xrcd = xrcd;
  attributes.qp_type = IBV_QPT_XRC_RECV;
  for (const std::uint32_t number : {0u, a->qp_num, 0xFF'FFFFu}) {
    attributes.qp_num = number;
    EXPECT_EQ(ibv_open_qp(context, &attributes), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  attributes.qp_num = b->qp_num;
  attributes.qp_type = IBV_QPT_RC;
  EXPECT_EQ(ibv_open_qp(context, &attributes), nullptr);
  attributes.qp_type = IBV_QPT_XRC_RECV;
  attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM;
  EXPECT_EQ(ibv_open_qp(context, &attributes), nullptr);
  ibv_xrcd* other = open(context, -1, O_CREAT);
  attributes.comp_mask |= IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attributes.xrcd = other;
  EXPECT_EQ(ibv_open_qp(context, &attributes), nullptr) << "of another domain";
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_close_xrcd(other), 0);
}

// --- atomic WRITE ---

TEST_F(Verbs, AtomicWrite) {
  create_pair(IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_WRITE, &sge);
  wr.wr.rdma = {at(4096), mr->rkey};
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_ATOMIC_WRITE);
  EXPECT_TRUE(equal(0, 4096, 8));
  EXPECT_FALSE(equal(8, 4096 + 8, 8) && memory[8] != memory[4096 + 8]);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(a);
  qp->wr_id = 9;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_start(qp);
  ibv_wr_atomic_write(qp, mr->rkey, at(4104), &memory[16]);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  expect(9, IBV_WC_ATOMIC_WRITE);
  EXPECT_TRUE(equal(16, 4104, 8));
  ibv_wr_start(qp);
  ibv_wr_atomic_write(qp, mr->rkey, at(4104), nullptr);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  wr.num_sge = 0;
  EXPECT_EQ(post(a, wr), EINVAL);
}

TEST_F(Verbs, AtomicWriteThatIsMisaligned) {
  create_pair(IBV_QPT_RC);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_WRITE, &sge);
  wr.wr.rdma = {at(4097), mr->rkey};
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_ATOMIC_WRITE, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Verbs, AtomicWriteIsReliableConnectionsAlone) {
  EXPECT_EQ(create(IBV_QPT_UC, IBV_QP_EX_WITH_ATOMIC_WRITE), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  create_pair(IBV_QPT_UC);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_WRITE, &sge);
  EXPECT_EQ(post(a, wr), EINVAL);
}

// --- multicast ---

TEST_F(Verbs, GroupsReachAllThatAreAttached) {
  create_pair(IBV_QPT_UD);
  ibv_gid group = {};
  group.raw[10] = group.raw[11] = 0xFF;
  group.raw[12] = 224;
  group.raw[15] = 9;
  for (ibv_qp* qp : {a, b}) {
    ASSERT_EQ(ibv_attach_mcast(qp, &group, 0), 0);
    ASSERT_EQ(ibv_attach_mcast(qp, &group, 0), 0);
    ASSERT_EQ(receive(qp, 1, qp == a ? 4096 : 6144, 512), 0);
  }
  ibv_ah_attr to = path();
  to.grh.dgid = group;
  ibv_ah* ah = ibv_create_ah(pd, &to);
  ASSERT_NE(ah, nullptr);
  ibv_sge sge = piece(0, 100);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge, 0);
  wr.wr.ud = {ah, 0xFF'FFFF, qkey};
  ASSERT_EQ(post(a, wr), 0);
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(wc.byte_len, 140u);
    EXPECT_EQ(wc.src_qp, a->qp_num);
  }
  EXPECT_TRUE(equal(0, 4096 + 40, 100));
  EXPECT_TRUE(equal(0, 6144 + 40, 100));
  EXPECT_EQ(ibv_destroy_qp(a), EBUSY);
  for (ibv_qp* qp : {a, b}) {
    EXPECT_EQ(ibv_detach_mcast(qp, &group, 0), 0);
    EXPECT_EQ(ibv_detach_mcast(qp, &group, 0), EINVAL);
  }
  group.raw[12] = 10;
  EXPECT_EQ(ibv_attach_mcast(a, &group, 0), EINVAL) << "one host's address";
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(Verbs, ADeviceIsClosedThoughSomebodyIsAttached) {
  ibv_context* other = ibv_open_device(context->device);
  ibv_pd* other_pd = ibv_alloc_pd(other);
  ibv_cq* other_cq = ibv_create_cq(other, 4, nullptr, nullptr, 0);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = other_cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_UD;
  ibv_qp* qp = ibv_create_qp(other_pd, &init);
  ASSERT_NE(qp, nullptr);
  ibv_gid group = {};
  group.raw[0] = 0xFF;
  EXPECT_EQ(ibv_attach_mcast(qp, &group, 0), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
}

}  // namespace
}  // namespace tulle::shim

// Tests the rules of `tulle run --strict` over a loopback device.

#include <cerrno>
#include <cstdlib>

#include "verbs_fixture.h"

namespace tulle::shim {
namespace {

class Strict : public Verbs {
 protected:
  void SetUp() override {
    setenv("TULLE_TEST_STRICT", "1", 1);
    Verbs::SetUp();
    create_pair(IBV_QPT_RC);
  }
  void TearDown() override {
    Verbs::TearDown();
    unsetenv("TULLE_TEST_STRICT");
  }
  int write(bool is_signalled, bool is_wrong = false) {
    ibv_sge sge = piece(0, 8);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, is_signalled ? IBV_SEND_SIGNALED : 0);
    wr.wr.rdma = {at(64), is_wrong ? mr->rkey + 1'234 : mr->rkey};
    return post(a, wr);
  }
  int receive() {
    ibv_sge sge = piece(0, 8);
    ibv_recv_wr wr = {};
    wr.wr_id = 9;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(a, &wr, &bad);
  }
  ibv_wc_status polled() const {
    ibv_wc done = {};
    EXPECT_EQ(ibv_poll_cq(cq, 1, &done), 1);
    return done.status;
  }
  static constexpr int depth = 8;  // of the fixture's queues
};

TEST_F(Strict, EntriesAreFreeWhenALaterCompletionIsPolled) {
  for (int i = 0; i < depth; ++i) ASSERT_EQ(write(i == depth / 2 - 1), 0) << i;
  EXPECT_EQ(write(false), ENOMEM);
  EXPECT_EQ(write(false), ENOMEM) << "time alone frees nothing";
  EXPECT_EQ(polled(), IBV_WC_SUCCESS);
  for (int i = 0; i < depth / 2; ++i) EXPECT_EQ(write(false), 0) << i;
  EXPECT_EQ(write(false), ENOMEM);
}

// Requests complete in their order, so that one that fails frees those before it.
TEST_F(Strict, AFailedRequestFreesThoseBeforeIt) {
  for (const bool is_signalled : {true, false}) {
    constexpr int failing = 4;
    for (int i = 0; i < depth; ++i) {
      ASSERT_EQ(write(is_signalled && i == failing, i == failing), 0) << i;
    }
    EXPECT_EQ(write(true), ENOMEM);
    EXPECT_EQ(polled(), IBV_WC_REM_ACCESS_ERR);
    for (int i = 0; i <= failing; ++i) EXPECT_EQ(write(true), 0) << i;
    EXPECT_EQ(write(true), ENOMEM) << "those behind it have completions of their own";
    EXPECT_EQ(polled(), IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(write(true), 0);
    EXPECT_EQ(write(true), ENOMEM);
    for (ibv_qp* qp : {a, b}) {
      ibv_qp_attr attributes = {};
      attributes.qp_state = IBV_QPS_RESET;
      ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
    }
    connect(a, b);
    connect(b, a);
  }
}

TEST_F(Strict, AQueueThatIsResetIsEmpty) {
  for (int i = 0; i < depth; ++i) ASSERT_EQ(write(false), 0) << i;
  ASSERT_EQ(write(false), ENOMEM);
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(a, &attributes, IBV_QP_STATE), 0);
  connect(a, b);
  for (int i = 0; i < depth; ++i) EXPECT_EQ(write(false), 0) << i;
}

TEST_F(Strict, ReceivesAreFreeWhenTheirCompletionsArePolled) {
  for (int i = 0; i < depth; ++i) ASSERT_EQ(receive(), 0) << i;
  EXPECT_EQ(receive(), ENOMEM);
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a, &attributes, IBV_QP_STATE), 0);
  EXPECT_EQ(receive(), ENOMEM) << "they are flushed, and not polled";
  EXPECT_EQ(polled(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(receive(), 0);
  attributes.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(a, &attributes, IBV_QP_STATE), 0);
  connect(a, b);
  for (int i = 0; i < depth; ++i) EXPECT_EQ(receive(), 0) << i;
}

TEST_F(Strict, AFailedCompletionHasFewFields) {
  ASSERT_EQ(receive(), 0);
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a, &attributes, IBV_QP_STATE), 0);
  ibv_wc done = {};
  ASSERT_EQ(ibv_poll_cq(cq, 1, &done), 1);
  EXPECT_EQ(done.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(done.qp_num, a->qp_num);
  EXPECT_EQ(done.wr_id, 9u);
  EXPECT_NE(done.opcode, IBV_WC_RECV);
  EXPECT_EQ(done.byte_len, 0xA5A5A5A5);
  EXPECT_EQ(done.imm_data, 0xA5A5A5A5);
  EXPECT_EQ(done.src_qp, 0xA5A5A5A5);
}

TEST_F(Strict, ACompletionHasTheFieldsOfItsOperation) {
  ASSERT_EQ(write(true), 0);
  ibv_wc done = {};
  ASSERT_EQ(ibv_poll_cq(cq, 1, &done), 1);
  EXPECT_EQ(done.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(done.byte_len, 0xA5A5A5A5) << "that of a READ is defined";
  EXPECT_EQ(done.wc_flags, 0u);
}

TEST_F(Strict, EntriesThatAreFlushedAreFreeOneByOne) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a, &attributes, IBV_QP_STATE), 0);
  for (int i = 0; i < depth; ++i) ASSERT_EQ(write(i % 2 == 0), 0) << i;
  for (int i = 0; i < 3 * depth; ++i) {
    EXPECT_EQ(write(false), ENOMEM) << i;
    EXPECT_EQ(polled(), IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(write(true), 0) << i;
  }
}

// Work by ibv_wr_* and polling without ibv_wc follow the same rule.
TEST_F(Strict, BuildersCountToo) {
  ibv_qp* qp = create(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
  ASSERT_NE(qp, nullptr);
  connect(qp, qp);
  ibv_qp_ex* extended = ibv_qp_to_qp_ex(qp);
  const auto write_one = [&] {
    ibv_wr_start(extended);
    extended->wr_flags = 0;
    ibv_wr_rdma_write(extended, mr->rkey, at(64));
    ibv_wr_set_sge(extended, mr->lkey, at(0), 8);
    return ibv_wr_complete(extended);
  };
  for (int i = 0; i < depth; ++i) ASSERT_EQ(write_one(), 0) << i;
  EXPECT_EQ(write_one(), ENOMEM);
}

}  // namespace
}  // namespace tulle::shim

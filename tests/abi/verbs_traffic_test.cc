// Tests the C API over a loopback device: posting work and polling for it, in one process and in
// order.

#include <arpa/inet.h>

#include "verbs_fixture.h"

namespace tulle::shim {
namespace {

TEST_F(Verbs, SendsWithAndWithoutImmediate) {
  create_pair(IBV_QPT_RC);
  ASSERT_EQ(receive(b, 1, 4096, 512), 0);
  ASSERT_EQ(receive(b, 2, 5120, 512), 0);
  ibv_sge sge = piece(1, 300);
  ibv_send_wr second = request(IBV_WR_SEND_WITH_IMM, &sge);
  second.imm_data = htonl(0x12345678);
  ibv_send_wr first = request(IBV_WR_SEND, &sge, 0);
  first.next = &second;
  ASSERT_EQ(post(a, first), 0);
  ibv_wc wc = next();
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.byte_len, 300u);
  EXPECT_EQ(wc.qp_num, b->qp_num);
  EXPECT_EQ(wc.wc_flags, 0u);
  EXPECT_TRUE(equal(1, 4096, 300));
  wc = next();
  EXPECT_EQ(wc.wr_id, 2u);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ntohl(wc.imm_data), 0x12345678u);
  expect(7, IBV_WC_SEND);
}

TEST_F(Verbs, WritesReadsAndAtomics) {
  create_pair(IBV_QPT_RC);
  ibv_sge sge = piece(0, 3000);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  wr.wr.rdma = {at(4096), mr->rkey};
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(equal(0, 4096, 3000));

  sge = piece(0, 100);
  wr = request(IBV_WR_RDMA_READ, &sge);
  wr.wr.rdma = {at(4100), mr->rkey};
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_RDMA_READ);
  EXPECT_TRUE(equal(0, 4100, 100));

  const std::uint64_t before = 40;
  std::memcpy(&memory[4096], &before, sizeof before);
  sge = piece(0, 8);
  wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
  wr.wr.atomic = {at(4096), 2, 0, mr->rkey};
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_FETCH_ADD);
  wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, &sge);
  wr.wr.atomic = {at(4096), 42, 7, mr->rkey};
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_COMP_SWAP);
  std::uint64_t fetched = 0;
  std::uint64_t left = 0;
  std::memcpy(&fetched, &memory[0], sizeof fetched);
  std::memcpy(&left, &memory[4096], sizeof left);
  EXPECT_EQ(fetched, 42u);
  EXPECT_EQ(left, 7u);
}

TEST_F(Verbs, InlineDataMayBeReusedAtOnce) {
  create_pair(IBV_QPT_UC);
  ASSERT_EQ(receive(b, 1, 4096, 64), 0);
  std::array<char, 6> text = {"hello"};
  ibv_sge sge = {reinterpret_cast<std::uint64_t>(text.data()), 6, 0};
  ibv_send_wr wr = request(IBV_WR_SEND, &sge, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  ASSERT_EQ(post(a, wr), 0);
  text.fill('x');
  const ibv_wc sent = next();
  const ibv_wc received = next();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.byte_len, 6u);
  EXPECT_STREQ(reinterpret_cast<const char*>(&memory[4096]), "hello");
  std::array<char, 65> too_long = {};
  sge = {reinterpret_cast<std::uint64_t>(too_long.data()), 65, 0};
  EXPECT_EQ(post(a, wr), EINVAL);
}

TEST_F(Verbs, BadRequestIsNamedAndThoseBeforeItRun) {
  create_pair(IBV_QPT_RC);
  ASSERT_EQ(receive(b, 1, 4096, 64), 0);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr second = request(IBV_WR_TSO, &sge);
  ibv_send_wr first = request(IBV_WR_SEND, &sge);
  first.next = &second;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a, &first, &bad), EOPNOTSUPP);
  EXPECT_EQ(bad, &second);
  expect(1, IBV_WC_RECV);
  expect(7, IBV_WC_SEND);
  // The queue takes eight receives and no more.
  for (int i = 0; i < 8; ++i) EXPECT_EQ(receive(b, 1, 4096, 64), 0);
  EXPECT_EQ(receive(b, 1, 4096, 64), ENOMEM);
}

TEST_F(Verbs, DatagramsAnswerTheirSender) {
  a = create(IBV_QPT_UD);
  b = create(IBV_QPT_UD);
  connect(a, b);
  connect(b, a);
  ibv_ah_attr attributes = path();
  ibv_ah* ah = ibv_create_ah(pd, &attributes);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(receive(b, 1, 4096, 200), 0);
  ibv_sge sge = piece(0, 100);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  wr.wr.ud = {ah, b->qp_num | 0xFF00'0000, qkey};  // a number has 24 bits
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_SEND);
  ibv_wc wc = next();
  EXPECT_EQ(wc.byte_len, 140u);
  EXPECT_EQ(wc.src_qp, a->qp_num);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_GRH));
  EXPECT_TRUE(equal(0, 4136, 100));

  auto* grh = reinterpret_cast<ibv_grh*>(&memory[4096]);
  ibv_ah_attr back = {};
  ASSERT_EQ(ibv_init_ah_from_wc(context, 1, &wc, grh, &back), 0);
  EXPECT_EQ(std::memcmp(&back.grh.dgid, &attributes.grh.dgid, sizeof back.grh.dgid), 0);
  EXPECT_EQ(back.grh.sgid_index, 0);
  ibv_ah* reply = ibv_create_ah_from_wc(pd, &wc, grh, 1);
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(ibv_destroy_ah(reply), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  wr.wr.ud.ah = nullptr;
  EXPECT_EQ(post(a, wr), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  attributes.is_global = 0;
  EXPECT_EQ(ibv_create_ah(pd, &attributes), nullptr);
}

TEST_F(Verbs, BuildersPostAllOrNothing) {
  create_pair(IBV_QPT_RC, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
                              IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(a);
  ASSERT_NE(qp, nullptr);
  ASSERT_EQ(receive(b, 1, 5000, 64), 0);
  ibv_wr_start(qp);
  qp->wr_id = 10;
  qp->wr_flags = 0;
  ibv_wr_rdma_write(qp, mr->rkey, at(4096));
  ibv_wr_set_sge(qp, mr->lkey, at(0), 200);
  qp->wr_id = 11;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_imm(qp, htonl(99));
  std::array<char, 3> text = {"ab"};
  const std::array<ibv_data_buf, 2> buffers = {{{text.data(), 2}, {text.data(), 1}}};
  ibv_wr_set_inline_data_list(qp, 2, buffers.data());
  text.fill('x');
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  const ibv_wc received = next();
  EXPECT_EQ(received.byte_len, 3u);
  EXPECT_EQ(ntohl(received.imm_data), 99u);
  EXPECT_EQ(std::memcmp(&memory[5000], "aba", 3), 0);
  expect(11, IBV_WC_SEND);
  EXPECT_TRUE(equal(0, 4096, 200));

  // One of the two requests is wrong, so none runs.
  memory[6000] = 1;
  ibv_wr_start(qp);
  ibv_wr_rdma_write(qp, mr->rkey, at(6000));
  ibv_wr_set_sge(qp, mr->lkey, at(2), 1);
  ibv_wr_rdma_write_imm(qp, mr->rkey, at(6000), 0);
  EXPECT_EQ(ibv_wr_complete(qp), EOPNOTSUPP);
  ibv_wr_start(qp);
  ibv_wr_rdma_write(qp, mr->rkey, at(6000));
  ibv_wr_set_sge(qp, mr->lkey, at(2), 1);
  ibv_wr_abort(qp);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
  EXPECT_EQ(memory[6000], 1);

  // These are more requests than the queue holds.
  ibv_wr_start(qp);
  for (int i = 0; i < 9; ++i) ibv_wr_rdma_write(qp, mr->rkey, at(6000));
  EXPECT_EQ(ibv_wr_complete(qp), ENOMEM);
}

TEST_F(Verbs, BuildersRunEveryOperation) {
  create_pair(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_BIND_MW |
                              IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                              IBV_QP_EX_WITH_SEND_WITH_INV);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(a);
  qp->wr_flags = IBV_SEND_SIGNALED;
  const std::uint64_t word = 5;
  std::memcpy(&memory[4096], &word, sizeof word);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  ibv_wr_atomic_fetch_add(qp, mr->rkey, at(4096), 1);
  ibv_wr_set_sge(qp, mr->lkey, at(0), 8);
  qp->wr_id = 2;
  ibv_wr_atomic_cmp_swp(qp, mr->rkey, at(4096), 6, 8);
  ibv_wr_set_sge(qp, mr->lkey, at(8), 8);
  qp->wr_id = 3;
  ibv_wr_rdma_read(qp, mr->rkey, at(4096));
  const std::array<ibv_sge, 2> list = {piece(16, 4), piece(24, 4)};
  ibv_wr_set_sge_list(qp, 2, list.data());
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  expect(1, IBV_WC_FETCH_ADD);
  expect(2, IBV_WC_COMP_SWAP);
  expect(3, IBV_WC_RDMA_READ);
  EXPECT_EQ(memory[8], 6);
  EXPECT_EQ(memory[16], 8);
  EXPECT_EQ(memory[24], 0);

  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  const ibv_mw_bind_info info = {mr, at(4096), 64, IBV_ACCESS_REMOTE_WRITE};
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ibv_wr_start(qp);
  qp->wr_id = 4;
  ibv_wr_bind_mw(qp, mw, key, &info);
  qp->wr_id = 5;
  ibv_wr_local_inv(qp, key);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  expect(4, IBV_WC_BIND_MW);
  expect(5, IBV_WC_LOCAL_INV);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);

  ASSERT_EQ(receive(b, 6, 5000, 8), 0);
  ibv_wr_start(qp);
  qp->wr_id = 7;
  ibv_wr_rdma_write_imm(qp, mr->rkey, at(4200), htonl(1));
  ibv_wr_set_sge(qp, mr->lkey, at(0), 4);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  const ibv_wc wc = next();
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.byte_len, 4u);
  expect(7, IBV_WC_RDMA_WRITE);
}

TEST_F(Verbs, BuildersSendDatagrams) {
  a = create(IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
  ASSERT_NE(a, nullptr);
  connect(a, a);
  EXPECT_EQ(create(IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_ah_attr attributes = path();
  ibv_ah* ah = ibv_create_ah(pd, &attributes);
  ASSERT_EQ(receive(a, 1, 4096, 64), 0);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(a);
  qp->wr_id = 2;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  ibv_wr_set_sge(qp, mr->lkey, at(0), 8);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);  // without a destination
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  ibv_wr_set_ud_addr(qp, ah, a->qp_num, qkey);
  ibv_wr_set_sge(qp, mr->lkey, at(0), 8);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  expect(2, IBV_WC_SEND);
  expect(1, IBV_WC_RECV);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(Verbs, ExtendedPollingReadsEveryField) {
  ibv_cq_init_attr_ex init = {};
  init.cqe = 16;
  init.wc_flags = IBV_WC_EX_WITH_CVLAN;
  EXPECT_EQ(ibv_create_cq_ex(context, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  init.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* extended = ibv_create_cq_ex(context, &init);
  ASSERT_NE(extended, nullptr);
  ibv_cq* plain = cq;
  cq = ibv_cq_ex_to_cq(extended);
  create_pair(IBV_QPT_RC);
  EXPECT_EQ(ibv_start_poll(extended, nullptr), ENOENT);
  ASSERT_EQ(receive(b, 1, 4096, 64), 0);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, &sge);
  wr.imm_data = htonl(5);
  ASSERT_EQ(post(a, wr), 0);
  ASSERT_EQ(ibv_start_poll(extended, nullptr), 0);
  EXPECT_EQ(extended->wr_id, 1u);
  EXPECT_EQ(extended->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(extended), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_byte_len(extended), 8u);
  EXPECT_EQ(ibv_wc_read_imm_data(extended), htonl(5));
  EXPECT_EQ(ibv_wc_read_qp_num(extended), b->qp_num);
  EXPECT_EQ(ibv_wc_read_wc_flags(extended), static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ibv_wc_read_slid(extended), 0u);
  EXPECT_EQ(ibv_wc_read_sl(extended), 0u);
  EXPECT_EQ(ibv_wc_read_vendor_err(extended), 0u);
  EXPECT_EQ(ibv_wc_read_dlid_path_bits(extended), 0u);
  ASSERT_EQ(ibv_next_poll(extended), 0);
  EXPECT_EQ(ibv_wc_read_opcode(extended), IBV_WC_SEND);
  EXPECT_EQ(ibv_next_poll(extended), ENOENT);
  ibv_end_poll(extended);
  for (ibv_qp* qp : qps) ASSERT_EQ(ibv_destroy_qp(qp), 0);
  qps.clear();
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  cq = plain;
}

TEST_F(Verbs, WindowsOfTypeOneAreBoundByACall) {
  create_pair(IBV_QPT_RC);
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  const std::uint32_t unbound_key = mw->rkey;
  ibv_mw_bind bind = {9, IBV_SEND_SIGNALED, {mr, at(4096), 128, IBV_ACCESS_REMOTE_WRITE}};
  ASSERT_EQ(ibv_bind_mw(b, mw, &bind), 0);
  EXPECT_NE(mw->rkey, unbound_key);
  expect(9, IBV_WC_BIND_MW);
  ibv_sge sge = piece(0, 100);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  wr.wr.rdma = {at(4096), mw->rkey};
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(equal(0, 4096, 100));
  EXPECT_EQ(ibv_dereg_mr(mr), EBUSY);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Verbs, WindowsOfTypeTwoShowTheKeyOfTheRequest) {
  create_pair(IBV_QPT_RC);
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ibv_send_wr wr = {};
  wr.wr_id = 9;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw = {mw, key, {mr, at(4096), 64, IBV_ACCESS_REMOTE_WRITE}};
  ASSERT_EQ(post(b, wr), 0);
  expect(9, IBV_WC_BIND_MW);
  EXPECT_EQ(mw->rkey, key);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

}  // namespace
}  // namespace tulle::shim

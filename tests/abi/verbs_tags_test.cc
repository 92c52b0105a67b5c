// Tests tag matching, as ibv_create_srq_ex(3) and ibv_post_srq_ops(3) describe it.

#include <endian.h>
#include <infiniband/tm_types.h>

#include <array>
#include <cerrno>

#include "verbs_fixture.h"

namespace tulle::shim {
namespace {

constexpr std::uint64_t exact = ~std::uint64_t{0};
constexpr unsigned whole = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;

// a sends to b. The shared receive queue of b matches tags, and has a completion queue of its own.
class Tags : public Verbs {
 protected:
  void SetUp() override {
    Verbs::SetUp();
    ibv_cq_init_attr_ex wanted = {};
    wanted.cqe = 64;
    wanted.wc_flags = IBV_WC_STANDARD_FLAGS | std::uint64_t{IBV_WC_EX_WITH_TM_INFO};
    tags_cq = ibv_create_cq_ex(context, &wanted);
    ASSERT_NE(tags_cq, nullptr);
    ibv_srq_init_attr_ex attributes = srq_attributes();
    srq = ibv_create_srq_ex(context, &attributes);
    ASSERT_NE(srq, nullptr);
    a = create(IBV_QPT_RC);
    b = create(IBV_QPT_RC, 0, srq);
    ASSERT_NE(a, nullptr);
    ASSERT_NE(b, nullptr);
    connect(a, b);
    connect(b, a);
  }

  void TearDown() override {
    EXPECT_EQ(ibv_destroy_srq(srq), EBUSY) << "a queue pair has it";
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(tags_cq)), EBUSY);
    for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
    qps.clear();
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(tags_cq)), 0);
    Verbs::TearDown();
  }

  ibv_srq_init_attr_ex srq_attributes() const {
    ibv_srq_init_attr_ex out = {};
    out.attr = {16, 2, 0};
    out.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    out.srq_type = IBV_SRQT_TM;
    out.pd = pd;
    out.cq = ibv_cq_ex_to_cq(tags_cq);
    out.tm_cap = {4, 8};
    return out;
  }

  int operate(ibv_ops_wr& wr) const {
    ibv_ops_wr* bad = nullptr;
    const int error = ibv_post_srq_ops(srq, &wr, &bad);
    EXPECT_EQ(bad, error != 0 ? &wr : nullptr);
    return error;
  }
  static ibv_ops_wr operation(ibv_ops_wr_opcode opcode) {
    ibv_ops_wr wr = {};
    wr.wr_id = 70;
    wr.opcode = opcode;
    wr.flags = IBV_OPS_SIGNALED;
    return wr;
  }
  // Adds a tag and returns its handle.
  std::uint32_t add(std::uint64_t wr_id, std::uint64_t tag, ibv_sge sge, int flags = 0) const {
    ibv_ops_wr wr = operation(IBV_WR_TAG_ADD);
    wr.flags = flags;
    wr.tm.add = {wr_id, &sge, 1, tag, exact};
    EXPECT_EQ(operate(wr), 0);
    return wr.tm.handle;
  }
  void synchronize(std::uint32_t unexpected) const {
    ibv_ops_wr wr = operation(IBV_WR_TAG_SYNC);
    wr.flags |= IBV_OPS_TM_SYNC;
    wr.tm.unexpected_cnt = unexpected;
    ASSERT_EQ(operate(wr), 0);
    expect_tagged(70, IBV_WC_TM_SYNC, 0);
  }

  void post_ordinary(std::uint64_t wr_id, std::size_t offset) const {
    ibv_sge sge = piece(offset, 256);
    ibv_recv_wr wr = {wr_id, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  }

  // Sends bytes from the beginning of the memory, where it puts the header.
  void send(ibv_tmh_op operation_code, std::uint64_t tag, std::uint32_t bytes) {
    ibv_tmh header = {};
    header.opcode = static_cast<std::uint8_t>(operation_code);
    header.app_ctx = htobe32(0xABCD);
    header.tag = htobe64(tag);
    std::memcpy(memory.data(), &header, sizeof header);
    ibv_sge sge = piece(0, bytes);
    ibv_send_wr wr = request(IBV_WR_SEND, &sge);
    ASSERT_EQ(post(a, wr), 0);
  }

  void expect_tagged(std::uint64_t wr_id, ibv_wc_opcode opcode, unsigned flags,
                     std::uint64_t tag = 0, ibv_wc_status status = IBV_WC_SUCCESS) const {
    ibv_poll_cq_attr none = {};
    int error = ENOENT;
    for (int tries = 0; tries < 1000 && error != 0; ++tries) error = ibv_start_poll(tags_cq, &none);
    ASSERT_EQ(error, 0) << "no completion";
    EXPECT_EQ(tags_cq->wr_id, wr_id);
    EXPECT_EQ(tags_cq->status, status);
    if (status == IBV_WC_SUCCESS) {
      ibv_wc_tm_info info = {};
      ibv_wc_read_tm_info(tags_cq, &info);
      EXPECT_EQ(ibv_wc_read_opcode(tags_cq), opcode);
      EXPECT_EQ(ibv_wc_read_wc_flags(tags_cq), flags);
      EXPECT_EQ(info.tag, tag);
      EXPECT_EQ(info.priv, tag != 0 ? 0xABCDu : 0u);
    }
    ibv_end_poll(tags_cq);
  }

  ibv_cq_ex* tags_cq = nullptr;
  ibv_srq* srq = nullptr;
};

TEST_F(Tags, WhatTheDeviceOffersItHas) {
  ibv_device_attr_ex device = {};
  ASSERT_EQ(ibv_query_device_ex(context, nullptr, &device), 0);
  EXPECT_EQ(device.tm_caps.flags, unsigned{IBV_TM_CAP_RC});
  EXPECT_GE(device.tm_caps.max_rndv_hdr_size, sizeof(ibv_tmh) + sizeof(ibv_rvh));
  ibv_srq_init_attr_ex attributes = srq_attributes();
  attributes.tm_cap = {device.tm_caps.max_num_tags, device.tm_caps.max_ops};
  ibv_srq* large = ibv_create_srq_ex(context, &attributes);
  ASSERT_NE(large, nullptr);
  std::vector<ibv_sge> sges(device.tm_caps.max_sge, piece(0, 1));
  for (std::uint32_t i = 0; i <= device.tm_caps.max_num_tags; ++i) {
    ibv_ops_wr wr = operation(IBV_WR_TAG_ADD);
    wr.flags = 0;
    wr.tm.add = {i, sges.data(), static_cast<int>(sges.size()), i, exact};
    ibv_ops_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_ops(large, &wr, &bad), i < device.tm_caps.max_num_tags ? 0 : ENOMEM);
  }
  EXPECT_EQ(ibv_destroy_srq(large), 0);
}

TEST_F(Tags, EagerUnexpectedAndWithoutATag) {
  add(5, 42, piece(1024, 512), IBV_OPS_SIGNALED);
  expect_tagged(70, IBV_WC_TM_ADD, 0);
  send(IBV_TMH_EAGER, 42, 116);
  expect_tagged(5, IBV_WC_TM_RECV, whole, 42);
  expect(7, IBV_WC_SEND);
  EXPECT_TRUE(equal(16, 1024, 100));

  post_ordinary(8, 2048);
  send(IBV_TMH_EAGER, 43, 116);
  expect_tagged(8, IBV_WC_TM_RECV, 0);
  EXPECT_TRUE(equal(0, 2048, 116));
  // The message may be for the tag that is added now.
  add(6, 43, piece(1024, 512), IBV_OPS_SIGNALED);
  expect_tagged(70, IBV_WC_TM_ADD, IBV_WC_TM_SYNC_REQ);
  post_ordinary(9, 2048);
  send(IBV_TMH_EAGER, 43, 116);
  expect_tagged(9, IBV_WC_TM_RECV, 0);
  synchronize(2);
  send(IBV_TMH_EAGER, 43, 116);
  expect_tagged(6, IBV_WC_TM_RECV, whole, 43);

  add(6, 43, piece(1024, 512));
  post_ordinary(10, 2048);
  send(IBV_TMH_NO_TAG, 43, 116);
  expect_tagged(10, IBV_WC_TM_NO_TAG, 0);
}

TEST_F(Tags, RendezvousIsTheDevicesOwn) {
  add(5, 42, piece(4096, 512));
  ASSERT_EQ(receive(a, 3, 2048, 64), 0);
  ibv_rvh where = {};
  where.va = htobe64(at(1024));
  where.rkey = htobe32(mr->rkey);
  where.len = htobe32(300);
  std::memcpy(&memory[16], &where, sizeof where);
  send(IBV_TMH_RNDV, 42, 48);
  expect_tagged(5, IBV_WC_TM_RECV, IBV_WC_TM_MATCH, 42);
  expect_tagged(5, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
  EXPECT_TRUE(equal(1024, 4096, 300));
  expect(7, IBV_WC_SEND);
  expect(3, IBV_WC_RECV);
  ibv_tmh answer = {};
  std::memcpy(&answer, &memory[2048], sizeof answer);
  EXPECT_EQ(answer.opcode, IBV_TMH_FIN);
  EXPECT_EQ(answer.app_ctx, htobe32(0xABCD));
  EXPECT_EQ(answer.tag, htobe64(42));
}

TEST_F(Tags, RemovedTagsMatchNothing) {
  const std::uint32_t handle = add(5, 42, piece(1024, 512));
  ibv_ops_wr wr = operation(IBV_WR_TAG_DEL);
  wr.tm.handle = handle;
  ASSERT_EQ(operate(wr), 0);
  expect_tagged(70, IBV_WC_TM_DEL, 0);
  ASSERT_EQ(operate(wr), 0);
  expect_tagged(70, IBV_WC_TM_DEL, 0, 0, IBV_WC_TM_ERR);
  post_ordinary(8, 2048);
  send(IBV_TMH_EAGER, 42, 116);
  expect_tagged(8, IBV_WC_TM_RECV, 0);
}

TEST_F(Tags, WhatIsRefused) {
  const auto create_srq = [&](auto change) {
    ibv_srq_init_attr_ex attributes = srq_attributes();
    change(attributes);
    EXPECT_EQ(ibv_create_srq_ex(context, &attributes), nullptr);
    EXPECT_EQ(errno, EINVAL);
  };
  create_srq([](auto& attributes) { attributes.comp_mask &= ~unsigned{IBV_SRQ_INIT_ATTR_TM}; });
  create_srq([](auto& attributes) { attributes.comp_mask &= ~unsigned{IBV_SRQ_INIT_ATTR_CQ}; });
  create_srq([](auto& attributes) { attributes.cq = nullptr; });
  create_srq([](auto& attributes) { attributes.pd = nullptr; });
  create_srq([](auto& attributes) { attributes.tm_cap.max_num_tags = 0; });
  create_srq([](auto& attributes) { attributes.tm_cap.max_num_tags = ~0u; });
  create_srq([](auto& attributes) { attributes.tm_cap.max_ops = ~0u; });
  EXPECT_EQ(create(IBV_QPT_UC, 0, srq), nullptr);
  EXPECT_EQ(create(IBV_QPT_UD, 0, srq), nullptr);

  std::array<ibv_sge, 5> sges;
  sges.fill(piece(0, 1));
  const auto refuse = [&](auto change) {
    ibv_ops_wr wr = operation(IBV_WR_TAG_ADD);
    wr.tm.add = {1, sges.data(), 1, 1, exact};
    change(wr);
    EXPECT_EQ(operate(wr), EINVAL);
  };
  refuse([](auto& wr) { wr.opcode = static_cast<ibv_ops_wr_opcode>(3); });
  refuse([](auto& wr) { wr.flags = 1 << 9; });
  refuse([](auto& wr) { wr.tm.add.num_sge = -1; });
  refuse([](auto& wr) { wr.tm.add.num_sge = 5; });
  refuse([](auto& wr) { wr.tm.add.sg_list = nullptr; });
  ibv_ops_wr wr = operation(IBV_WR_TAG_SYNC);
  ibv_srq_init_attr basic = {nullptr, {4, 1, 0}};
  ibv_srq* other = ibv_create_srq(pd, &basic);
  ibv_ops_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_ops(other, &wr, &bad), EINVAL) << "it has no list";
  EXPECT_EQ(bad, &wr);
  EXPECT_EQ(ibv_destroy_srq(other), 0);
}

}  // namespace
}  // namespace tulle::shim

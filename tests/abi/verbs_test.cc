// The C API over a loopback device: what programs do, in one process and in order.

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

namespace {

constexpr int all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr std::uint32_t qkey = 0x1111'1111;

// An open device with two queue pairs that talk to each other, as far as a test asks for it.
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

TEST_F(Verbs, DeviceAnswersForItself) {
  ibv_device_attr_ex attributes = {};
  ASSERT_EQ(ibv_query_device_ex(context, nullptr, &attributes), 0);
  EXPECT_EQ(attributes.orig_attr.phys_port_cnt, 1);
  EXPECT_EQ(attributes.orig_attr.node_guid, ibv_get_device_guid(context->device));
  EXPECT_EQ(attributes.device_cap_flags_ex, attributes.orig_attr.device_cap_flags);
  EXPECT_EQ(attributes.odp_caps.general_caps, 0u);
  ibv_port_attr port = {};
  ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.active_mtu, IBV_MTU_1024);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.flags & IBV_QPF_GRH_REQUIRED, IBV_QPF_GRH_REQUIRED);
  EXPECT_EQ(ibv_query_port(context, 2, &port), EINVAL);
  EXPECT_STREQ(ibv_get_device_name(context->device), "tulle0");
  EXPECT_STREQ(context->device->dev_name, "uverbs0");
}

TEST_F(Verbs, GidsAreListed) {
  std::array<ibv_gid_entry, 4> entries;
  ASSERT_EQ(ibv_query_gid_table(context, entries.data(), entries.size(), 0), 2);
  EXPECT_EQ(entries[0].gid_type, IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(entries[0].gid.raw[12], 127);
  EXPECT_EQ(entries[1].gid_index, 1u);
  EXPECT_EQ(entries[1].ndev_ifindex, 1u);
  ibv_gid gid;
  ASSERT_EQ(ibv_query_gid(context, 1, 1, &gid), 0);
  EXPECT_EQ(std::memcmp(&gid, &entries[1].gid, sizeof gid), 0);
  ASSERT_EQ(ibv_query_gid(context, 1, 9, &gid), 0);
  EXPECT_EQ(gid.global.interface_id, 0u);
  __be16 pkey = 0;
  ASSERT_EQ(ibv_query_pkey(context, 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xFFFF);
  EXPECT_EQ(ibv_get_pkey_index(context, 1, pkey), 0);
}

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
  // The queue is full: eight and no more.
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
  wr.wr.ud = {ah, b->qp_num, qkey};
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
  attributes.is_global = 0;
  EXPECT_EQ(ibv_create_ah(pd, &attributes), nullptr);
}

TEST_F(Verbs, SharedReceiveQueueServesAndWarns) {
  ibv_srq_init_attr init = {nullptr, {8, 2, 0}};
  ibv_srq* srq = ibv_create_srq(pd, &init);
  ASSERT_NE(srq, nullptr);
  a = create(IBV_QPT_RC);
  b = create(IBV_QPT_RC, 0, srq);
  connect(a, b);
  connect(b, a);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ibv_sge sge = piece(4096 + 64 * i, 64);
    ibv_recv_wr wr = {i, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  }
  ibv_srq_attr attributes = {0, 0, 3};
  ASSERT_EQ(ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT), 0);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge, 0);
  ASSERT_EQ(post(a, wr), 0);
  expect(0, IBV_WC_RECV);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, srq);
  ASSERT_EQ(ibv_query_srq(srq, &attributes), 0);
  EXPECT_EQ(attributes.max_wr, 8u);
  EXPECT_EQ(attributes.srq_limit, 0u);
  EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
  ASSERT_EQ(ibv_destroy_qp(b), 0);
  qps.pop_back();
  ibv_ack_async_event(&event);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(Verbs, EventsWakeAndAreAcknowledged) {
  create_pair(IBV_QPT_RC);
  pollfd readable = {channel->fd, POLLIN, 0};
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  EXPECT_EQ(::poll(&readable, 1, 0), 0);
  ASSERT_EQ(receive(b, 1, 4096, 64), 0);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  ASSERT_EQ(post(a, wr), 0);
  EXPECT_EQ(::poll(&readable, 1, 1000), 1);
  ibv_cq* event_cq = nullptr;
  void* event_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel, &event_cq, &event_context), 0);
  EXPECT_EQ(event_cq, cq);
  EXPECT_EQ(event_context, this);
  EXPECT_EQ(::poll(&readable, 1, 0), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);
  ASSERT_EQ(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), 0);
  EXPECT_EQ(ibv_get_cq_event(channel, &event_cq, &event_context), -1);
  EXPECT_EQ(errno, EAGAIN);
  // Destroying the queue waits for the acknowledgement, which here comes from elsewhere.
  for (ibv_qp* qp : qps) ASSERT_EQ(ibv_destroy_qp(qp), 0);
  qps.clear();
  ibv_cq* old = cq;
  std::thread late([old] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ibv_ack_cq_events(old, 1);
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(40));
  late.join();
  cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
}

TEST_F(Verbs, EventsThatNobodyTookAreForgotten) {
  create_pair(IBV_QPT_RC);
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  wr.wr.rdma = {at(4096), mr->rkey + 1};  // no such key
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
  ibv_qp_attr attributes;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(a, &attributes, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(init.cap.max_send_wr, 8u);
  // Both a completion event and an asynchronous one wait now. TearDown destroys everything.
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

  // One of two is wrong: none runs.
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

  // More than the queue holds.
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
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);  // to nobody
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
  init.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
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

TEST_F(Verbs, MemoryIsRegisteredAgain) {
  const std::uint32_t old_key = mr->rkey;
  EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory.data(), 64, 0), 0);
  EXPECT_NE(mr->rkey, old_key);
  EXPECT_EQ(mr->length, 64u);
  ibv_pd* other = ibv_alloc_pd(context);
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
  EXPECT_EQ(mr->pd, other);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, nullptr, 0, 0), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  ibv_mr* named = ibv_reg_mr_iova(pd, memory.data(), 64, 0x1000, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(named, nullptr);
  EXPECT_EQ(ibv_dereg_mr(named), 0);
  ibv_mr* relaxed =
      ibv_reg_mr(pd, memory.data(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  ASSERT_NE(relaxed, nullptr);
  EXPECT_EQ(ibv_dereg_mr(relaxed), 0);
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

TEST_F(Verbs, QueuePairsClimbTheLadder) {
  a = create(IBV_QPT_RC);
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(a, &attributes, IBV_QP_STATE), EINVAL);
  attributes.qp_state = IBV_QPS_UNKNOWN;
  EXPECT_EQ(ibv_modify_qp(a, &attributes, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(ibv_modify_qp(a, &attributes, 1 << 30), EINVAL);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  EXPECT_EQ(post(a, wr), EINVAL);
  connect(a, a);
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(a, &attributes, 0, &init), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attributes.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attributes.dest_qp_num, a->qp_num);
  EXPECT_EQ(attributes.ah_attr.grh.dgid.raw[12], 127);
  EXPECT_EQ(attributes.timeout, 14);
  EXPECT_EQ(attributes.max_rd_atomic, 4);
  EXPECT_EQ(attributes.sq_draining, 0);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_EQ(init.send_cq, cq);
  // What is posted to a queue pair in error is flushed.
  attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a, &attributes, IBV_QP_STATE), 0);
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_SEND, IBV_WC_WR_FLUSH_ERR);
  attributes.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(a, &attributes, IBV_QP_STATE), 0);
  EXPECT_EQ(a->state, IBV_QPS_RESET);
}

TEST_F(Verbs, TypesThatAreNotOfferedAreRefused) {
  for (const ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_DRIVER}) {
    EXPECT_EQ(create(type), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  EXPECT_EQ(create(static_cast<ibv_qp_type>(77)), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Verbs, OverrunQueueSaysSo) {
  ibv_cq* small = ibv_create_cq(context, 1, nullptr, nullptr, 0);
  ibv_cq* large = cq;
  cq = small;
  create_pair(IBV_QPT_RC);
  ibv_sge sge = piece(0, 8);
  for (int i = 0; i < 2; ++i) {
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
    wr.wr.rdma = {at(4096), mr->rkey};
    (void)post(a, wr);
  }
  bool cq_error = false;
  ASSERT_EQ(fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
  for (ibv_async_event event; ibv_get_async_event(context, &event) == 0;) {
    if (event.event_type == IBV_EVENT_CQ_ERR) {
      cq_error = true;
      EXPECT_EQ(event.element.cq, small);
    }
    ibv_ack_async_event(&event);
  }
  EXPECT_TRUE(cq_error);
  for (ibv_qp* qp : qps) ASSERT_EQ(ibv_destroy_qp(qp), 0);
  qps.clear();
  EXPECT_EQ(ibv_destroy_cq(small), 0);
  cq = large;
}

TEST_F(Verbs, ResizedQueueKeepsItsCompletions) {
  create_pair(IBV_QPT_RC);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  wr.wr.rdma = {at(4096), mr->rkey};
  ASSERT_EQ(post(a, wr), 0);
  ASSERT_EQ(post(a, wr), 0);
  EXPECT_EQ(ibv_resize_cq(cq, 1), EINVAL);
  ASSERT_EQ(ibv_resize_cq(cq, 128), 0);
  EXPECT_EQ(cq->cqe, 128);
  expect(7, IBV_WC_RDMA_WRITE);
  expect(7, IBV_WC_RDMA_WRITE);
}

TEST(Device, ClosingTakesWhatIsLeftAlong) {
  ibv_device** devices = ibv_get_device_list(nullptr);
  ASSERT_NE(devices, nullptr);
  ibv_context* context = ibv_open_device(devices[0]);
  ibv_context* second = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  ASSERT_NE(context, nullptr);
  ASSERT_NE(second, nullptr);
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_cq* cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
  ibv_srq_init_attr srq_init = {nullptr, {4, 1, 0}};
  ibv_srq* srq = ibv_create_srq(pd, &srq_init);
  ibv_qp_init_attr init = {nullptr, cq, cq, srq, {4, 4, 1, 1, 0}, IBV_QPT_RC, 0};
  ASSERT_NE(ibv_create_qp(pd, &init), nullptr);
  static std::array<char, 64> memory;
  ASSERT_NE(ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE), nullptr);
  ASSERT_NE(ibv_alloc_mw(pd, IBV_MW_TYPE_1), nullptr);
  // The protection domain of one context is none of the other's.
  ibv_cq* foreign = ibv_create_cq(second, 4, nullptr, nullptr, 0);
  init.send_cq = foreign;
  EXPECT_EQ(ibv_create_qp(pd, &init), nullptr);
  EXPECT_EQ(ibv_close_device(context), 0);
  EXPECT_EQ(ibv_destroy_cq(foreign), 0);
  EXPECT_EQ(ibv_close_device(second), 0);
}

TEST(Device, WithoutAnAgentThereIsAReason) {
  ASSERT_EQ(setenv("TULLE_TEST_NO_AGENT", "1", 1), 0);
  testing::internal::CaptureStderr();
  int count = 5;
  EXPECT_EQ(ibv_get_device_list(&count), nullptr);
  EXPECT_EQ(errno, ENOSYS);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(ibv_get_device_list(&count), nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tulle: no agent answers, and none can be started\n");
  ASSERT_EQ(unsetenv("TULLE_TEST_NO_AGENT"), 0);
}

TEST(Names, AreTheOnesThatProgramsPrint) {
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
  EXPECT_STREQ(ibv_wc_status_str(static_cast<ibv_wc_status>(31)), "unknown");
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
  EXPECT_STREQ(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_GID_CHANGE), "GID table change");
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_5_GBPS), 2);
  EXPECT_EQ(mult_to_ibv_rate(2), IBV_RATE_5_GBPS);
  EXPECT_EQ(mult_to_ibv_rate(-1), IBV_RATE_MAX);
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
  EXPECT_EQ(mbps_to_ibv_rate(103125), IBV_RATE_100_GBPS);
}

}  // namespace

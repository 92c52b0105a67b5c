// Tests the C API over a loopback device: what a device says of itself, how objects are created and
// destroyed, and events.

#include <fcntl.h>
#include <poll.h>

#include <chrono>
#include <functional>
#include <thread>

#include "verbs_fixture.h"

namespace tulle::shim {
namespace {

TEST_F(Verbs, DeviceAnswersForItself) {
  ibv_device_attr_ex attributes = {};
  ASSERT_EQ(ibv_query_device_ex(context, nullptr, &attributes), 0);
  EXPECT_EQ(attributes.orig_attr.phys_port_cnt, 1);
  EXPECT_EQ(attributes.orig_attr.node_guid, ibv_get_device_guid(context->device));
  EXPECT_EQ(attributes.device_cap_flags_ex, attributes.orig_attr.device_cap_flags);
  EXPECT_EQ(attributes.orig_attr.max_pd, 1 << 20);
  EXPECT_EQ(attributes.orig_attr.max_ah, 1 << 20);
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

// A verb that is refused says why.
class Refusals : public Verbs {
 protected:
  void SetUp() override {
    Verbs::SetUp();
    a = create(IBV_QPT_RC);
    b = create(IBV_QPT_RC);
    ASSERT_EQ(to_init(a), 0);
    to_rtr.qp_state = IBV_QPS_RTR;
    to_rtr.path_mtu = IBV_MTU_1024;
    to_rtr.dest_qp_num = b->qp_num;
    to_rtr.max_dest_rd_atomic = 1;
    to_rtr.ah_attr = path();
  }
  void expect_refused(const std::string& why, int error = EINVAL, int mask = rtr_mask) {
    unsetenv("TULLE_TEST_REFUSAL");
    EXPECT_EQ(ibv_modify_qp(a, &to_rtr, mask), error);
    EXPECT_EQ(errno, error);
    expect_said("ibv_modify_qp: " + std::string(std::strerror(error)) + ": " + why);
  }
  static void expect_said(const std::string& wanted) {
    const char* said = std::getenv("TULLE_TEST_REFUSAL");
    ASSERT_NE(said, nullptr);
    EXPECT_TRUE(std::string(said).starts_with(wanted)) << said;
  }

  static constexpr int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  ibv_qp_attr to_rtr = {};
};

TEST_F(Refusals, OfAStep) {
  expect_refused("the step from INIT to RTR needs IBV_QP_AV, IBV_QP_RQ_PSN", EINVAL,
                 rtr_mask & ~(IBV_QP_AV | IBV_QP_RQ_PSN));
  expect_refused("the step from INIT to RTR does not take IBV_QP_TIMEOUT", EINVAL,
                 rtr_mask | IBV_QP_TIMEOUT);
  expect_refused("attr_mask 0x40000001 has unknown bits", EINVAL, 0x4000'0001);
  to_rtr.qp_state = IBV_QPS_RTS;
  expect_refused("there is no step from INIT to RTS");
  to_rtr.qp_state = IBV_QPS_UNKNOWN;
  expect_refused("qp_state 7 is no state");
}

TEST_F(Refusals, OfAValue) {
  const ibv_qp_attr right = to_rtr;
  to_rtr.path_mtu = IBV_MTU_4096;
  expect_refused("path_mtu is 4096 and the port's active_mtu 1024");
  to_rtr.path_mtu = static_cast<ibv_mtu>(7);
  expect_refused("path_mtu 7 is no enum ibv_mtu");
  to_rtr = right;
  to_rtr.max_dest_rd_atomic = 255;
  expect_refused("max_dest_rd_atomic is 255, and ");
  to_rtr = right;
  to_rtr.min_rnr_timer = 32;
  expect_refused("min_rnr_timer is 32, and 31 is the most");
  to_rtr = right;
  to_rtr.ah_attr.is_global = 0;
  expect_refused("ah_attr.is_global is 0; RoCE needs a GRH");
  to_rtr = right;
  to_rtr.ah_attr.grh.sgid_index = 3;
  expect_refused("there is no GID at ah_attr.grh.sgid_index 3");
  to_rtr.ah_attr.grh.sgid_index = 1;
  expect_refused("the GID at ah_attr.grh.sgid_index 1 is of IPv6, and ah_attr.grh.dgid is not");
  to_rtr = right;
  to_rtr.ah_attr.port_num = 2;
  expect_refused("ah_attr.port_num is 2; the device has ports 1 to 1");
  to_rtr = right;
  EXPECT_EQ(ibv_modify_qp(a, &to_rtr, rtr_mask), 0);
}

TEST_F(Refusals, OfObjects) {
  ibv_ah_attr nowhere = {};
  nowhere.port_num = 1;
  EXPECT_EQ(ibv_create_ah(pd, &nowhere), nullptr);
  expect_said("ibv_create_ah: Invalid argument: ah_attr.is_global is 0");
  EXPECT_EQ(ibv_reg_mr(pd, memory.data(), 0, IBV_ACCESS_LOCAL_WRITE), nullptr);
  expect_said("ibv_reg_mr: Invalid argument: the length is 0");
  EXPECT_EQ(ibv_reg_mr(pd, memory.data(), 8, IBV_ACCESS_REMOTE_WRITE), nullptr);
  expect_said(
      "ibv_reg_mr: Invalid argument: remote writes and atomics need IBV_ACCESS_LOCAL_WRITE");
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  EXPECT_EQ(ibv_reg_mr(pd, reinterpret_cast<void*>(4096), 8, 0), nullptr);
  expect_said("ibv_reg_mr: Bad address: the memory is not mapped");
  ibv_qp_init_attr wanted = {};
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {1, 1, 1'000, 1, 0};
  EXPECT_EQ(ibv_create_qp(pd, &wanted), nullptr);
  expect_said("ibv_create_qp: Invalid argument: cap.max_send_sge is 1000, and ");
}

class RefusedWork : public Refusals {
 protected:
  void SetUp() override {
    Refusals::SetUp();
    sge = piece(0, 8);
  }
  void expect_no_send(ibv_qp* qp, ibv_send_wr wr, const std::string& why, int error = EINVAL) {
    unsetenv("TULLE_TEST_REFUSAL");
    EXPECT_EQ(post(qp, wr), error);
    expect_said("ibv_post_send: " + std::string(std::strerror(error)) + ": " + why);
  }
  void expect_no_receive(ibv_qp* qp, ibv_sge* list, int count, const std::string& why,
                         int error = EINVAL) {
    unsetenv("TULLE_TEST_REFUSAL");
    ibv_recv_wr wr = {1, nullptr, list, count};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(qp, &wr, &bad), error);
    EXPECT_EQ(bad, &wr);
    expect_said("ibv_post_recv: " + std::string(std::strerror(error)) + ": " + why);
  }
  ibv_sge sge = {};
};

TEST_F(RefusedWork, OfAState) {
  expect_no_send(a, request(IBV_WR_SEND, &sge), "the queue pair is in INIT, and sends are posted ");
  expect_no_receive(create(IBV_QPT_RC), &sge, 1, "the queue pair is in RESET, and receives are ");
}

TEST_F(RefusedWork, OfAShape) {
  create_pair(IBV_QPT_RC);
  ibv_send_wr wr = request(static_cast<ibv_wr_opcode>(10), &sge);
  expect_no_send(a, wr, "opcode 10 is not offered", EOPNOTSUPP);
  expect_no_send(a, request(IBV_WR_SEND, &sge, 0x80), "send_flags 0x80 has flags that are not ");
  wr = request(IBV_WR_SEND, nullptr);
  wr.num_sge = 2;
  expect_no_send(a, wr, "sg_list is null, and num_sge 2");
  std::array<ibv_sge, 17> many;
  many.fill(sge);
  wr.sg_list = many.data();
  wr.num_sge = 17;
  expect_no_send(a, wr, "num_sge is 17, and 16 is the most");
  expect_no_receive(a, many.data(), 17, "num_sge is 17, and 16 is the most");
  wr.num_sge = 5;
  expect_no_send(a, wr, "num_sge is 5, and 4 is the most");
  expect_no_receive(a, many.data(), 5, "num_sge is 5, and 4 is the most");
  expect_no_send(a, request(IBV_WR_RDMA_READ, &sge, IBV_SEND_INLINE), "a READ has IBV_SEND_INLINE");
  ibv_sge long_piece = piece(0, 65);
  expect_no_send(a, request(IBV_WR_SEND, &long_piece, IBV_SEND_INLINE),
                 "65 bytes are inline, and max_inline_data is 64");
  long_piece.length = 1u << 31;
  expect_no_send(a, request(IBV_WR_SEND, &long_piece), "the message has 2147483648 bytes, and ");
  expect_no_send(a, request(IBV_WR_ATOMIC_WRITE, nullptr), "num_sge is 0: no value");
  expect_no_send(a, request(IBV_WR_BIND_MW, nullptr), "bind_mw.mw is null");
}

TEST_F(RefusedWork, OfAType) {
  create_pair(IBV_QPT_UC);
  expect_no_send(a, request(IBV_WR_RDMA_READ, &sge), "a queue pair of type UC has no READ");
  create_pair(IBV_QPT_UD);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  wr.wr.ud.ah = nullptr;
  expect_no_send(a, wr, "wr.ud.ah is null");
  ibv_srq_init_attr init = {nullptr, {8, 2, 0}};
  ibv_srq* srq = ibv_create_srq(pd, &init);
  ibv_qp* shared = create(IBV_QPT_RC, 0, srq);
  expect_no_receive(shared, &sge, 1, "the queue pair receives from a shared receive queue");
  ASSERT_EQ(ibv_destroy_qp(shared), 0);
  qps.pop_back();
  std::array<ibv_sge, 3> many = {sge, sge, sge};
  ibv_recv_wr receive = {1, nullptr, many.data(), 3};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(srq, &receive, &bad), EINVAL);
  expect_said("ibv_post_srq_recv: Invalid argument: num_sge is 3, and 2 is the most");
  ASSERT_EQ(ibv_destroy_srq(srq), 0);
}

// Programs fill queues on purpose, over and over. The first time is reported.
TEST_F(RefusedWork, OfAFullQueueIsToldOnce) {
  create_pair(IBV_QPT_RC);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(receive(a, 1, 0, 8), 0);
  expect_no_receive(a, &sge, 1, "the receive queue is full: it has 8 requests, until one of them ",
                    ENOMEM);
  unsetenv("TULLE_TEST_REFUSAL");
  EXPECT_EQ(receive(a, 1, 0, 8), ENOMEM);
  EXPECT_EQ(std::getenv("TULLE_TEST_REFUSAL"), nullptr);
  expect_no_send(a, request(IBV_WR_SEND, &sge, 0x80), "send_flags 0x80 has flags that are not ");
}

TEST_F(RefusedWork, OfBuilders) {
  create_pair(IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(a);
  const auto expect_incomplete = [&](const std::string& why, int error) {
    EXPECT_EQ(ibv_wr_complete(qp), error);
    expect_said("ibv_wr_complete: " + std::string(std::strerror(error)) + ": " + why);
  };
  ibv_wr_start(qp);
  ibv_wr_rdma_read(qp, mr->rkey, at(0));
  expect_incomplete("the queue pair was created without this operation", EOPNOTSUPP);
  ibv_wr_start(qp);
  ibv_wr_set_sge(qp, mr->lkey, at(0), 8);
  expect_incomplete("a setter was called without a builder", EINVAL);
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  const std::array<ibv_sge, 5> many = {sge, sge, sge, sge, sge};
  ibv_wr_set_sge_list(qp, many.size(), many.data());
  expect_incomplete("num_sge is 5, and 4 is the most", EINVAL);
  ibv_wr_start(qp);
  for (int i = 0; i < 9; ++i) ibv_wr_send(qp);
  expect_incomplete("the send queue has no room for all requests", ENOMEM);
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
  // Destroying the queue waits for the acknowledgement, which another thread gives here.
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

TEST_F(Verbs, ModeratedEventsWait) {
  ibv_device_attr_ex attributes = {};
  ASSERT_EQ(ibv_query_device_ex(context, nullptr, &attributes), 0);
  EXPECT_GE(attributes.cq_mod_caps.max_cq_count, 2);
  create_pair(IBV_QPT_RC);
  ibv_modify_cq_attr change = {IBV_CQ_ATTR_MODERATE, {3, 20'000}};
  ASSERT_EQ(ibv_modify_cq(cq, &change), 0);
  const auto write = [&] {
    ibv_sge sge = piece(0, 8);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
    wr.wr.rdma = {at(4096), mr->rkey};
    ASSERT_EQ(post(a, wr), 0);
  };
  const auto take_event = [&] {
    ibv_cq* event_cq = nullptr;
    void* event_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel, &event_cq, &event_context), 0);
    ibv_ack_cq_events(event_cq, 1);
  };
  pollfd readable = {channel->fd, POLLIN, 0};
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  for (int i = 0; i < 2; ++i) write();
  EXPECT_EQ(::poll(&readable, 1, 0), 0);
  write();
  EXPECT_EQ(::poll(&readable, 1, 0), 1);
  take_event();
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  write();
  ibv_wc wc;
  while (ibv_poll_cq(cq, 1, &wc) == 1) {
  }  // a poll that finds nothing makes this device look at its clock
  EXPECT_EQ(::poll(&readable, 1, 0), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(25));
  while (ibv_poll_cq(cq, 1, &wc) == 1) {
  }
  EXPECT_EQ(::poll(&readable, 1, 0), 1);
  take_event();
}

TEST_F(Verbs, EventsThatNobodyTookAreForgotten) {
  create_pair(IBV_QPT_RC);
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  wr.wr.rdma = {at(4096), mr->rkey + 1};  // no region has this key
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
  ibv_qp_attr attributes;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(a, &attributes, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(init.cap.max_send_wr, 8u);
  // Both a completion event and an asynchronous one wait now. TearDown destroys everything.
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
  // A request that is posted to a queue pair in error is flushed.
  attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a, &attributes, IBV_QP_STATE), 0);
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_SEND, IBV_WC_WR_FLUSH_ERR);
  attributes.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(a, &attributes, IBV_QP_STATE), 0);
  EXPECT_EQ(a->state, IBV_QPS_RESET);
}

// The queue pair has failed, and the program has not asked for its state since.
TEST_F(Verbs, TheStateInTheStructIsWhatWasLastAskedFor) {
  create_pair(IBV_QPT_RC);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  wr.wr.rdma = {at(0), mr->rkey ^ 1};
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(a, &attributes, IBV_QP_CAP, &init), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(a->state, IBV_QPS_RTS);
  ASSERT_EQ(ibv_query_qp(a, &attributes, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(a->state, IBV_QPS_ERR);
}

// Programs print errno after a verb that returned its error.
TEST_F(Verbs, AnErrorThatIsReturnedIsInErrnoToo) {
  a = create(IBV_QPT_RC);
  ASSERT_EQ(to_init(a), 0);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr send = request(IBV_WR_SEND, &sge);
  ibv_send_wr* bad_send = nullptr;
  std::array<ibv_sge, 17> many = {};
  ibv_recv_wr receive = {1, nullptr, many.data(), static_cast<int>(many.size())};
  ibv_recv_wr* bad_receive = nullptr;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  ibv_srq_init_attr wanted = {nullptr, {4, 1, 0}};
  ibv_srq* srq = ibv_create_srq(pd, &wanted);
  ASSERT_NE(srq, nullptr);
  ibv_srq_attr limit = {0, 0, 5};
  ibv_modify_cq_attr moderation = {};
  moderation.attr_mask = 1 << 20;
  ibv_port_attr port = {};
  const std::array<std::pair<int, std::function<int()>>, 13> calls = {{
      {EINVAL, [&] { return ibv_post_send(a, &send, &bad_send); }},
      {EINVAL, [&] { return ibv_post_recv(a, &receive, &bad_receive); }},
      {EINVAL, [&] { return ibv_post_srq_recv(srq, &receive, &bad_receive); }},
      {EINVAL, [&] { return ibv_modify_qp(a, &attributes, IBV_QP_STATE); }},
      {EINVAL, [&] { return ibv_query_qp(a, nullptr, 0, nullptr); }},
      {EINVAL, [&] { return ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT); }},
      {EINVAL, [&] { return ibv_modify_cq(cq, &moderation); }},
      {EINVAL, [&] { return ibv_resize_cq(cq, 0); }},
      {EINVAL, [&] { return ibv_query_port(context, 2, &port); }},
      {EINVAL, [&] { return ibv_destroy_ah(nullptr); }},
      {EBUSY, [&] { return ibv_destroy_cq(cq); }},
      {EBUSY, [&] { return ibv_dealloc_pd(pd); }},
      {EBUSY, [&] { return ibv_destroy_comp_channel(channel); }},
  }};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    errno = ENOMEM;
    EXPECT_EQ(calls[i].second(), calls[i].first) << "call " << i;
    EXPECT_EQ(errno, calls[i].first) << "call " << i;
  }
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  errno = ENOMEM;
  EXPECT_EQ(ibv_query_port(context, 1, &port), 0);
  EXPECT_EQ(errno, ENOMEM) << "success leaves it alone";
}

TEST_F(Verbs, TypesThatAreNotOfferedAreRefused) {
  EXPECT_EQ(create(IBV_QPT_DRIVER), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
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
  // A queue pair cannot have a protection domain of one context and a completion queue of another.
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

// A kernel looks handles up. Programs that destroy twice, or name what never was, get an error.
TEST_F(Verbs, WhatIsNotThereIsRefused) {
  create_pair(IBV_QPT_RC);
  ibv_qp_init_attr plan = {};
  plan.send_cq = plan.recv_cq = cq;
  plan.qp_type = IBV_QPT_RC;
  plan.cap = {4, 4, 1, 1, 0};
  ibv_srq_init_attr srq_plan = {nullptr, {4, 1, 0}};
  ibv_ah_attr address = path();

  ibv_qp* const pair = ibv_create_qp(pd, &plan);
  ibv_cq* const queue = ibv_create_cq(context, 4, nullptr, nullptr, 0);
  ibv_srq* const shared = ibv_create_srq(pd, &srq_plan);
  ibv_ah* const handle = ibv_create_ah(pd, &address);
  ibv_mr* const region = ibv_reg_mr(pd, memory.data(), 8, IBV_ACCESS_LOCAL_WRITE);
  ibv_pd* const domain = ibv_alloc_pd(context);
  for (const int expected : {0, EINVAL, EINVAL}) {
    EXPECT_EQ(ibv_destroy_qp(pair), expected);
    EXPECT_EQ(ibv_destroy_cq(queue), expected);
    EXPECT_EQ(ibv_destroy_srq(shared), expected);
    EXPECT_EQ(ibv_destroy_ah(handle), expected);
    EXPECT_EQ(ibv_dereg_mr(region), expected);
    EXPECT_EQ(ibv_dealloc_pd(domain), expected);
  }
  ibv_qp_attr attributes = {};
  EXPECT_EQ(ibv_modify_qp(pair, &attributes, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(ibv_query_qp(pair, &attributes, IBV_QP_STATE, nullptr), EINVAL);
  ibv_srq_attr srq_attributes = {};
  EXPECT_EQ(ibv_modify_srq(shared, &srq_attributes, IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(ibv_query_srq(shared, &srq_attributes), EINVAL);

  alignas(64) static std::array<std::byte, 4'096> never{};
  const auto refused = [](const void* made) { return made == nullptr && errno == EINVAL; };
  auto* const nobody = reinterpret_cast<ibv_pd*>(never.data());
  EXPECT_TRUE(refused(ibv_create_qp(nobody, &plan)));
  EXPECT_TRUE(refused(ibv_create_srq(nobody, &srq_plan)));
  EXPECT_TRUE(refused(ibv_create_ah(nobody, &address)));
  EXPECT_TRUE(refused(ibv_reg_mr(nobody, memory.data(), 8, IBV_ACCESS_LOCAL_WRITE)));
  EXPECT_EQ(ibv_destroy_qp(reinterpret_cast<ibv_qp*>(never.data())), EINVAL);
  EXPECT_EQ(ibv_dereg_mr(reinterpret_cast<ibv_mr*>(8)), EINVAL);
  plan.send_cq = queue;
  EXPECT_TRUE(refused(ibv_create_qp(pd, &plan)));
  plan.send_cq = cq;
  plan.srq = shared;
  EXPECT_TRUE(refused(ibv_create_qp(pd, &plan)));
}

}  // namespace
}  // namespace tulle::shim

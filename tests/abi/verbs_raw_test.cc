// Tests the C API over a loopback device: raw packet queue pairs, flows, receive work queues.

#include <cerrno>
#include <cstdlib>

#include "verbs_fixture.h"

namespace tulle::shim {
namespace {

constexpr std::size_t frame_bytes = 64;

class Raw : public Verbs {
 protected:
  void TearDown() override {
    for (ibv_flow* flow : flows) EXPECT_EQ(ibv_destroy_flow(flow), 0);
    for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
    qps.clear();
    if (table != nullptr) {
      EXPECT_EQ(ibv_destroy_rwq_ind_table(table), 0);
    }
    for (ibv_wq* wq : wqs) EXPECT_EQ(ibv_destroy_wq(wq), 0);
    Verbs::TearDown();
  }

  static int to(ibv_qp* qp, ibv_qp_state state, int more = 0) {
    ibv_qp_attr attributes = {};
    attributes.qp_state = state;
    attributes.port_num = 1;
    return ibv_modify_qp(qp, &attributes, IBV_QP_STATE | more);
  }
  ibv_qp* ready(std::uint64_t operations = 0) {
    ibv_qp* qp = create(IBV_QPT_RAW_PACKET, operations);
    EXPECT_NE(qp, nullptr);
    if (qp == nullptr) return nullptr;
    EXPECT_EQ(to(qp, IBV_QPS_INIT, IBV_QP_PORT), 0);
    EXPECT_EQ(to(qp, IBV_QPS_RTR), 0);
    EXPECT_EQ(to(qp, IBV_QPS_RTS), 0);
    return qp;
  }

  struct [[gnu::packed]] Rule {
    ibv_flow_attr attributes = {};
    ibv_flow_spec_eth ethernet = {};
    Rule() {
      attributes.size = sizeof(Rule);
      attributes.num_of_specs = 1;
      attributes.port = 1;
      ethernet.type = IBV_FLOW_SPEC_ETH;
      ethernet.size = sizeof(ethernet);
      std::memset(ethernet.mask.dst_mac, 0xFF, sizeof(ethernet.mask.dst_mac));
      ethernet.val.dst_mac[0] = 1;
    }
  };
  ibv_flow* make(ibv_qp* qp, Rule& rule) {
    alignas(8) std::array<std::byte, sizeof(Rule)> bytes;
    std::memcpy(bytes.data(), &rule, sizeof(rule));
    ibv_flow* flow = ibv_create_flow(qp, reinterpret_cast<ibv_flow_attr*>(bytes.data()));
    if (flow != nullptr) flows.push_back(flow);
    return flow;
  }
  void refused(int error, ibv_qp* qp, Rule rule) {
    errno = 0;
    EXPECT_EQ(make(qp, rule), nullptr);
    EXPECT_EQ(errno, error);
  }

  // Returns a piece of one frame's length. post() sends a frame to the rule's address from offset
  // 0.
  ibv_sge sge(std::size_t offset) {
    return {reinterpret_cast<std::uintptr_t>(memory.data() + offset), frame_bytes, mr->lkey};
  }
  int post(ibv_qp* qp) {
    memory.front() = 1;
    std::memset(memory.data() + 1, 0, 5);
    ibv_sge from = sge(0);
    ibv_send_wr request = {};
    request.sg_list = &from;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &request, &bad);
  }
  ibv_wq_init_attr wq_attributes() {
    ibv_wq_init_attr out = {};
    out.wq_type = IBV_WQT_RQ;
    out.max_wr = 4;
    out.max_sge = 2;
    out.pd = pd;
    out.cq = cq;
    return out;
  }
  static int change(ibv_wq* wq, ibv_wq_state state) {
    ibv_wq_attr attributes = {};
    attributes.attr_mask = IBV_WQ_ATTR_STATE;
    attributes.wq_state = state;
    return ibv_modify_wq(wq, &attributes);
  }

  std::vector<ibv_flow*> flows;
  std::vector<ibv_wq*> wqs;
  ibv_rwq_ind_table* table = nullptr;
};

TEST_F(Raw, device_says_what_it_can) {
  ibv_device_attr_ex attributes = {};
  ASSERT_EQ(ibv_query_device_ex(context, nullptr, &attributes), 0);
  EXPECT_NE(attributes.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING, 0u);
  EXPECT_GT(attributes.orig_attr.max_raw_ethy_qp, 0);
  EXPECT_GT(attributes.max_wq_type_rq, 0u);
  EXPECT_EQ(attributes.rss_caps.supported_qpts, 1u << IBV_QPT_RAW_PACKET);
  EXPECT_EQ(attributes.raw_packet_caps, 0u);
}

TEST_F(Raw, without_the_privilege_nothing_is_offered) {
  ibv_qp* made_before = ready();
  setenv("TULLE_TEST_NO_PACKETS", "1", 1);
  ibv_device_attr_ex attributes = {};
  EXPECT_EQ(ibv_query_device_ex(context, nullptr, &attributes), 0);
  EXPECT_EQ(attributes.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING, 0u);
  EXPECT_EQ(attributes.orig_attr.max_raw_ethy_qp, 0);
  EXPECT_EQ(attributes.max_wq_type_rq, 0u);
  EXPECT_EQ(attributes.rss_caps.max_rwq_indirection_tables, 0u);
  errno = 0;
  EXPECT_EQ(create(IBV_QPT_RAW_PACKET), nullptr);
  EXPECT_EQ(errno, EPERM);
  refused(EPERM, made_before, Rule());
  ibv_wq_init_attr wq = wq_attributes();
  errno = 0;
  EXPECT_EQ(ibv_create_wq(context, &wq), nullptr);
  EXPECT_EQ(errno, EPERM);
  unsetenv("TULLE_TEST_NO_PACKETS");
}

TEST_F(Raw, climbs_with_a_port_and_nothing_else) {
  ibv_qp* qp = create(IBV_QPT_RAW_PACKET);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(to(qp, IBV_QPS_INIT), EINVAL);
  EXPECT_EQ(to(qp, IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_PKEY_INDEX), EINVAL);
  EXPECT_EQ(to(qp, IBV_QPS_INIT, IBV_QP_PORT), 0);
  EXPECT_EQ(post(qp), EINVAL);
  EXPECT_EQ(to(qp, IBV_QPS_RTR), 0);
  EXPECT_EQ(to(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN), EINVAL);
  EXPECT_EQ(to(qp, IBV_QPS_RTS), 0);
  EXPECT_EQ(qp->state, IBV_QPS_RTS);
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr init = {};
  EXPECT_EQ(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(init.qp_type, IBV_QPT_RAW_PACKET);
  EXPECT_EQ(attributes.port_num, 1);
}

TEST_F(Raw, a_frame_goes_by_the_rule) {
  ibv_qp* sender = ready(IBV_QP_EX_WITH_SEND);
  ibv_qp* receiver = ready();
  Rule rule;
  ASSERT_NE(make(receiver, rule), nullptr);
  EXPECT_EQ(ibv_destroy_qp(receiver), EBUSY);
  ibv_sge into = sge(1024);
  ibv_recv_wr receive = {};
  receive.wr_id = 9;
  receive.sg_list = &into;
  receive.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(receiver, &receive, &bad), 0);
  ASSERT_EQ(post(sender), 0);
  std::array<ibv_wc, 4> done;
  ASSERT_EQ(ibv_poll_cq(cq, 4, done.data()), 2);
  EXPECT_EQ(done[0].opcode, IBV_WC_SEND);
  EXPECT_EQ(done[1].opcode, IBV_WC_RECV);
  EXPECT_EQ(done[1].status, IBV_WC_SUCCESS);
  EXPECT_EQ(done[1].byte_len, frame_bytes);
  EXPECT_EQ(done[1].qp_num, receiver->qp_num);
  EXPECT_EQ(done[1].wc_flags, 0u);
  EXPECT_EQ(std::memcmp(memory.data(), memory.data() + 1024, frame_bytes), 0);
  // The builders send it too.
  ibv_qp_ex* extended = ibv_qp_to_qp_ex(sender);
  ASSERT_NE(extended, nullptr);
  ibv_wr_start(extended);
  extended->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(extended);
  ibv_wr_set_sge(extended, mr->lkey, reinterpret_cast<std::uintptr_t>(memory.data()), frame_bytes);
  EXPECT_EQ(ibv_wr_complete(extended), 0);
  EXPECT_EQ(ibv_poll_cq(cq, 4, done.data()), 1);
}

TEST_F(Raw, what_makes_no_rule_is_refused) {
  ibv_qp* qp = ready();
  EXPECT_EQ(ibv_create_flow(qp, nullptr), nullptr);
  Rule rule;
  rule.attributes.comp_mask = 1;
  refused(EINVAL, qp, rule);
  rule = {};
  rule.attributes.port = 2;
  refused(EINVAL, qp, rule);
  rule = {};
  rule.attributes.num_of_specs = 11;
  refused(EINVAL, qp, rule);
  rule = {};
  rule.attributes.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
  refused(EOPNOTSUPP, qp, rule);
  rule = {};
  rule.attributes.flags = 1;
  refused(EINVAL, qp, rule);
  rule = {};
  rule.attributes.type = IBV_FLOW_ATTR_SNIFFER;  // a sniffer takes no specification
  refused(EINVAL, qp, rule);
  rule = {};
  constexpr unsigned behind_the_last = 4;
  std::memcpy(&rule.attributes.type, &behind_the_last, sizeof(behind_the_last));
  refused(EINVAL, qp, rule);
  rule = {};
  rule.ethernet.size = sizeof(ibv_flow_spec_eth) - 1;
  refused(EINVAL, qp, rule);
  rule = {};
  rule.ethernet.type = static_cast<ibv_flow_spec_type>(IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER);
  refused(EOPNOTSUPP, qp, rule);
  rule = {};
  rule.ethernet.type = IBV_FLOW_SPEC_ACTION_TAG;
  refused(EOPNOTSUPP, qp, rule);
  rule = {};
  refused(EOPNOTSUPP, create(IBV_QPT_UD), rule);
  refused(EINVAL, create(IBV_QPT_RC), rule);
}

TEST_F(Raw, specifications_that_exclude_each_other_are_refused) {
  ibv_qp* qp = ready();
  struct {
    ibv_flow_attr attributes;
    ibv_flow_spec_ipv4 first;
    ibv_flow_spec_ipv4_ext second;
  } rule = {};
  rule.attributes.port = 1;
  rule.attributes.num_of_specs = 2;
  rule.first.type = IBV_FLOW_SPEC_IPV4;
  rule.first.size = sizeof(rule.first);
  rule.second.type = IBV_FLOW_SPEC_IPV4_EXT;
  rule.second.size = sizeof(rule.second);
  EXPECT_EQ(ibv_create_flow(qp, &rule.attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  rule.attributes.num_of_specs = 1;
  ibv_flow* flow = ibv_create_flow(qp, &rule.attributes);
  ASSERT_NE(flow, nullptr);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(Raw, work_queues_have_states) {
  ibv_wq_init_attr attributes = wq_attributes();
  ibv_wq* wq = ibv_create_wq(context, &attributes);
  ASSERT_NE(wq, nullptr);
  wqs.push_back(wq);
  ibv_sge into = sge(1024);
  ibv_recv_wr receive = {};
  receive.sg_list = &into;
  receive.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_wq_recv(wq, &receive, &bad), EINVAL);
  EXPECT_EQ(bad, &receive);
  EXPECT_EQ(change(wq, IBV_WQS_ERR), EINVAL);
  EXPECT_EQ(change(wq, IBV_WQS_UNKNOWN), EINVAL);
  EXPECT_EQ(change(wq, IBV_WQS_RDY), 0);
  EXPECT_EQ(wq->state, IBV_WQS_RDY);
  EXPECT_EQ(ibv_post_wq_recv(wq, &receive, &bad), 0);
  EXPECT_EQ(change(wq, IBV_WQS_ERR), 0);
  ibv_wc done;
  ASSERT_EQ(ibv_poll_cq(cq, 1, &done), 1);
  EXPECT_EQ(done.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(done.qp_num, wq->wq_num);
  EXPECT_EQ(change(wq, IBV_WQS_RDY), EINVAL);
  EXPECT_EQ(change(wq, IBV_WQS_RESET), 0);
  for (int i = 0; i < 4; ++i) {
    ibv_wq_init_attr wrong = wq_attributes();
    if (i == 0) wrong.pd = nullptr;
    if (i == 1) wrong.cq = nullptr;
    if (i == 2) wrong.max_wr = 1u << 30;
    if (i == 3) wrong.wq_type = static_cast<ibv_wq_type>(1);
    EXPECT_EQ(ibv_create_wq(context, &wrong), nullptr) << i;
    EXPECT_EQ(errno, EINVAL);
  }
}

TEST_F(Raw, frames_spread_over_work_queues) {
  for (int i = 0; i < 2; ++i) {
    ibv_wq_init_attr attributes = wq_attributes();
    wqs.push_back(ibv_create_wq(context, &attributes));
    ASSERT_NE(wqs.back(), nullptr);
    ASSERT_EQ(change(wqs.back(), IBV_WQS_RDY), 0);
    ibv_sge into = sge(1024);
    ibv_recv_wr receive = {};
    receive.sg_list = &into;
    receive.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_wq_recv(wqs.back(), &receive, &bad), 0);
  }
  ibv_rwq_ind_table_init_attr table_attributes = {12, wqs.data(), 0};
  EXPECT_EQ(ibv_create_rwq_ind_table(context, &table_attributes), nullptr);
  table_attributes.log_ind_tbl_size = 1;
  table = ibv_create_rwq_ind_table(context, &table_attributes);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(ibv_destroy_wq(wqs[0]), EBUSY);
  std::array<std::uint8_t, 40> key{};
  ibv_qp_init_attr_ex attributes = {};
  attributes.qp_type = IBV_QPT_RAW_PACKET;
  attributes.comp_mask =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  attributes.pd = pd;
  attributes.rwq_ind_tbl = table;
  attributes.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, 39, key.data(), IBV_RX_HASH_SRC_IPV4};
  EXPECT_EQ(ibv_create_qp_ex(context, &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attributes.rx_hash_conf.rx_hash_key_len = 40;
  attributes.rx_hash_conf.rx_hash_fields_mask |= IBV_RX_HASH_SRC_IPV6;
  EXPECT_EQ(ibv_create_qp_ex(context, &attributes), nullptr);
  attributes.rx_hash_conf.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4;
  attributes.send_cq = cq;
  EXPECT_EQ(ibv_create_qp_ex(context, &attributes), nullptr);
  attributes.send_cq = nullptr;
  ibv_qp* qp = ibv_create_qp_ex(context, &attributes);
  ASSERT_NE(qp, nullptr);
  qps.push_back(qp);
  EXPECT_EQ(to(qp, IBV_QPS_INIT, IBV_QP_PORT), EOPNOTSUPP);
  EXPECT_EQ(post(qp), EINVAL);
  EXPECT_EQ(ibv_destroy_rwq_ind_table(table), EBUSY);
  Rule rule;
  ASSERT_NE(make(qp, rule), nullptr);
  ASSERT_EQ(post(ready()), 0);
  std::array<ibv_wc, 4> done;
  ASSERT_EQ(ibv_poll_cq(cq, 4, done.data()), 2);
  // the frame has no IPv4 header, so it goes to the first entry
  EXPECT_EQ(done[1].qp_num, wqs[0]->wq_num);
}

// Closing a context destroys what the program left behind in it.
TEST_F(Raw, closing_takes_all_along) {
  ibv_context* other = ibv_open_device(context->device);
  ASSERT_NE(other, nullptr);
  ibv_pd* domain = ibv_alloc_pd(other);
  ibv_cq* completions = ibv_create_cq(other, 8, nullptr, nullptr, 0);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = completions;
  init.qp_type = IBV_QPT_RAW_PACKET;
  init.cap = {1, 1, 1, 1, 0};
  ibv_qp* qp = ibv_create_qp(domain, &init);
  ASSERT_NE(qp, nullptr);
  Rule rule;
  ASSERT_NE(make(qp, rule), nullptr);
  flows.clear();
  ibv_wq_init_attr attributes = wq_attributes();
  attributes.pd = domain;
  attributes.cq = completions;
  ibv_wq* wq = ibv_create_wq(other, &attributes);
  ASSERT_NE(wq, nullptr);
  ibv_rwq_ind_table_init_attr table_attributes = {0, &wq, 0};
  EXPECT_NE(ibv_create_rwq_ind_table(other, &table_attributes), nullptr);
  EXPECT_EQ(ibv_close_device(other), 0);
}

}  // namespace
}  // namespace tulle::shim

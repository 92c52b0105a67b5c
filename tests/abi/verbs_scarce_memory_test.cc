// Fails each allocation of each call in turn, over a loopback device. A call that gets no memory
// says so and leaves nothing behind, and the same call works when there is memory again.

#include <endian.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

#include "rdma/device/timer_queue.h"
#include "scarce_memory.h"
#include "scarce_probe.h"

namespace tulle::shim {
namespace {

using scarce_memory::Mode;
using scarce_memory::Probe;

constexpr int all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr std::uint32_t qkey = 0x1111'1111;
constexpr int loopback_polls_max = 200'000;  // a lost packet is sent again after the time-out

ibv_ah_attr path() {
  ibv_ah_attr attributes = {};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.dgid.raw[10] = attributes.grh.dgid.raw[11] = 0xFF;
  attributes.grh.dgid.raw[12] = 127;
  attributes.grh.dgid.raw[15] = 1;
  return attributes;
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

// A program's life with a device, each step of which runs under the probe.
class Program {
 public:
  explicit Program(Probe& probe) : probe(probe) {}

  void run(void (Program::*step)()) {
    open();
    if (context == nullptr) return;
    (this->*step)();
    close();
  }

  void connections() {
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
      ibv_qp* a = create(type);
      ibv_qp* b = create(type);
      connect(a, b);
      connect(b, a);
      for (int i = 0; i < 3; ++i) {
        ibv_sge sge = piece(0, 64);
        receive(b);
        post(a, request(IBV_WR_SEND, sge));
        expect(2);
        post(a, request(IBV_WR_RDMA_WRITE, sge));
        expect(1);
        if (type != IBV_QPT_RC) continue;
        post(a, request(IBV_WR_RDMA_READ, sge));
        expect(1);
        sge.length = 8;
        ibv_send_wr atomic = request(IBV_WR_ATOMIC_FETCH_AND_ADD, sge);
        atomic.wr.atomic = {reinterpret_cast<std::uintptr_t>(memory.data()) + 2048, 1, 0, mr->rkey};
        post(a, atomic);
        expect(1);
      }
      windows(a);
      modify(a, {}, IBV_QP_STATE);  // to reset
      destroy(a, b);
    }
  }

  void builders() {
    ibv_qp* a = create(IBV_QPT_RC, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE);
    ibv_qp* b = create(IBV_QPT_RC);
    connect(a, b);
    connect(b, a);
    receive(b);
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(a);
    EXPECT_EQ(probe("wr_complete",
                    [&] {
                      ibv_wr_start(qp);
                      qp->wr_id = 1;
                      qp->wr_flags = IBV_SEND_SIGNALED;
                      ibv_wr_rdma_write(qp, mr->rkey,
                                        reinterpret_cast<std::uintptr_t>(memory.data()) + 2048);
                      const std::array<ibv_sge, 2> sges = {piece(0, 8), piece(8, 8)};
                      ibv_wr_set_sge_list(qp, 2, sges.data());
                      ibv_wr_send(qp);
                      ibv_wr_set_inline_data(qp, memory.data(), 16);
                      return ibv_wr_complete(qp);
                    }),
              0);
    expect(3);
    destroy(a, b);
  }

  void datagrams() {
    ibv_qp* a = create(IBV_QPT_UD);
    ibv_qp* b = create(IBV_QPT_UD);
    connect(a, b);
    connect(b, a);
    ibv_ah_attr attributes = path();
    ibv_ah* ah = probe("create_ah", [&] { return ibv_create_ah(pd, &attributes); });
    ibv_gid group = {};
    group.raw[10] = group.raw[11] = 0xFF;
    group.raw[12] = 224;
    group.raw[15] = 9;
    EXPECT_EQ(probe("attach_mcast", [&] { return ibv_attach_mcast(b, &group, 0); }), 0);
    receive(b);
    ibv_sge sge = piece(0, 64);
    ibv_send_wr wr = request(IBV_WR_SEND, sge);
    wr.wr.ud = {ah, b->qp_num, qkey};
    post(a, wr);
    expect(2);
    EXPECT_EQ(probe("detach_mcast", [&] { return ibv_detach_mcast(b, &group, 0); }), 0);
    EXPECT_EQ(probe("destroy_ah", [&] { return ibv_destroy_ah(ah); }), 0);
    destroy(a, b);
  }

  void shared_queues() {
    ibv_srq_init_attr wanted = {};
    wanted.attr = {16, 2, 0};
    ibv_srq* srq = probe("create_srq", [&] { return ibv_create_srq(pd, &wanted); });
    ibv_srq_attr larger = {32, 0, 0};
    EXPECT_EQ(probe("modify_srq", [&] { return ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR); }), 0);
    ibv_qp* a = create(IBV_QPT_RC);
    ibv_qp* b = create(IBV_QPT_RC, 0, srq);
    connect(a, b);
    connect(b, a);
    receive(srq);
    EXPECT_EQ(probe("modify_srq", [&] { return ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR); }), 0);
    ibv_sge sge = piece(0, 64);
    post(a, request(IBV_WR_SEND, sge));
    expect(2);
    destroy(a, b);
    EXPECT_EQ(probe("destroy_srq", [&] { return ibv_destroy_srq(srq); }), 0);
  }

  void extended_connections() {
    ibv_xrcd_init_attr attributes = {};
    attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attributes.fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    attributes.oflags = O_CREAT;
    ibv_xrcd* xrcd = probe("open_xrcd", [&] { return ibv_open_xrcd(context, &attributes); });
    ::close(attributes.fd);
    ibv_srq_init_attr_ex wanted = {};
    wanted.attr = {16, 2, 0};
    wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                       IBV_SRQ_INIT_ATTR_CQ;
    wanted.srq_type = IBV_SRQT_XRC;
    wanted.pd = pd;
    wanted.xrcd = xrcd;
    wanted.cq = cq;
    ibv_srq* srq = probe("create_srq_ex", [&] { return ibv_create_srq_ex(context, &wanted); });
    ibv_qp* target = create(IBV_QPT_XRC_RECV, 0, nullptr, xrcd);
    ibv_qp* initiator = create(IBV_QPT_XRC_SEND);
    connect(initiator, target);
    connect(target, initiator);
    ibv_qp_open_attr known = {};
    known.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    known.qp_num = target->qp_num;
    known.xrcd = xrcd;
    known.qp_type = IBV_QPT_XRC_RECV;
    ibv_qp* again = probe("open_qp", [&] { return ibv_open_qp(context, &known); });
    receive(srq);
    std::uint32_t number = 0;
    EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
    ibv_sge sge = piece(0, 64);
    ibv_send_wr wr = request(IBV_WR_SEND, sge);
    wr.qp_type.xrc.remote_srqn = number;
    post(initiator, wr);
    expect(2);
    destroy(again, initiator, target);
    EXPECT_EQ(probe("destroy_srq", [&] { return ibv_destroy_srq(srq); }), 0);
    EXPECT_EQ(probe("close_xrcd", [&] { return ibv_close_xrcd(xrcd); }), 0);
  }

  void tags() {
    ibv_cq_init_attr_ex queue = {};
    queue.cqe = 64;
    queue.wc_flags = IBV_WC_STANDARD_FLAGS | std::uint64_t{IBV_WC_EX_WITH_TM_INFO} |
                     std::uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
    ibv_cq_ex* tags_cq = probe("create_cq_ex", [&] { return ibv_create_cq_ex(context, &queue); });
    ibv_srq_init_attr_ex wanted = {};
    wanted.attr = {16, 2, 0};
    wanted.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    wanted.srq_type = IBV_SRQT_TM;
    wanted.pd = pd;
    wanted.cq = ibv_cq_ex_to_cq(tags_cq);
    wanted.tm_cap = {4, 8};
    ibv_srq* srq = probe("create_srq_ex", [&] { return ibv_create_srq_ex(context, &wanted); });
    ibv_qp* a = create(IBV_QPT_RC);
    ibv_qp* b = create(IBV_QPT_RC, 0, srq);
    connect(a, b);
    connect(b, a);
    EXPECT_EQ(probe("post_srq_ops",
                    [&] {
                      ibv_sge sge = piece(4096, 256);
                      ibv_ops_wr wr = {};
                      wr.opcode = IBV_WR_TAG_ADD;
                      wr.tm.add = {9, &sge, 1, 77, ~std::uint64_t{0}};
                      ibv_ops_wr* bad = nullptr;
                      return ibv_post_srq_ops(srq, &wr, &bad);
                    }),
              0);
    ibv_tmh header = {};
    header.opcode = IBV_TMH_EAGER;
    header.tag = htobe64(77);
    std::memcpy(memory.data(), &header, sizeof header);
    ibv_sge sge = piece(0, 64);
    post(a, request(IBV_WR_SEND, sge));
    expect(1);
    destroy(a, b);
    EXPECT_EQ(probe("destroy_srq", [&] { return ibv_destroy_srq(srq); }), 0);
    EXPECT_EQ(probe("destroy_cq", [&] { return ibv_destroy_cq(ibv_cq_ex_to_cq(tags_cq)); }), 0);
  }

  void raw_packets() {
    ibv_qp* sender = create(IBV_QPT_RAW_PACKET);
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      raw_step(sender, state);
    }
    std::array<ibv_wq*, 2> queues;
    for (ibv_wq*& wq : queues) {
      ibv_wq_init_attr wanted = {};
      wanted.wq_type = IBV_WQT_RQ;
      wanted.max_wr = 4;
      wanted.max_sge = 2;
      wanted.pd = pd;
      wanted.cq = cq;
      wq = probe("create_wq", [&] { return ibv_create_wq(context, &wanted); });
      ibv_wq_attr ready = {};
      ready.attr_mask = IBV_WQ_ATTR_STATE;
      ready.wq_state = IBV_WQS_RDY;
      EXPECT_EQ(probe("modify_wq", [&] { return ibv_modify_wq(wq, &ready); }), 0);
      EXPECT_EQ(probe("post_wq_recv",
                      [&] {
                        ibv_sge sge = piece(4096, 1024);
                        ibv_recv_wr wr = {1, nullptr, &sge, 1};
                        ibv_recv_wr* bad = nullptr;
                        return ibv_post_wq_recv(wq, &wr, &bad);
                      }),
                0);
    }
    ibv_rwq_ind_table_init_attr entries = {1, queues.data(), 0};
    ibv_rwq_ind_table* table =
        probe("create_table", [&] { return ibv_create_rwq_ind_table(context, &entries); });
    std::array<std::uint8_t, 40> key = {};
    ibv_qp_init_attr_ex spreading = {};
    spreading.qp_type = IBV_QPT_RAW_PACKET;
    spreading.pd = pd;
    spreading.rwq_ind_tbl = table;
    spreading.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, key.size(), key.data(),
                              IBV_RX_HASH_SRC_IPV4};
    spreading.comp_mask =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    ibv_qp* receiver =
        probe("create_spreading", [&] { return ibv_create_qp_ex(context, &spreading); });
    Rule rule;
    alignas(8) std::array<std::byte, sizeof(Rule)> bytes;
    std::memcpy(bytes.data(), &rule, sizeof(rule));
    ibv_flow* flow = probe("create_flow", [&] {
      return ibv_create_flow(receiver, reinterpret_cast<ibv_flow_attr*>(bytes.data()));
    });
    memory.fill(0);
    memory[0] = 1;
    ibv_sge sge = piece(0, 64);
    ibv_send_wr wr = {};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    post(sender, wr);
    expect(2);
    EXPECT_EQ(probe("destroy_flow", [&] { return ibv_destroy_flow(flow); }), 0);
    destroy(receiver, sender);
    EXPECT_EQ(probe("destroy_table", [&] { return ibv_destroy_rwq_ind_table(table); }), 0);
    for (ibv_wq* wq : queues) {
      EXPECT_EQ(probe("destroy_wq", [&] { return ibv_destroy_wq(wq); }), 0);
    }
  }

  void sharing() {
    const int same_fd = dup(context->cmd_fd);
    ibv_context* other = probe("import_device", [&] { return ibv_import_device(same_fd); });
    ibv_pd* same_pd = probe("import_pd", [&] { return ibv_import_pd(other, pd->handle); });
    ibv_mr* same_mr = probe("import_mr", [&] { return ibv_import_mr(same_pd, mr->handle); });
    ibv_unimport_mr(same_mr);
    ibv_unimport_pd(same_pd);
    EXPECT_EQ(ibv_close_device(other), 0);
    ibv_td_init_attr thread = {};
    ibv_td* td = probe("alloc_td", [&] { return ibv_alloc_td(context, &thread); });
    ibv_parent_domain_init_attr wanted = {};
    wanted.pd = pd;
    wanted.td = td;
    wanted.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
    wanted.alloc = [](ibv_pd*, void*, std::size_t, std::size_t, std::uint64_t) {
      return IBV_ALLOCATOR_USE_DEFAULT;
    };
    wanted.free = [](ibv_pd*, void*, void*, std::uint64_t) {};
    ibv_pd* parent =
        probe("alloc_parent_domain", [&] { return ibv_alloc_parent_domain(context, &wanted); });
    EXPECT_EQ(probe("dealloc_pd", [&] { return ibv_dealloc_pd(parent); }), 0);
    EXPECT_EQ(probe("dealloc_td", [&] { return ibv_dealloc_td(td); }), 0);
  }

  void memory_kinds() {
    ibv_alloc_dm_attr wanted = {256, 0, 0};
    ibv_dm* dm = probe("alloc_dm", [&] { return ibv_alloc_dm(context, &wanted); });
    ibv_mr* in_dm = probe("reg_dm_mr", [&] {
      return ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
    });
    EXPECT_EQ(probe("dereg_mr", [&] { return ibv_dereg_mr(in_dm); }), 0);
    EXPECT_EQ(probe("free_dm", [&] { return ibv_free_dm(dm); }), 0);
    ibv_mr* none = probe("alloc_null_mr", [&] { return ibv_alloc_null_mr(pd); });
    EXPECT_EQ(probe("dereg_mr", [&] { return ibv_dereg_mr(none); }), 0);
    const int fd = memfd_create("buffer", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, 4096), 0);
    ibv_mr* buffer = probe("reg_dmabuf_mr", [&] {
      return ibv_reg_dmabuf_mr(pd, 0, 4096, 0, fd, IBV_ACCESS_LOCAL_WRITE);
    });
    EXPECT_EQ(probe("dereg_mr", [&] { return ibv_dereg_mr(buffer); }), 0);
    ::close(fd);
  }

  // Completion events, and the asynchronous event of a queue that overruns.
  void events() {
    ibv_cq* small =
        probe("create_cq", [&] { return ibv_create_cq(context, 1, nullptr, channel, 0); });
    ibv_modify_cq_attr moderation = {IBV_CQ_ATTR_MODERATE, {4, 1}};
    EXPECT_EQ(probe("modify_cq", [&] { return ibv_modify_cq(small, &moderation); }), 0);
    ibv_qp_init_attr attributes = {};
    attributes.send_cq = attributes.recv_cq = small;
    attributes.cap = {8, 8, 4, 4, 64};
    attributes.qp_type = IBV_QPT_RC;
    ibv_qp* a = probe("create_qp", [&] { return ibv_create_qp(pd, &attributes); });
    ibv_qp* b = create(IBV_QPT_RC);
    connect(a, b);
    connect(b, a);
    EXPECT_EQ(probe("req_notify_cq", [&] { return ibv_req_notify_cq(small, 0); }), 0);
    ibv_sge sge = piece(0, 8);
    for (int i = 0; i < 3; ++i) post(a, request(IBV_WR_RDMA_WRITE, sge));
    for (int i = 0; i < loopback_polls_max; ++i) {
      ibv_wc wc;
      EXPECT_EQ(probe("poll_cq", [&] { return ibv_poll_cq(cq, 1, &wc); }), 0);
      ibv_qp_attr now = {};
      ibv_qp_init_attr init = {};
      EXPECT_EQ(ibv_query_qp(a, &now, IBV_QP_STATE, &init), 0);
      if (now.qp_state == IBV_QPS_ERR) break;
    }
    // An event may have been lost for want of memory. None may be counted that was.
    destroy(a, b);
    EXPECT_EQ(probe("destroy_cq", [&] { return ibv_destroy_cq(small); }), 0);
  }

 private:
  void open() {
    int count = 0;
    ibv_device** list = probe("get_device_list", [&] { return ibv_get_device_list(&count); });
    ASSERT_EQ(count, 1);
    context = probe("open_device", [&] { return ibv_open_device(list[0]); });
    ibv_free_device_list(list);
    ASSERT_NE(context, nullptr);
    pd = probe("alloc_pd", [&] { return ibv_alloc_pd(context); });
    channel = probe("create_comp_channel", [&] { return ibv_create_comp_channel(context); });
    cq = probe("create_cq", [&] { return ibv_create_cq(context, 64, nullptr, channel, 0); });
    probe("resize_cq", [&] { return ibv_resize_cq(cq, 128); });
    mr = probe("reg_mr", [&] { return ibv_reg_mr(pd, memory.data(), memory.size(), all_access); });
    probe("rereg_mr", [&] {
      return ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory.data(),
                          memory.size(), 0);
    });
    ibv_device_attr attributes;
    probe("query_device", [&] { return ibv_query_device(context, &attributes); });
  }

  void close() {
    EXPECT_EQ(probe("dereg_mr", [&] { return ibv_dereg_mr(mr); }), 0);
    EXPECT_EQ(probe("destroy_cq", [&] { return ibv_destroy_cq(cq); }), 0);
    EXPECT_EQ(probe("destroy_comp_channel", [&] { return ibv_destroy_comp_channel(channel); }), 0);
    EXPECT_EQ(probe("dealloc_pd", [&] { return ibv_dealloc_pd(pd); }), 0);
    EXPECT_EQ(probe("close_device", [&] { return ibv_close_device(context); }), 0);
  }

  ibv_qp* create(ibv_qp_type type, std::uint64_t operations = 0, ibv_srq* srq = nullptr,
                 ibv_xrcd* xrcd = nullptr) {
    return probe("create_qp", [&] {
      ibv_qp_init_attr_ex attributes = {};
      attributes.qp_type = type;
      attributes.cap = {8, 8, 4, 4, 64};
      attributes.send_cq = attributes.recv_cq = cq;
      attributes.srq = srq;
      attributes.pd = pd;
      attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
      if (xrcd != nullptr && type == IBV_QPT_XRC_RECV) {
        attributes = {};
        attributes.qp_type = type;
        attributes.xrcd = xrcd;
        attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
      }
      if (operations != 0) {
        attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attributes.send_ops_flags = operations;
      }
      return ibv_create_qp_ex(context, &attributes);
    });
  }

  void modify(ibv_qp* qp, ibv_qp_attr attributes, int mask) {
    EXPECT_EQ(probe("modify_qp", [&] { return ibv_modify_qp(qp, &attributes, mask); }), 0);
  }

  void connect(ibv_qp* qp, const ibv_qp* peer) {
    const ibv_qp_type type = qp->qp_type;
    const bool datagram = type == IBV_QPT_UD;
    const bool reads = type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV;
    const bool asks = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = all_access & ~IBV_ACCESS_MW_BIND;
    attributes.qkey = qkey;
    modify(qp, attributes,
           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
               (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer->qp_num;
    attributes.max_dest_rd_atomic = 4;
    attributes.min_rnr_timer = 1;
    attributes.ah_attr = path();
    int mask = IBV_QP_STATE;
    if (!datagram) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (reads) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    modify(qp, attributes, mask);
    attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 8;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 7;
    attributes.max_rd_atomic = 4;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (asks) mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    if (asks || type == IBV_QPT_XRC_RECV) mask |= IBV_QP_TIMEOUT;
    modify(qp, attributes, mask);
  }

  ibv_sge piece(std::size_t offset, std::uint32_t bytes) const {
    return {reinterpret_cast<std::uintptr_t>(memory.data()) + offset, bytes, mr->lkey};
  }

  void receive(ibv_qp* qp) {
    EXPECT_EQ(probe("post_recv",
                    [&] {
                      ibv_sge sge = piece(4096, 1024);
                      ibv_recv_wr wr = {1, nullptr, &sge, 1};
                      ibv_recv_wr* bad = nullptr;
                      const int error = ibv_post_recv(qp, &wr, &bad);
                      EXPECT_EQ(bad, error != 0 ? &wr : nullptr);
                      return error;
                    }),
              0);
  }
  void receive(ibv_srq* srq) {
    EXPECT_EQ(probe("post_srq_recv",
                    [&] {
                      ibv_sge sge = piece(4096, 1024);
                      ibv_recv_wr wr = {1, nullptr, &sge, 1};
                      ibv_recv_wr* bad = nullptr;
                      const int error = ibv_post_srq_recv(srq, &wr, &bad);
                      EXPECT_EQ(bad, error != 0 ? &wr : nullptr);
                      return error;
                    }),
              0);
  }

  ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& sge) const {
    ibv_send_wr wr = {};
    wr.wr_id = 7;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.rkey = mr->rkey;
    wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(memory.data()) + 2048;
    return wr;
  }
  void post(ibv_qp* qp, ibv_send_wr wr) {
    EXPECT_EQ(probe("post_send",
                    [&] {
                      ibv_send_wr* bad = nullptr;
                      const int error = ibv_post_send(qp, &wr, &bad);
                      EXPECT_EQ(bad, error != 0 ? &wr : nullptr);
                      return error;
                    }),
              0);
  }

  // Takes that many completions, all of which must be successful.
  void expect(int count, ibv_cq* from = nullptr) {
    if (from == nullptr) from = cq;
    for (int polls = 0; count > 0 && polls < loopback_polls_max; ++polls) {
      ibv_wc wc = {};
      const int polled = probe("poll_cq", [&] { return ibv_poll_cq(from, 1, &wc); });
      ASSERT_GE(polled, 0);
      if (polled == 0) continue;
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
      --count;
    }
    EXPECT_EQ(count, 0) << "completions are missing";
  }

  template <typename... Qps>
  void destroy(Qps*... qps) {
    for (ibv_qp* qp : {qps...}) {
      EXPECT_EQ(probe("destroy_qp", [&] { return ibv_destroy_qp(qp); }), 0);
    }
  }

  void windows(ibv_qp* qp) {
    ibv_mw* mw = probe("alloc_mw", [&] { return ibv_alloc_mw(pd, IBV_MW_TYPE_1); });
    ibv_mw_bind bind = {};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {mr, reinterpret_cast<std::uintptr_t>(memory.data()), 64,
                      IBV_ACCESS_REMOTE_READ};
    EXPECT_EQ(probe("bind_mw", [&] { return ibv_bind_mw(qp, mw, &bind); }), 0);
    expect(1);
    EXPECT_EQ(probe("dealloc_mw", [&] { return ibv_dealloc_mw(mw); }), 0);
  }

  void raw_step(ibv_qp* qp, ibv_qp_state state) {
    ibv_qp_attr attributes = {};
    attributes.qp_state = state;
    attributes.port_num = 1;
    modify(qp, attributes, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0));
  }

  Probe& probe;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  alignas(8) std::array<std::uint8_t, 8192> memory{};
};

struct Step {
  const char* name;
  void (Program::*run)();
};
constexpr std::array<Step, 10> steps = {{{"connections", &Program::connections},
                                         {"builders", &Program::builders},
                                         {"datagrams", &Program::datagrams},
                                         {"shared queues", &Program::shared_queues},
                                         {"XRC", &Program::extended_connections},
                                         {"tags", &Program::tags},
                                         {"raw packets", &Program::raw_packets},
                                         {"sharing", &Program::sharing},
                                         {"kinds of memory", &Program::memory_kinds},
                                         {"events", &Program::events}}};

// Keeps the device open, so that what a failed call left in its tables would be noticed.
class ScarceMemory : public testing::Test {
 protected:
  void SetUp() override {
    ibv_device** list = ibv_get_device_list(nullptr);
    ASSERT_NE(list, nullptr);
    holder = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    ASSERT_NE(holder, nullptr);
  }
  void TearDown() override { EXPECT_EQ(ibv_close_device(holder), 0); }

  static void run(Probe& probe, void (Program::*step)()) {
    const auto program = std::make_unique<Program>(probe);
    program->run(step);
  }

  static void walk(Mode mode) {
    unsigned failures = 0;
    unsigned unnoticed = 0;
    for (const Step& step : steps) {
      SCOPED_TRACE(step.name);
      Probe nothing_fails;
      run(nothing_fails, step.run);
      const std::int64_t before = scarce_memory::allocations();
      {
        Probe probe(mode);
        run(probe, step.run);
        EXPECT_GT(probe.failures(), 30u) << "allocations are not seen";
        failures += probe.failures();
        unnoticed += probe.unnoticed();
      }
      EXPECT_EQ(scarce_memory::allocations(), before);
    }
    std::printf("%u allocations failed in turn; %u calls worked all the same\n", failures,
                unnoticed);
  }

  ibv_context* holder = nullptr;
};

// Deadlines that there is no memory for are one entry, which stands for all queue pairs.
TEST(ScarceMemoryOfTimers, NoDeadlineIsLost) {
  device::TimerQueue timers;
  scarce_memory::fail_at(1, Mode::all_fail);
  for (std::uint32_t i = 100; i > 0; --i) {
    timers.add(Time::microseconds(i), QpNumber{i});
  }
  EXPECT_TRUE(scarce_memory::is_plenty());
  EXPECT_EQ(timers.next(), Time::microseconds(1));
  EXPECT_EQ(timers.pop().qp, device::TimerQueue::all_queue_pairs);
  EXPECT_GT(timers.next(), Time::microseconds(85)) << "the first entries had room";
  timers.add(Time::microseconds(2), QpNumber{2});
  EXPECT_EQ(timers.pop().qp, QpNumber{2});
}

TEST_F(ScarceMemory, EachAllocationMayFail) { walk(Mode::one_fails); }
TEST_F(ScarceMemory, AllAllocationsFromOneOnMayFail) { walk(Mode::all_fail); }

}  // namespace
}  // namespace tulle::shim

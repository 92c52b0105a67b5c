// Tests of extended reliable connections between two adapters: the queue that a request reaches,
// and the fate of requests that name none.

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "rdma/device/adapter.h"

namespace tulle::device {
namespace {

using verbs::AccessFlags;
using verbs::CompletionStatus;
using verbs::EventType;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::QpType;
using verbs::SendOpcode;
using verbs::VerbsStatus;

constexpr std::uint32_t mtu = 256;
constexpr std::uint64_t iova = 0x1000;

void must(VerbsStatus status) { TULLE_CHECK(status == VerbsStatus::ok); }

struct Node {
  explicit Node(int number) : adapter(configuration(number)), gid(address(number)) {
    adapter.set_gids({&gid, 1});
    VerbsStatus status{};
    pd = adapter.objects().create_pd(status);
    cq = adapter.objects().create_cq(64, nullptr, status);
    domain = adapter.objects().create_xrc_domain();
    region = memory_of(*pd);
  }
  static Gid address(int number) { return Gid::from_ipv4(0x0A00'0001 + number); }
  static Configuration configuration(int number) {
    Configuration out;
    out.seed = static_cast<std::uint64_t>(number);
    out.first_qp = QpNumber(0x4000 * (1 + number));
    return out;
  }
  verbs::MemoryRegion* memory_of(verbs::ProtectionDomain& owner) {
    VerbsStatus status{};
    auto* out = adapter.objects().register_memory(owner, memory.data(), memory.size(), iova,
                                                  AccessFlags::from_bits(1 | 2 | 4 | 8), status);
    must(status);
    return out;
  }
  verbs::SharedReceiveQueue* create_srq(verbs::ProtectionDomain& owner,
                                        verbs::CompletionQueue& completes_to,
                                        verbs::XrcDomain& of) {
    VerbsStatus status{};
    auto* out = adapter.objects().create_xrc_srq(owner, of, completes_to, 16, 2, nullptr, status);
    must(status);
    return out;
  }
  transport::QueuePair* create(QpType type) {
    transport::QueuePairInit init;
    init.type = type;
    if (type == QpType::xrc_target) {
      init.xrc_domain = domain;
    } else {
      init.pd = pd;
      init.send_cq = cq;
      init.send_work_requests = 16;
      init.send_sges = 2;
      init.inline_bytes = 16;
    }
    VerbsStatus status{};
    auto* out = adapter.create_qp(init, status);
    must(status);
    return out;
  }
  void connect(transport::QueuePair& qp, QpNumber to, const Gid& where) {
    transport::QueuePairAttributes a;
    a.state = QpState::init;
    a.access = AccessFlags::from_bits(2 | 4 | 8);
    auto mask = QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index | QpAttribute::port |
                QpAttribute::access_flags;
    must(adapter.modify(qp, a, mask));
    a.state = QpState::rtr;
    a.path_mtu = verbs::Mtu::b256;
    a.destination_qp = to;
    a.address.destination = where;
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 1;
    mask = QpAttributeMask(QpAttribute::state) | QpAttribute::address_vector |
           QpAttribute::path_mtu | QpAttribute::destination_qp | QpAttribute::rq_psn |
           QpAttribute::max_dest_rd_atomic | QpAttribute::min_rnr_timer;
    must(adapter.modify(qp, a, mask));
    a.state = QpState::rts;
    a.timeout = 10;
    a.max_rd_atomic = 4;
    mask = QpAttributeMask(QpAttribute::state) | QpAttribute::sq_psn | QpAttribute::timeout |
           QpAttribute::retry_count | QpAttribute::rnr_retry | QpAttribute::max_rd_atomic;
    must(adapter.modify(qp, a, mask));
  }
  void post_receive(verbs::SharedReceiveQueue& srq, std::uint64_t wr_id, std::uint32_t bytes,
                    LocalKey lkey) {
    const verbs::Sge sge{iova + 8'192, bytes, lkey};
    must(adapter.objects().post_receive(srq, {wr_id, {&sge, 1}}));
  }
  std::optional<verbs::Completion> next(verbs::CompletionQueue& from) {
    verbs::Completion out;
    return from.poll({&out, 1}) == 1 ? std::optional(out) : std::nullopt;
  }
  std::vector<EventType> events() {
    std::vector<EventType> out;
    for (Event event; adapter.pull_event(event);) out.push_back(event.type);
    return out;
  }

  std::vector<std::byte> memory = std::vector<std::byte>(16'384);
  Adapter adapter;
  Gid gid;
  verbs::ProtectionDomain* pd = nullptr;
  verbs::CompletionQueue* cq = nullptr;
  verbs::XrcDomain* domain = nullptr;
  verbs::MemoryRegion* region = nullptr;
};

class Xrc : public ::testing::Test {
 protected:
  Xrc() : client(0), server(1) {
    initiator = client.create(QpType::xrc_initiator);
    target = server.create(QpType::xrc_target);
    client.connect(*initiator, target->number, server.gid);
    server.connect(*target, initiator->number, client.gid);
    srq = server.create_srq(*server.pd, *server.cq, *server.domain);
    for (std::size_t i = 0; i < client.memory.size(); ++i) {
      client.memory[i] = static_cast<std::byte>(i * 5);
    }
  }
  VerbsStatus try_post(SendOpcode opcode, std::uint32_t bytes, std::uint32_t to) {
    const verbs::Sge sge{iova, bytes, client.region->lkey()};
    verbs::SendRequest request;
    request.opcode = opcode;
    request.flags = verbs::SendFlag::signaled;
    request.sges = {&sge, 1};
    request.remote_address = iova;
    request.rkey = server.region->rkey();
    request.xrc_srq = to;
    return client.adapter.post_send(*initiator, request);
  }
  void post(SendOpcode opcode, std::uint32_t bytes, std::uint32_t to) {
    must(try_post(opcode, bytes, to));
  }
  // Exchanges packets until neither node has any.
  std::vector<wire::Packet> exchange(std::size_t most = 1'000) {
    std::vector<wire::Packet> seen;
    for (bool any = true; any && seen.size() < most;) {
      any = carry(client, server, seen);
      any = carry(server, client, seen) || any;
    }
    return seen;
  }
  bool carry(Node& from, Node& to, std::vector<wire::Packet>& seen) {
    Datagram datagram;
    if (!from.adapter.pull_datagram(now, datagram)) return false;
    std::vector<std::byte> payload;
    for (std::size_t i = 0; i < datagram.piece_count; ++i) {
      payload.insert(payload.end(), datagram.pieces[i].begin(), datagram.pieces[i].end());
    }
    seen.push_back(datagram.packet);
    to.adapter.handle_packet(now, datagram.packet,
                             {payload.data(), static_cast<std::uint32_t>(payload.size())},
                             datagram.ip());
    return true;
  }
  CompletionStatus sent() {
    const auto completion = client.next(*client.cq);
    EXPECT_TRUE(completion);
    return completion ? completion->status : CompletionStatus::flushed;
  }

  Time now = Time::microseconds(1);
  Node client, server;
  transport::QueuePair* initiator = nullptr;
  transport::QueuePair* target = nullptr;
  verbs::SharedReceiveQueue* srq = nullptr;
};

TEST_F(Xrc, EachRequestNamesItsQueueAndNoAnswerDoes) {
  server.post_receive(*srq, 7, 1'000, server.region->lkey());
  post(SendOpcode::send, 2 * mtu + 1, srq->number);
  const auto packets = exchange();
  ASSERT_EQ(packets.size(), 4u);
  for (const wire::Packet& packet : packets) {
    const wire::OpcodeInfo& info = wire::info(packet.opcode);
    EXPECT_EQ(wire::transport_of(packet.opcode), wire::TransportClass::xrc);
    EXPECT_EQ(info.xrceth, info.kind == wire::Kind::send);
    if (info.xrceth) {
      EXPECT_EQ(packet.xrc_srq, srq->number);
    }
    if (info.aeth) {
      EXPECT_EQ(packet.syndrome.value, transport::rc::no_credits_code);
    }
  }
  EXPECT_EQ(sent(), CompletionStatus::success);
  const auto received = server.next(*server.cq);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->wr_id, 7u);
  EXPECT_EQ(received->qp, target->number);
  EXPECT_EQ(received->byte_length, 2 * mtu + 1);
  EXPECT_TRUE(std::equal(client.memory.begin(), client.memory.begin() + 2 * mtu + 1,
                         server.memory.begin() + 8'192));
}

// Each queue has a separate protection domain and completion queue.
TEST_F(Xrc, QueuesOfOneTarget) {
  VerbsStatus status{};
  verbs::ProtectionDomain* other_pd = server.adapter.objects().create_pd(status);
  verbs::CompletionQueue* other_cq = server.adapter.objects().create_cq(8, nullptr, status);
  verbs::MemoryRegion* other_region = server.memory_of(*other_pd);
  auto* other = server.create_srq(*other_pd, *other_cq, *server.domain);
  EXPECT_NE(other->number, srq->number);
  server.post_receive(*srq, 1, 100, server.region->lkey());
  server.post_receive(*other, 2, 100, other_region->lkey());
  post(SendOpcode::send, 10, other->number);
  post(SendOpcode::send, 10, srq->number);
  exchange();
  EXPECT_EQ(server.next(*other_cq)->wr_id, 2u);
  EXPECT_EQ(server.next(*server.cq)->wr_id, 1u);
  EXPECT_EQ(sent(), CompletionStatus::success);
  EXPECT_EQ(sent(), CompletionStatus::success);
  // The key belongs to the first queue's protection domain.
  post(SendOpcode::write, 10, srq->number);
  exchange();
  EXPECT_EQ(sent(), CompletionStatus::success);
  post(SendOpcode::write, 10, other->number);
  exchange();
  EXPECT_EQ(sent(), CompletionStatus::remote_access_error);
  EXPECT_EQ(target->state(), QpState::error);
}

TEST_F(Xrc, AQueueThatThereIsNotOrOfAnotherDomain) {
  verbs::XrcDomain* other = server.adapter.objects().create_xrc_domain();
  const std::uint32_t foreign = server.create_srq(*server.pd, *server.cq, *other)->number;
  for (const std::uint32_t number : {foreign, 0xFF'FFFFu}) {
    transport::QueuePair* from = client.create(QpType::xrc_initiator);
    transport::QueuePair* to = server.create(QpType::xrc_target);
    client.connect(*from, to->number, server.gid);
    server.connect(*to, from->number, client.gid);
    initiator = from;
    post(SendOpcode::write, 10, number);
    exchange();
    EXPECT_EQ(sent(), CompletionStatus::remote_access_error);
    EXPECT_EQ(to->state(), QpState::error);
    EXPECT_EQ(server.events(), std::vector{EventType::qp_access_error});
  }
  EXPECT_EQ(server.memory[0], std::byte{0});
}

TEST_F(Xrc, ReadsAndAtomicsAndTheirRepeats) {
  server.memory[0] = std::byte{42};
  post(SendOpcode::read, 3 * mtu, srq->number);
  exchange();
  EXPECT_EQ(sent(), CompletionStatus::success);
  EXPECT_EQ(client.memory[0], std::byte{42});
  post(SendOpcode::fetch_add, 8, srq->number);
  exchange();
  EXPECT_EQ(sent(), CompletionStatus::success);
  EXPECT_EQ(client.memory[0], std::byte{42});
  client.memory[0] = std::byte{9};
  post(SendOpcode::atomic_write, 8, srq->number);
  exchange();
  EXPECT_EQ(sent(), CompletionStatus::success);
  EXPECT_EQ(server.memory[0], std::byte{9});
}

// The READ is accepted. Then the queue goes away, and with it the right to read.
TEST_F(Xrc, AQueueThatGoesAwayBeforeItsReadIsAnswered) {
  post(SendOpcode::read, 100, srq->number);
  std::vector<wire::Packet> seen;
  ASSERT_TRUE(carry(client, server, seen));
  must(server.adapter.objects().destroy(srq));
  exchange();
  EXPECT_EQ(sent(), CompletionStatus::remote_access_error);
}

// A READ that waits for its answer belongs to the queue that it named, whichever queue is named
// after it.
TEST_F(Xrc, AReadIsOfItsOwnQueue) {
  VerbsStatus status{};
  verbs::ProtectionDomain* other_pd = server.adapter.objects().create_pd(status);
  auto* other = server.create_srq(*other_pd, *server.cq, *server.domain);
  server.post_receive(*other, 2, 100, server.memory_of(*other_pd)->lkey());
  post(SendOpcode::read, 2 * mtu, srq->number);
  post(SendOpcode::send, 10, other->number);
  std::vector<wire::Packet> seen;
  ASSERT_TRUE(carry(client, server, seen));
  ASSERT_TRUE(carry(client, server, seen));
  EXPECT_EQ(target->init.srq, other);
  exchange();
  EXPECT_EQ(sent(), CompletionStatus::success);
  EXPECT_EQ(sent(), CompletionStatus::success);
}

// A repeated request whose queue is gone is acknowledged, without credits.
TEST_F(Xrc, ARepeatForAQueueThatIsGone) {
  server.post_receive(*srq, 7, 100, server.region->lkey());
  post(SendOpcode::send, 10, srq->number);
  Datagram request;
  ASSERT_TRUE(client.adapter.pull_datagram(now, request));
  // The driver does not hear when requests of extended connections are flushed.
  EXPECT_EQ(request.lasting_bytes, 0u);
  const std::vector<std::byte> payload(10);
  for (int i = 0; i < 2; ++i) {
    server.adapter.handle_packet(now, request.packet, {payload.data(), 10}, request.ip());
    Datagram answer;
    ASSERT_TRUE(server.adapter.pull_datagram(now, answer));
    EXPECT_EQ(answer.packet.syndrome.kind, wire::AckKind::ack);
    EXPECT_EQ(answer.packet.syndrome.value, transport::rc::no_credits_code);
    if (i == 0) must(server.adapter.objects().destroy(srq));
  }
  EXPECT_EQ(target->state(), QpState::rts);
}

TEST_F(Xrc, AQueueThatGoesAwayInTheMiddleOfAMessage) {
  server.post_receive(*srq, 7, 1'000, server.region->lkey());
  post(SendOpcode::send, 3 * mtu, srq->number);
  std::vector<wire::Packet> seen;
  ASSERT_TRUE(carry(client, server, seen));
  must(server.adapter.objects().destroy(srq));
  exchange();
  EXPECT_NE(sent(), CompletionStatus::success);
  EXPECT_FALSE(server.next(*server.cq)) << "its receive went with it";
  must(server.adapter.objects().destroy(server.cq));  // nothing refers to it any more
}

// All packets of a message must name one queue.
TEST_F(Xrc, AMessageThatChangesItsQueue) {
  auto* other = server.create_srq(*server.pd, *server.cq, *server.domain);
  server.post_receive(*srq, 7, 1'000, server.region->lkey());
  server.post_receive(*other, 8, 1'000, server.region->lkey());
  post(SendOpcode::send, 2 * mtu, srq->number);
  std::vector<wire::Packet> seen;
  ASSERT_TRUE(carry(client, server, seen));
  Datagram last;
  ASSERT_TRUE(client.adapter.pull_datagram(now, last));
  last.packet.xrc_srq = other->number;
  const std::vector<std::byte> payload(mtu);
  server.adapter.handle_packet(now, last.packet, {payload.data(), mtu}, last.ip());
  EXPECT_EQ(target->state(), QpState::error);
  const auto received = server.next(*server.cq);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->wr_id, 7u);
  EXPECT_NE(received->status, CompletionStatus::success);
  EXPECT_FALSE(server.next(*server.cq));
}

TEST_F(Xrc, NoReceiveIsSaidSo) {
  post(SendOpcode::send, 10, srq->number);
  exchange(2);
  EXPECT_EQ(server.adapter.counters().transport.rnr_naks_sent, 1u);
  EXPECT_EQ(target->state(), QpState::rts);
}

TEST_F(Xrc, HalvesTakeWhatIsTheirs) {
  const auto deliver = [&](Node& node, const transport::QueuePair& qp, wire::TransportClass as,
                           wire::Operation operation, const Gid& from) {
    wire::Packet packet;
    packet.opcode = wire::opcode(as, operation);
    packet.destination_qp = qp.number;
    packet.xrc_srq = srq->number;
    packet.ack_request = true;
    wire::IpUdp ip;
    ip.source = from;
    const std::uint64_t before = node.adapter.counters().transport.dropped_packets;
    node.adapter.handle_packet(now, packet, {}, ip);
    return node.adapter.counters().transport.dropped_packets - before;
  };
  using enum wire::Operation;
  const auto xrc = wire::TransportClass::xrc, rc = wire::TransportClass::rc;
  EXPECT_EQ(deliver(client, *initiator, xrc, send_only, server.gid), 1u);
  EXPECT_EQ(deliver(client, *initiator, rc, acknowledge, server.gid), 1u);
  EXPECT_EQ(deliver(client, *initiator, xrc, acknowledge, server.gid), 0u);
  EXPECT_EQ(deliver(server, *target, xrc, acknowledge, client.gid), 1u);
  EXPECT_EQ(deliver(server, *target, rc, send_only, client.gid), 1u);
  EXPECT_EQ(deliver(server, *target, xrc, send_only, server.gid), 1u) << "not from its peer";
  EXPECT_EQ(deliver(server, *target, xrc, write_only, client.gid), 0u);
  EXPECT_EQ(server.adapter.next_deadline(), Time::never());
}

TEST_F(Xrc, WhatIsRefused) {
  EXPECT_EQ(try_post(SendOpcode::send, 10, 0), VerbsStatus::invalid_argument);
  EXPECT_EQ(try_post(SendOpcode::send, 10, 1u << 24), VerbsStatus::invalid_argument);
  verbs::SendRequest request;
  EXPECT_EQ(server.adapter.post_send(*target, request), VerbsStatus::invalid_argument);
  EXPECT_EQ(client.adapter.post_receive(*initiator, {}), VerbsStatus::invalid_argument);
  EXPECT_EQ(server.adapter.post_receive(*target, {}), VerbsStatus::invalid_argument);
  VerbsStatus status{};
  transport::QueuePairInit init = target->init;
  init.xrc_domain = nullptr;
  EXPECT_EQ(server.adapter.create_qp(init, status), nullptr) << "without a domain";
  init = {};
  init.pd = server.pd;
  init.send_cq = init.receive_cq = server.cq;
  init.srq = srq;
  EXPECT_EQ(server.adapter.create_qp(init, status), nullptr) << "RC with a domain's queue";
  EXPECT_EQ(server.adapter.objects().destroy(server.domain), VerbsStatus::busy);
  EXPECT_EQ(server.adapter.objects().destroy(server.cq), VerbsStatus::busy);
  must(server.adapter.objects().destroy(srq));
  EXPECT_EQ(server.adapter.objects().destroy(server.domain), VerbsStatus::busy);
  must(server.adapter.destroy(target));
  must(server.adapter.objects().destroy(server.domain));
}

TEST_F(Xrc, ATargetThatIsResetBeginsAnew) {
  server.post_receive(*srq, 7, 1'000, server.region->lkey());
  post(SendOpcode::send, 2 * mtu, srq->number);
  std::vector<wire::Packet> seen;
  ASSERT_TRUE(carry(client, server, seen));
  transport::QueuePairAttributes to;
  to.state = QpState::reset;
  must(server.adapter.modify(*target, to, QpAttribute::state));
  must(client.adapter.modify(*initiator, to, QpAttribute::state));
  client.connect(*initiator, target->number, server.gid);
  server.connect(*target, initiator->number, client.gid);
  server.post_receive(*srq, 8, 1'000, server.region->lkey());
  post(SendOpcode::send, 10, srq->number);
  exchange();
  EXPECT_EQ(sent(), CompletionStatus::success);
  EXPECT_EQ(server.next(*server.cq)->wr_id, 8u);
}

}  // namespace
}  // namespace tulle::device

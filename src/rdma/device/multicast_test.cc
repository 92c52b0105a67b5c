// Tests of multicast groups: which queue pairs get a copy of a group's packets.

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "rdma/device/adapter.h"
#include "rdma/device/multicast.h"

namespace tulle::device {
namespace {

using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::QpType;
using verbs::VerbsStatus;

constexpr Qkey qkey{0x1234};
const Gid group = Gid::from_ipv4(0xE001'0203);
const Gid other_group = Gid::from_ipv4(0xE001'0204);
const Gid sender = Gid::from_ipv4(0x0A00'0002);

class Multicast : public testing::Test {
 protected:
  Multicast() : adapter({}) {
    adapter.set_gids({&own, 1});
    VerbsStatus status{};
    pd = adapter.objects().create_pd(status);
    region = adapter.objects().register_memory(*pd, memory.data(), memory.size(), 0x1000,
                                               verbs::Access::local_write, status);
    for (auto& cq : cqs) cq = adapter.objects().create_cq(16, nullptr, status);
    for (std::size_t i = 0; i < qps.size(); ++i) qps[i] = create(*cqs[i], Qkey(qkey));
  }
  transport::QueuePair* create(verbs::CompletionQueue& cq, Qkey key, QpType type = QpType::ud) {
    transport::QueuePairInit init;
    init.type = type;
    init.pd = pd;
    init.send_cq = init.receive_cq = &cq;
    init.receive_work_requests = 8;
    init.receive_sges = 1;
    VerbsStatus status{};
    auto* qp = adapter.create_qp(init, status);
    EXPECT_EQ(status, VerbsStatus::ok);
    if (type != QpType::ud) return qp;
    transport::QueuePairAttributes to;
    to.state = QpState::init;
    to.qkey = key;
    auto mask = QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index | QpAttribute::port |
                QpAttribute::qkey;
    EXPECT_EQ(adapter.modify(*qp, to, mask), VerbsStatus::ok);
    to.state = QpState::rtr;
    EXPECT_EQ(adapter.modify(*qp, to, QpAttribute::state), VerbsStatus::ok);
    const verbs::Sge sge{0x1000, 256, region->lkey()};
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(adapter.post_receive(*qp, {0, {&sge, 1}}), VerbsStatus::ok);
    }
    return qp;
  }
  // Delivers a packet and returns how many each queue pair has received since the previous call.
  std::array<std::uint32_t, 3> deliver(const Gid& to, Qkey key = qkey, Pkey pkey = default_pkey) {
    wire::Packet packet;
    packet.opcode = wire::opcode(wire::TransportClass::ud, wire::Operation::send_only);
    packet.destination_qp = multicast_qp;
    packet.qkey = key;
    packet.pkey = pkey;
    packet.source_qp = QpNumber(0x77);
    wire::IpUdp ip;
    ip.source = sender;
    ip.destination = to;
    const std::array<std::byte, 8> payload{};
    adapter.handle_packet({}, packet, {payload.data(), 8}, ip);
    std::array<std::uint32_t, 3> out{};
    for (std::size_t i = 0; i < cqs.size(); ++i) {
      verbs::Completion completion;
      while (cqs[i]->poll({&completion, 1}) == 1) {
        ++out[i];
        EXPECT_EQ(completion.byte_length, 48u);
        EXPECT_EQ(completion.source_qp, QpNumber(0x77));
        EXPECT_TRUE(completion.has_grh);
        EXPECT_EQ(memory[36], std::byte{0xE0}) << "the GRH's place says for whom it was";
      }
    }
    return out;
  }
  using Counts = std::array<std::uint32_t, 3>;

  const Gid own = Gid::from_ipv4(0x0A00'0001);
  Adapter adapter;
  std::vector<std::byte> memory = std::vector<std::byte>(512);
  verbs::ProtectionDomain* pd = nullptr;
  verbs::MemoryRegion* region = nullptr;
  std::array<verbs::CompletionQueue*, 3> cqs{};
  std::array<transport::QueuePair*, 3> qps{};
};

TEST_F(Multicast, ACopyForEachThatIsAttached) {
  EXPECT_EQ(deliver(group), (Counts{0, 0, 0}));
  EXPECT_EQ(adapter.counters().unknown_queue_pair, 1u);
  EXPECT_EQ(adapter.multicast().attach(*qps[0], group), VerbsStatus::ok);
  EXPECT_EQ(adapter.multicast().attach(*qps[0], group), VerbsStatus::ok);
  EXPECT_EQ(adapter.multicast().attach(*qps[1], group), VerbsStatus::ok);
  EXPECT_EQ(adapter.multicast().attach(*qps[2], other_group), VerbsStatus::ok);
  EXPECT_EQ(deliver(group), (Counts{1, 1, 0}));
  EXPECT_EQ(deliver(other_group), (Counts{0, 0, 1}));
  EXPECT_EQ(deliver(own), (Counts{0, 0, 0})) << "no group at all";
  EXPECT_EQ(adapter.multicast().detach(*qps[0], group), VerbsStatus::ok);
  EXPECT_EQ(deliver(group), (Counts{0, 1, 0}));
}

TEST_F(Multicast, KeysAreChecked) {
  EXPECT_EQ(adapter.multicast().attach(*qps[0], group), VerbsStatus::ok);
  EXPECT_EQ(deliver(group, Qkey(7)), (Counts{0, 0, 0}));
  EXPECT_EQ(deliver(group, qkey, Pkey(0x8001)), (Counts{0, 0, 0}));
  EXPECT_EQ(adapter.counters().pkey_violations, 1u);
  EXPECT_EQ(deliver(group), (Counts{1, 0, 0}));
}

TEST_F(Multicast, WhatIsRefused) {
  transport::QueuePair* rc = create(*cqs[0], {}, QpType::rc);
  EXPECT_EQ(adapter.multicast().attach(*rc, group), VerbsStatus::invalid_argument);
  EXPECT_EQ(adapter.multicast().attach(*qps[0], own), VerbsStatus::invalid_argument);
  EXPECT_EQ(adapter.multicast().attach(*qps[0], Gid{}), VerbsStatus::invalid_argument);
  EXPECT_EQ(adapter.multicast().detach(*qps[0], group), VerbsStatus::invalid_argument);
  EXPECT_EQ(adapter.multicast().attach(*qps[0], group), VerbsStatus::ok);
  EXPECT_EQ(adapter.multicast().detach(*qps[1], group), VerbsStatus::invalid_argument);
  EXPECT_TRUE(adapter.multicast().has(group));
  EXPECT_EQ(adapter.destroy(qps[0]), VerbsStatus::busy);
  adapter.multicast().detach_all(*qps[0]);
  EXPECT_FALSE(adapter.multicast().has(group));
  EXPECT_EQ(adapter.destroy(qps[0]), VerbsStatus::ok);
  EXPECT_EQ(deliver(group), (Counts{0, 0, 0}));
}

// A packet of a connected transport cannot be for a group.
TEST_F(Multicast, OtherPackets) {
  EXPECT_EQ(adapter.multicast().attach(*qps[0], group), VerbsStatus::ok);
  wire::Packet packet;
  packet.opcode = wire::opcode(wire::TransportClass::rc, wire::Operation::send_only);
  packet.destination_qp = multicast_qp;
  wire::IpUdp ip;
  ip.source = sender;
  ip.destination = group;
  adapter.handle_packet({}, packet, {}, ip);
  EXPECT_EQ(adapter.counters().transport.dropped_packets, 1u);
  EXPECT_EQ(cqs[0]->size(), 0u);
}

}  // namespace
}  // namespace tulle::device

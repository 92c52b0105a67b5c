// Tests of addresses that come and go: objects that have an address keep it.

#include <gtest/gtest.h>

#include "rdma/device/adapter.h"
#include "rdma/port/framing/roce_v1.h"

namespace tulle::device {
namespace {

using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::VerbsStatus;

constexpr Gid first = Gid::from_ipv4(0x0A00'0001);
constexpr Gid second = Gid::from_ipv4(0x0A00'0002);
constexpr Gid third = Gid::from_ipv4(0x0A00'0003);
constexpr Gid peer = Gid::from_ipv4(0x0A00'00FF);
constexpr Gid link_local = {{0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

class Gids : public testing::Test {
 protected:
  Gids() { adapter.set_gids(std::array{first, second}); }

  VerbsStatus create_handle(std::uint8_t index) {
    verbs::AddressVector to;
    to.destination = peer;
    to.source_gid_index = index;
    VerbsStatus status{};
    handle = adapter.create_ah(*pd, to, status);
    return status;
  }

  transport::QueuePair* create_qp() {
    VerbsStatus status{};
    transport::QueuePairInit init;
    init.pd = pd;
    init.send_cq = init.receive_cq = adapter.objects().create_cq(4, nullptr, status);
    init.send_work_requests = init.receive_work_requests = 1;
    init.send_sges = init.receive_sges = 1;
    return adapter.create_qp(init, status);
  }
  VerbsStatus initialise(transport::QueuePair& qp) {
    transport::QueuePairAttributes to;
    to.state = QpState::init;
    return adapter.modify(qp, to,
                          QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index |
                              QpAttribute::port | QpAttribute::access_flags);
  }
  VerbsStatus connect(transport::QueuePair& qp, std::uint8_t index) {
    transport::QueuePairAttributes to;
    to.state = QpState::rtr;
    to.address.destination = peer;
    to.address.source_gid_index = index;
    return adapter.modify(qp, to,
                          QpAttributeMask(QpAttribute::state) | QpAttribute::address_vector |
                              QpAttribute::path_mtu | QpAttribute::destination_qp |
                              QpAttribute::rq_psn | QpAttribute::max_dest_rd_atomic |
                              QpAttribute::min_rnr_timer);
  }
  void remove_second() { adapter.set_gids(std::array{first, Gid{}}); }

  Adapter adapter{Configuration{}};
  VerbsStatus status_{};
  verbs::ProtectionDomain* pd = adapter.objects().create_pd(status_);
  verbs::AddressHandle* handle = nullptr;
};

TEST_F(Gids, AHoleIsForNoNewWork) {
  remove_second();
  EXPECT_TRUE(adapter.has_gid(0));
  EXPECT_FALSE(adapter.has_gid(1));
  EXPECT_FALSE(adapter.has_gid(2));
  EXPECT_EQ(create_handle(1), VerbsStatus::invalid_argument);
  auto* qp = create_qp();
  ASSERT_EQ(initialise(*qp), VerbsStatus::ok);
  EXPECT_EQ(connect(*qp, 1), VerbsStatus::invalid_argument);
  EXPECT_EQ(connect(*qp, 0), VerbsStatus::ok) << "others stay as they are";
  EXPECT_TRUE(adapter.withdrawn_gids().none());
}

TEST_F(Gids, AQueuePairKeepsItsAddressUntilItIsReset) {
  auto* qp = create_qp();
  ASSERT_EQ(initialise(*qp), VerbsStatus::ok);
  ASSERT_EQ(connect(*qp, 1), VerbsStatus::ok);
  remove_second();
  EXPECT_FALSE(adapter.has_gid(1));
  EXPECT_TRUE(adapter.withdrawn_gids()[1]);
  EXPECT_EQ(adapter.gids()[1], second) << "it goes on sending by it";
  EXPECT_EQ(create_handle(1), VerbsStatus::invalid_argument);
  remove_second();
  EXPECT_TRUE(adapter.withdrawn_gids()[1]) << "said again, it is the same";

  transport::QueuePairAttributes to;
  to.state = QpState::reset;
  ASSERT_EQ(adapter.modify(*qp, to, QpAttributeMask(QpAttribute::state)), VerbsStatus::ok);
  remove_second();
  EXPECT_TRUE(adapter.withdrawn_gids().none());
  EXPECT_EQ(adapter.gids()[1], Gid{});
}

TEST_F(Gids, AnAddressHandleKeepsItsAddress) {
  ASSERT_EQ(create_handle(1), VerbsStatus::ok);
  remove_second();
  EXPECT_TRUE(adapter.withdrawn_gids()[1]);
  ASSERT_EQ(adapter.destroy(handle), VerbsStatus::ok);
  remove_second();
  EXPECT_TRUE(adapter.withdrawn_gids().none());
}

TEST_F(Gids, AnAddressThatReturnsOrIsReplacedIsForAll) {
  ASSERT_EQ(create_handle(1), VerbsStatus::ok);
  remove_second();
  adapter.set_gids(std::array{first, second});
  EXPECT_TRUE(adapter.has_gid(1));
  EXPECT_TRUE(adapter.withdrawn_gids().none());
  ASSERT_EQ(adapter.destroy(handle), VerbsStatus::ok);
  remove_second();
  adapter.set_gids(std::array{first, third});
  EXPECT_TRUE(adapter.has_gid(1));
  EXPECT_EQ(adapter.gids()[1], third);
}

TEST_F(Gids, AnIndexThatPassedToAnotherFamilyIsNoWayToThePeer) {
  remove_second();
  adapter.set_gids(std::array{first, link_local});
  auto* qp = create_qp();
  ASSERT_EQ(initialise(*qp), VerbsStatus::ok);
  EXPECT_EQ(connect(*qp, 1), VerbsStatus::invalid_argument);
  EXPECT_EQ(qp->state(), QpState::init);
  EXPECT_EQ(create_handle(1), VerbsStatus::invalid_argument);
  EXPECT_EQ(connect(*qp, 0), VerbsStatus::ok) << "the address of the peer's family is a way";
}

// RoCE v1 by the second address, and RoCE v2 by the first.
class BothVersions : public Gids {
 protected:
  BothVersions() { adapter.set_gids(std::array{first, first}, 1, {&port::roce_v1, 0b10}); }
  // Hands a packet of the peer's to a queue pair, and returns how many have come the wrong way.
  std::uint64_t wrong_after(const transport::QueuePair& qp, const wire::Path& path) {
    wire::Packet packet;
    packet.opcode = wire::opcode(wire::TransportClass::rc, wire::Operation::send_only);
    packet.destination_qp = qp.number;
    adapter.handle_packet(Time(), packet, {}, path);
    return adapter.counters().wrong_port;
  }
  const wire::Path by_ip = wire::IpUdp{.source = peer, .destination = first};
  const wire::Path by_frame = wire::EthernetPath{.global = {.source = peer, .destination = first}};
};

TEST_F(BothVersions, PacketsHaveTheFramingOfTheirAddress) {
  for (const std::uint8_t index : {std::uint8_t{0}, std::uint8_t{1}}) {
    auto* qp = create_qp();
    ASSERT_EQ(initialise(*qp), VerbsStatus::ok);
    ASSERT_EQ(connect(*qp, index), VerbsStatus::ok);
    transport::QueuePairAttributes to;
    to.state = QpState::rts;
    ASSERT_EQ(adapter.modify(*qp, to,
                             QpAttributeMask(QpAttribute::state) | QpAttribute::timeout |
                                 QpAttribute::retry_count | QpAttribute::rnr_retry |
                                 QpAttribute::sq_psn | QpAttribute::max_rd_atomic),
              VerbsStatus::ok);
    verbs::SendRequest request;
    request.opcode = verbs::SendOpcode::send;
    ASSERT_EQ(adapter.post_send(*qp, request), VerbsStatus::ok);
    Datagram datagram;
    ASSERT_TRUE(adapter.pull_datagram(Time(), datagram));
    EXPECT_EQ(datagram.framing->name, index == 0 ? "RoCE v2" : "RoCE v1");
    EXPECT_EQ(std::holds_alternative<wire::EthernetPath>(datagram.path), index == 1);
  }
}

TEST_F(BothVersions, AConnectedQueuePairTakesPacketsOfItsOwnVersionAlone) {
  for (const std::uint8_t index : {std::uint8_t{0}, std::uint8_t{1}}) {
    auto* qp = create_qp();
    ASSERT_EQ(initialise(*qp), VerbsStatus::ok);
    ASSERT_EQ(connect(*qp, index), VerbsStatus::ok);
    const std::uint64_t before = adapter.counters().wrong_port;
    EXPECT_EQ(wrong_after(*qp, index == 0 ? by_ip : by_frame), before);
    EXPECT_EQ(wrong_after(*qp, index == 0 ? by_frame : by_ip), before + 1);
  }
}

}  // namespace
}  // namespace tulle::device

// Tests of an adapter with two ports. Each port has its own addresses, partitions, flow control and
// turns, and a queue pair uses one of them.

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "rdma/device/adapter.h"
#include "rdma/device/multicast.h"

namespace tulle::device {
namespace {

using verbs::Access;
using verbs::AccessFlags;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::QpType;
using verbs::VerbsStatus;

constexpr std::uint8_t ports = 2;
constexpr Qkey qkey{0x1111};

const port::Settings pfc = [] {
  port::Settings settings;
  settings.flow_control = port::FlowControl::pfc;
  return settings;
}();

// An adapter whose port p has the address 10.p.0.number.
struct Node {
  explicit Node(int number) : Node(number, configuration(number)) {}
  Node(int number, const Configuration& configuration) : adapter(configuration), number(number) {
    for (std::uint8_t port = 1; port <= ports; ++port) {
      const Gid gid = gid_of(port);
      adapter.set_gids({&gid, 1}, port);
    }
    VerbsStatus status{};
    pd = adapter.objects().create_pd(status);
    cq = adapter.objects().create_cq(64, nullptr, status);
    region = adapter.objects().register_memory(*pd, memory.data(), memory.size(), 0,
                                               AccessFlags(Access::local_write), status);
  }
  static Configuration configuration(int number) {
    Configuration out;
    out.seed = static_cast<std::uint64_t>(number);
    out.ports = ports;
    out.port = &pfc;
    out.congestion.notification_interval = Time::microseconds(50);
    return out;
  }
  Gid gid_of(std::uint8_t port) const {
    return Gid::from_ipv4(0x0A00'0000u | std::uint32_t{port} << 16 |
                          static_cast<std::uint32_t>(number));
  }
  transport::QueuePair* create(QpType type = QpType::rc) {
    transport::QueuePairInit init;
    init.type = type;
    init.pd = pd;
    init.send_cq = init.receive_cq = cq;
    init.send_work_requests = init.receive_work_requests = 16;
    init.send_sges = init.receive_sges = 1;
    VerbsStatus status{};
    return adapter.create_qp(init, status);
  }
  VerbsStatus initialise(transport::QueuePair& qp, std::uint8_t port,
                         std::uint16_t pkey_index = 0) {
    transport::QueuePairAttributes to;
    to.state = QpState::init;
    to.port = port;
    to.pkey_index = pkey_index;
    to.qkey = qkey;
    const bool is_datagram = qp.transport.is_datagram;
    return adapter.modify(qp, to,
                          QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index |
                              QpAttribute::port |
                              (is_datagram ? QpAttribute::qkey : QpAttribute::access_flags));
  }
  VerbsStatus connect(transport::QueuePair& qp, std::uint8_t path_port, QpNumber to, Gid gid) {
    transport::QueuePairAttributes a;
    a.state = QpState::rtr;
    a.address.port = path_port;
    a.address.destination = gid;
    a.destination_qp = to;
    const VerbsStatus status = adapter.modify(
        qp, a,
        QpAttributeMask(QpAttribute::state) | QpAttribute::address_vector | QpAttribute::path_mtu |
            QpAttribute::destination_qp | QpAttribute::rq_psn | QpAttribute::max_dest_rd_atomic |
            QpAttribute::min_rnr_timer);
    if (status != VerbsStatus::ok) return status;
    a.state = QpState::rts;
    a.timeout = 10;
    a.retry_count = 7;
    return adapter.modify(qp, a,
                          QpAttributeMask(QpAttribute::state) | QpAttribute::sq_psn |
                              QpAttribute::timeout | QpAttribute::retry_count |
                              QpAttribute::rnr_retry | QpAttribute::max_rd_atomic);
  }
  VerbsStatus send(transport::QueuePair& qp, std::uint32_t bytes,
                   verbs::AddressHandle* to = nullptr) {
    const verbs::Sge sge{0, bytes, region->lkey()};
    verbs::SendRequest request;
    request.opcode = verbs::SendOpcode::send;
    request.flags = verbs::SendFlag::signaled;
    request.sges = {&sge, 1};
    request.address_handle = to;
    request.remote_qp = QpNumber(0x100);
    request.remote_qkey = qkey;
    return adapter.post_send(qp, request);
  }
  void receive(transport::QueuePair& qp) {
    const verbs::Sge sge{0, 4'096, region->lkey()};
    ASSERT_EQ(adapter.post_receive(qp, {0, {&sge, 1}}), VerbsStatus::ok);
  }
  std::uint32_t successes() {
    std::uint32_t count = 0;
    for (verbs::Completion completion; cq->poll({&completion, 1}) == 1; ++count) {
      EXPECT_EQ(completion.status, verbs::CompletionStatus::success);
    }
    return count;
  }

  std::array<std::byte, 8'192> memory{};
  Adapter adapter;
  int number;
  verbs::ProtectionDomain* pd = nullptr;
  verbs::CompletionQueue* cq = nullptr;
  verbs::MemoryRegion* region = nullptr;
};

class Ports : public testing::Test {
 protected:
  struct Connection {
    transport::QueuePair* at_a;
    transport::QueuePair* at_b;
  };
  // Connects two queue pairs by the ports of this number.
  Connection connect(std::uint8_t port) {
    const Connection made{a.create(), b.create()};
    EXPECT_EQ(a.initialise(*made.at_a, port), VerbsStatus::ok);
    EXPECT_EQ(b.initialise(*made.at_b, port), VerbsStatus::ok);
    EXPECT_EQ(a.connect(*made.at_a, port, made.at_b->number, b.gid_of(port)), VerbsStatus::ok);
    EXPECT_EQ(b.connect(*made.at_b, port, made.at_a->number, a.gid_of(port)), VerbsStatus::ok);
    return made;
  }
  // Moves all packets that a port of `from` has to the port of `to` at the other end of its cable.
  // Returns their number.
  int move(Node& from, Node& to, std::uint8_t port) {
    int packets = 0;
    Datagram datagram;
    for (; from.adapter.pull_datagram(now, datagram, port); ++packets) {
      EXPECT_EQ(datagram.ip().source, from.gid_of(port));
      datagram.finish_frame(0);
      std::vector<std::byte> bytes(datagram.frame.head.begin(),
                                   datagram.frame.head.begin() + datagram.frame.head_bytes);
      for (int i = 0; i < datagram.piece_count; ++i) {
        bytes.insert(bytes.end(), datagram.pieces[i].begin(), datagram.pieces[i].end());
      }
      bytes.insert(bytes.end(), datagram.frame.tail.begin(),
                   datagram.frame.tail.begin() + datagram.frame.tail_bytes);
      const std::uint8_t arrives_by = crossed ? static_cast<std::uint8_t>(3 - port) : port;
      EXPECT_EQ(to.adapter.handle_datagram(now, datagram.ip(), true, bytes, arrives_by),
                port::Verdict::ok);
    }
    return packets;
  }

  Node a{1}, b{2};
  Time now;
  bool crossed = false;  // the cable of port 1 ends at the other adapter's port 2
};

TEST_F(Ports, EachQueuePairSendsByItsPort) {
  const Connection first = connect(1), second = connect(2);
  b.receive(*first.at_b);
  b.receive(*second.at_b);
  ASSERT_EQ(a.send(*second.at_a, 100), VerbsStatus::ok);
  EXPECT_FALSE(a.adapter.has_ready(0, 1));
  EXPECT_TRUE(a.adapter.has_ready(0, 2));
  EXPECT_EQ(move(a, b, 1), 0);
  EXPECT_EQ(move(a, b, 2), 1);
  EXPECT_EQ(move(b, a, 1), 0) << "the answer leaves by the port of its queue pair";
  EXPECT_EQ(move(b, a, 2), 1);
  EXPECT_EQ(a.successes(), 1u);
  EXPECT_EQ(b.successes(), 1u);
  ASSERT_EQ(a.send(*first.at_a, 100), VerbsStatus::ok);
  EXPECT_EQ(move(a, b, 1), 1);
  EXPECT_EQ(move(b, a, 1), 1);
  EXPECT_EQ(a.successes(), 1u);
}

TEST_F(Ports, APacketByAnotherPortIsDropped) {
  const Connection second = connect(2);
  b.receive(*second.at_b);
  crossed = true;
  ASSERT_EQ(a.send(*second.at_a, 100), VerbsStatus::ok);
  EXPECT_EQ(move(a, b, 2), 1);
  EXPECT_EQ(b.successes(), 0u);
  EXPECT_EQ(b.adapter.counters().wrong_port, 1u);
  // The sender repeats it, by the same port.
  crossed = false;
  now = a.adapter.next_deadline();
  a.adapter.handle_deadline(now);
  EXPECT_EQ(move(a, b, 2), 1);
  EXPECT_EQ(b.successes(), 1u);
  EXPECT_EQ(b.adapter.counters().wrong_port, 1u);
}

TEST_F(Ports, APauseHoldsOnePortBack) {
  const Connection first = connect(1), second = connect(2);
  b.receive(*first.at_b);
  b.receive(*second.at_b);
  a.adapter.port(1).handle_control(now, port::Control::of(port::Pause{0xFF, 0}));
  ASSERT_EQ(a.send(*first.at_a, 100), VerbsStatus::ok);
  ASSERT_EQ(a.send(*second.at_a, 100), VerbsStatus::ok);
  EXPECT_EQ(move(a, b, 1), 0);
  EXPECT_EQ(move(a, b, 2), 1);
  a.adapter.port(1).handle_control(now, port::Control::of(port::Pause{0, 0xFF}));
  EXPECT_EQ(move(a, b, 1), 1);
  EXPECT_EQ(a.adapter.port(1).counters().pauses, 1u);
  EXPECT_EQ(a.adapter.port(2).counters().pauses, 0u);
}

TEST_F(Ports, PartitionsAreThoseOfThePort) {
  Node node(3);
  node.adapter.set_pkeys(std::array{default_pkey, Pkey(0x8005)}, 2);
  transport::QueuePair* qp = node.create();
  EXPECT_EQ(node.initialise(*qp, 1, 1), VerbsStatus::invalid_argument);
  EXPECT_EQ(node.initialise(*qp, 2, 1), VerbsStatus::ok);
  EXPECT_EQ(qp->pkey(), Pkey(0x8005));
}

TEST_F(Ports, AddressesAreThoseOfThePort) {
  const std::array two{a.gid_of(2), Gid::from_ipv4(0x0A02'0063)};
  a.adapter.set_gids(two, 2);
  EXPECT_FALSE(a.adapter.has_gid(1, 1));
  EXPECT_TRUE(a.adapter.has_gid(1, 2));
  VerbsStatus status{};
  verbs::AddressVector to;
  to.destination = b.gid_of(1);
  to.source_gid_index = 1;
  to.port = 1;
  EXPECT_EQ(a.adapter.create_ah(*a.pd, to, status), nullptr);
  to.port = 2;
  verbs::AddressHandle* handle = a.adapter.create_ah(*a.pd, to, status);
  ASSERT_NE(handle, nullptr);
  // A handle of one port keeps no address of another.
  a.adapter.set_gids(std::array{Gid{}}, 1);
  EXPECT_TRUE(a.adapter.withdrawn_gids(1).none());
  a.adapter.set_gids(std::array{two[0], Gid{}}, 2);
  EXPECT_TRUE(a.adapter.withdrawn_gids(2)[1]);
}

TEST_F(Ports, PortsThatAreNotThereAreRefused) {
  for (const std::uint8_t port : {std::uint8_t{0}, std::uint8_t{3}, std::uint8_t{255}}) {
    transport::QueuePair* qp = a.create();
    EXPECT_EQ(a.initialise(*qp, port), VerbsStatus::invalid_argument);
    EXPECT_EQ(qp->state(), QpState::reset);
    verbs::AddressVector to;
    to.destination = b.gid_of(1);
    to.port = port;
    VerbsStatus status{};
    EXPECT_EQ(a.adapter.create_ah(*a.pd, to, status), nullptr);
    EXPECT_EQ(status, VerbsStatus::invalid_argument);
  }
}

TEST_F(Ports, APathBeginsAtTheQueuePairsPort) {
  transport::QueuePair* qp = a.create();
  ASSERT_EQ(a.initialise(*qp, 1), VerbsStatus::ok);
  EXPECT_EQ(a.connect(*qp, 2, QpNumber(0x100), b.gid_of(2)), VerbsStatus::invalid_argument);
  EXPECT_EQ(a.connect(*qp, 1, QpNumber(0x100), b.gid_of(1)), VerbsStatus::ok);
}

TEST_F(Ports, DatagramsLeaveByTheQueuePairsPort) {
  transport::QueuePair* qp = a.create(QpType::ud);
  ASSERT_EQ(a.initialise(*qp, 2), VerbsStatus::ok);
  transport::QueuePairAttributes to;
  to.state = QpState::rtr;
  ASSERT_EQ(a.adapter.modify(*qp, to, QpAttribute::state), VerbsStatus::ok);
  to.state = QpState::rts;
  ASSERT_EQ(a.adapter.modify(*qp, to, QpAttributeMask(QpAttribute::state) | QpAttribute::sq_psn),
            VerbsStatus::ok);
  std::array<verbs::AddressHandle*, ports> handles{};
  for (std::uint8_t port = 1; port <= ports; ++port) {
    verbs::AddressVector vector;
    vector.destination = b.gid_of(port);
    vector.port = port;
    VerbsStatus status{};
    handles[port - 1u] = a.adapter.create_ah(*a.pd, vector, status);
  }
  EXPECT_EQ(a.send(*qp, 100, handles[0]), VerbsStatus::invalid_argument)
      << "a handle of another port";
  EXPECT_EQ(a.send(*qp, 100, handles[1]), VerbsStatus::ok);
  Datagram datagram;
  EXPECT_FALSE(a.adapter.pull_datagram(now, datagram, 1));
  ASSERT_TRUE(a.adapter.pull_datagram(now, datagram, 2));
  EXPECT_EQ(datagram.ip().source, a.gid_of(2));
}

TEST_F(Ports, AMulticastPacketIsForTheQueuePairsOfItsPort) {
  const Gid group = Gid::from_ipv4(0xE001'0203);
  std::array<transport::QueuePair*, ports> qps{};
  for (std::uint8_t port = 1; port <= ports; ++port) {
    transport::QueuePair*& qp = qps[port - 1u];
    qp = a.create(QpType::ud);
    ASSERT_EQ(a.initialise(*qp, port), VerbsStatus::ok);
    transport::QueuePairAttributes to;
    to.state = QpState::rtr;
    ASSERT_EQ(a.adapter.modify(*qp, to, QpAttribute::state), VerbsStatus::ok);
    a.receive(*qp);
    ASSERT_EQ(a.adapter.multicast().attach(*qp, group), VerbsStatus::ok);
  }
  wire::Packet packet;
  packet.opcode = wire::opcode(wire::TransportClass::ud, wire::Operation::send_only);
  packet.destination_qp = multicast_qp;
  packet.pkey = default_pkey;
  packet.qkey = qkey;
  wire::IpUdp ip;
  ip.source = b.gid_of(2);
  ip.destination = group;
  const std::array<std::byte, 8> payload{};
  a.adapter.handle_packet(now, packet, {payload.data(), 8}, ip, 2);
  EXPECT_EQ(qps[0]->receives_waiting(), 1u);
  EXPECT_EQ(qps[1]->receives_waiting(), 0u);
}

TEST_F(Ports, ANotificationLeavesByTheQueuePairsPort) {
  const Connection second = connect(2);
  b.receive(*second.at_b);
  ASSERT_EQ(a.send(*second.at_a, 100), VerbsStatus::ok);
  Datagram datagram;
  ASSERT_TRUE(a.adapter.pull_datagram(now, datagram, 2));
  wire::IpUdp marked = datagram.ip();
  marked.traffic_class |= wire::ecn_congestion_experienced;
  const std::array<std::byte, 100> payload{};
  b.adapter.handle_packet(now, datagram.packet, {payload.data(), 100}, marked, 2);
  EXPECT_EQ(b.adapter.pull_datagram(now, datagram, 1), false);
  ASSERT_TRUE(b.adapter.pull_datagram(now, datagram, 2));
  EXPECT_EQ(wire::transport_of(datagram.packet.opcode), wire::TransportClass::cnp);
  EXPECT_EQ(datagram.ip().source, b.gid_of(2));
}

// Notifications have a level of their own, so that a pause of the data's level does not hold them
// back.
TEST_F(Ports, ANotificationHasItsOwnServiceLevel) {
  Configuration configuration = Node::configuration(2);
  configuration.congestion.notification_service_level = 6;
  Node notifier(2, configuration);
  transport::QueuePair* qp = notifier.create();
  ASSERT_EQ(notifier.initialise(*qp, 1), VerbsStatus::ok);
  ASSERT_EQ(notifier.connect(*qp, 1, QpNumber(0x100), a.gid_of(1)), VerbsStatus::ok);
  for (int i = 0; i < 2; ++i) notifier.receive(*qp);
  wire::Packet packet;
  packet.opcode = wire::opcode(wire::TransportClass::rc, wire::Operation::send_only);
  packet.destination_qp = qp->number;
  packet.pkey = default_pkey;
  packet.ack_request = true;
  packet.psn = qp->attributes().rq_psn;
  wire::IpUdp marked;
  marked.source = a.gid_of(1);
  marked.destination = notifier.gid_of(1);
  marked.traffic_class = wire::ecn_congestion_experienced;
  const std::array<std::byte, 8> payload{};
  port::Port& port = notifier.adapter.port(1);
  Datagram out;
  const auto is_notification = [&out] {
    return wire::transport_of(out.packet.opcode) == wire::TransportClass::cnp;
  };

  // The level of notifications is stopped: what else there is leaves, and they wait.
  port.handle_control(now, port::Control::of(port::Pause{1u << 6, 0}));
  notifier.adapter.handle_packet(now, packet, {payload.data(), 8}, marked, 1);
  ASSERT_TRUE(notifier.adapter.pull_datagram(now, out, 1));
  EXPECT_FALSE(is_notification());
  EXPECT_EQ(out.service_level, 0);
  EXPECT_FALSE(notifier.adapter.pull_datagram(now, out, 1));

  // All others are stopped: the notification leaves.
  port.handle_control(now, port::Control::of(port::Pause{0xBF, 1u << 6}));
  ASSERT_TRUE(notifier.adapter.pull_datagram(now, out, 1));
  EXPECT_TRUE(is_notification());
  EXPECT_EQ(out.service_level, 6);
  EXPECT_FALSE(wire::is_marked(out.path));
  EXPECT_FALSE(notifier.adapter.pull_datagram(now, out, 1)) << "it is sent once";
}

TEST_F(Ports, ATurnIsSoManyPackets) {
  Configuration configuration = Node::configuration(3);
  configuration.packets_per_turn = 3;
  Node node(3, configuration);
  std::array<transport::QueuePair*, 2> qps{node.create(), node.create()};
  for (std::uint32_t i = 0; i < 2; ++i) {
    ASSERT_EQ(node.initialise(*qps[i], 1), VerbsStatus::ok);
    ASSERT_EQ(node.connect(*qps[i], 1, QpNumber(0xA + i), b.gid_of(1)), VerbsStatus::ok);
    const std::uint32_t four_packets = 4 * qps[i]->mtu_bytes();
    for (int message = 0; message < 2; ++message) {
      ASSERT_EQ(node.send(*qps[i], four_packets), VerbsStatus::ok);
    }
  }
  std::string order;
  for (Datagram out; node.adapter.pull_datagram(now, out, 1);) {
    order += out.packet.destination_qp == QpNumber(0xA) ? 'A' : 'B';
  }
  EXPECT_EQ(order, "AAABBBAAABBBAABB");
}

// A queue pair that was reset with requests in its queue may be initialised at another port.
TEST_F(Ports, AQueuePairThatChangesItsPortLeavesNothingBehind) {
  const Connection first = connect(1);
  ASSERT_EQ(a.send(*first.at_a, 100), VerbsStatus::ok);
  ASSERT_TRUE(a.adapter.has_ready(0, 1));
  transport::QueuePairAttributes to;
  to.state = QpState::reset;
  ASSERT_EQ(a.adapter.modify(*first.at_a, to, QpAttribute::state), VerbsStatus::ok);
  ASSERT_EQ(a.initialise(*first.at_a, 2), VerbsStatus::ok);
  EXPECT_FALSE(a.adapter.has_ready(0, 1));
  ASSERT_EQ(a.adapter.destroy(first.at_a), VerbsStatus::ok);
  Datagram datagram;
  EXPECT_FALSE(a.adapter.pull_datagram(now, datagram, 1));
  EXPECT_FALSE(a.adapter.pull_datagram(now, datagram, 2));
}

// A destroyed queue pair leaves the turns and the notifications of its port.
TEST_F(Ports, ADestroyedQueuePairIsForgottenByItsPort) {
  const Connection second = connect(2);
  ASSERT_EQ(a.send(*second.at_a, 100), VerbsStatus::ok);
  ASSERT_TRUE(a.adapter.has_ready(0, 2));
  ASSERT_EQ(a.adapter.destroy(second.at_a), VerbsStatus::ok);
  EXPECT_FALSE(a.adapter.has_ready(0, 2));
}

}  // namespace
}  // namespace tulle::device

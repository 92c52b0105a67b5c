// A fabric that is spread over machines, in virtual time.

#include "fabric/machines/tunnels.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "fabric/built_test.h"
#include "fabric/machines/spread_fabric_test.h"
#include "fabric/random_topology_test.h"
#include "management/mad_test.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/packet.h"

namespace tulle::fabric {
namespace {

using Bytes = std::vector<std::byte>;
using Offer = SubnetTraffic::Offer;
using Program = SubnetTraffic::Program;

std::uint32_t slot_of_number(QpNumber qp) { return qp.value >> 17; }

// Hosts 0 and 1 at switch 4, hosts 2 and 3 at switch 5, and a cable between the two.
Topology two_leaves() {
  return built(from_csv(
      "a,b,gbps,delay_ns\n0,4,100,1\n1,4,100,1\n2,5,100,1\n3,5,100,1\n4,5,100,1\n", "test"));
}
constexpr std::uint32_t long_cable = 4;

struct Spread : SpreadFabric {
  explicit Spread(const Topology& of, std::uint32_t count = 2)
      : SpreadFabric(of, count, slot_of_number) {}

  Bytes packet(Program from, Lid to, std::uint32_t slot, std::size_t payload,
               std::uint32_t number) {
    wire::LocalPath path;
    path.local.source = Lid(lid(from.host));
    path.local.destination = to;
    wire::Packet packet;
    packet.opcode = wire::opcode(wire::TransportClass::uc, wire::Operation::send_only);
    packet.destination_qp = QpNumber(slot << 17 | 5);
    packet.psn = Psn(number);
    Bytes bytes(8 + wire::header_bytes(packet.opcode) + payload);
    const std::size_t link = port::encode_link_headers(path, bytes.size() - 8, bytes);
    wire::encode(packet, std::span(bytes).subspan(link));
    for (std::size_t i = 20; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(number + i);
    return bytes;
  }
  Bytes packet(Program from, Program to, std::size_t payload, std::uint32_t number = 0) {
    return packet(from, Lid(lid(to.host)), to.slot, payload, number);
  }
  void attach(Program program) { at(program.host).traffic.attach(now, program); }
  Offer offer(Program from, const Bytes& bytes) {
    return at(from.host).traffic.offer(now, from, bytes);
  }
  Bytes take(Program program) {
    const auto bytes = at(program.host).traffic.take(now, program);
    return {bytes.begin(), bytes.end()};
  }
  // Sends so many packets, as fast as they find room, while the receiver takes all. Returns those
  // that arrived, by number.
  std::vector<std::uint32_t> stream(Program from, Program to, std::uint32_t count) {
    std::uint32_t next = 0;
    std::vector<std::uint32_t> arrived;
    // It may have been away for too long.
    if (at(to.host).traffic.is_given_up(to)) at(to.host).traffic.resume(now, to);
    each_turn = [&] {
      while (next < count && offer(from, packet(from, to, 2'048, next)) == Offer::taken) ++next;
      for (Bytes got = take(to); !got.empty(); got = take(to)) {
        const auto number = static_cast<std::uint32_t>(got[17]) << 16 |
                            static_cast<std::uint32_t>(got[18]) << 8 |
                            static_cast<std::uint32_t>(got[19]);
        EXPECT_EQ(got, packet(from, to, 2'048, number));
        arrived.push_back(number);
      }
    };
    for (int i = 0; i < 600 && next < count; ++i) run_for(Time::milliseconds(10));
    EXPECT_EQ(next, count) << "packets wait for ever";
    run_for(Time::milliseconds(50));
    each_turn = {};
    return arrived;
  }
};

constexpr Program a{0, 1};
constexpr Program c{2, 1};

TEST(TunnelsTest, OneManagerBringsUpTheNodesOfAllMachines) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    for (const std::uint32_t count : {2u, 3u}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", machines " << count);
      Spread spread(random_topology(seed), count);
      spread.random = Random(seed);
      spread.run_for(Time::seconds(3));
      EXPECT_TRUE(spread.is_up());
      // All machines know the LIDs of all nodes.
      for (std::uint32_t node = 0; node < spread.topology.nodes(); ++node) {
        for (const auto& machine : spread.machines) {
          const auto& agent = machine->subnet.node(node);
          EXPECT_EQ(agent.port_info(agent.addressed_port(1)).lid, spread.lid(node)) << node;
          EXPECT_NE(spread.lid(node), 0);
        }
      }
    }
  }
}

TEST(TunnelsTest, PacketsCrossMachines) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  ASSERT_TRUE(spread.is_up());
  for (const Program program : {a, c}) spread.attach(program);
  const auto there = spread.stream(a, c, 2'000);
  const auto back = spread.stream(c, a, 2'000);
  ASSERT_EQ(there.size(), 2'000u) << "a wire without losses loses nothing";
  ASSERT_EQ(back.size(), 2'000u);
  for (std::uint32_t i = 0; i < 2'000; ++i) EXPECT_EQ(there[i], i);
  const auto& counters = spread.machines[0]->tunnels.counters();
  EXPECT_EQ(counters.foreign + counters.invalid + counters.late + counters.discarded, 0u);
}

Bytes piece_of(const Bytes& whole, std::size_t offset, std::size_t size, std::uint32_t sequence) {
  TunnelHeader header;
  std::memcpy(&header, whole.data(), sizeof header);
  header.kind = static_cast<std::uint8_t>(TunnelKind::piece);
  header.sequence = sequence;
  TunnelPiece piece;
  piece.whole = static_cast<std::uint16_t>(whole.size() - sizeof header);
  piece.offset = static_cast<std::uint16_t>(offset);
  Bytes bytes(sizeof header + sizeof piece);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, &piece, sizeof piece);
  const auto from = whole.begin() + static_cast<std::ptrdiff_t>(sizeof header + offset);
  bytes.insert(bytes.end(), from, from + static_cast<std::ptrdiff_t>(size));
  return bytes;
}

// IP never has to divide a datagram: a stranger could fill the table of fragments.
TEST(TunnelsTest, LongPacketsCrossMachinesInPieces) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  for (const Program program : {a, c}) spread.attach(program);
  const Bytes sent = spread.packet(a, c, 4'096);
  ASSERT_EQ(spread.offer(a, sent), Offer::taken);
  std::size_t pieces = 0;
  for (int i = 0; i < 100 && pieces == 0; ++i) {
    spread.turn();
    for (const auto& [when, each] : spread.under_way) {
      EXPECT_LE(std::get<2>(each).size(), tunnel_datagram_bytes);
      pieces += std::get<2>(each)[5] == std::byte{6};
    }
  }
  EXPECT_EQ(pieces, 4u);
  spread.run_for(Time::milliseconds(1));
  EXPECT_EQ(spread.take(c), sent);
  EXPECT_EQ(spread.at(2).tunnels.counters().incomplete, 0u);
}

// A datagram is complete only if all of its pieces came, one after another.
TEST(TunnelsTest, PiecesWithoutTheirOthersAreNoPacket) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  for (const Program program : {a, c}) spread.attach(program);
  // Takes a whole datagram, which a machine with a larger MTU would send.
  Tunnels& there = spread.at(2).tunnels;
  Bytes whole(sizeof(TunnelHeader));
  const Bytes sent = spread.packet(a, c, 4'096);
  ASSERT_EQ(spread.offer(a, sent), Offer::taken);
  std::uint32_t sequence = 0;
  for (int i = 0; i < 100 && whole.size() == sizeof(TunnelHeader); ++i) {
    spread.turn();
    for (const auto& [when, each] : spread.under_way) {
      const Bytes& bytes = std::get<2>(each);
      if (bytes[5] != std::byte{6}) continue;
      std::copy_n(bytes.begin(), sizeof(TunnelHeader), whole.begin());
      whole.insert(whole.end(), bytes.begin() + sizeof(TunnelHeader) + sizeof(TunnelPiece),
                   bytes.end());
    }
  }
  spread.under_way.clear();
  TunnelHeader header;
  std::memcpy(&header, whole.data(), sizeof header);
  sequence = header.sequence;
  const std::size_t bytes = whole.size() - sizeof header;
  const auto piece = [&](std::size_t offset, std::size_t size) {
    there.receive(spread.now, 0, piece_of(whole, offset, size, ++sequence));
  };
  piece(1'000, 1'000);  // without the first
  piece(0, 1'000);      // without the others
  piece(0, 1'000);
  piece(2'000, bytes - 2'000);  // the second is missing
  piece(0, 1'000);
  ++sequence;  // another one came in between
  piece(1'000, bytes - 1'000);
  piece(0, 1'000);
  there.receive(spread.now, 0, Bytes(piece_of(whole, 1'000, 0, ++sequence)));
  there.receive(spread.now, 0, Bytes(piece_of(whole, 0, 0, ++sequence)));
  spread.run_for(Time::milliseconds(1));
  EXPECT_TRUE(spread.take(c).empty());
  EXPECT_EQ(there.counters().incomplete, 5u);
  sequence += 1'000;  // the machine sent others meanwhile
  piece(0, 1'000);
  piece(1'000, bytes - 1'000);
  spread.run_for(Time::milliseconds(1));
  EXPECT_EQ(spread.take(c), sent);
}

// Credits that are lost with packets come back with the next update.
TEST(TunnelsTest, LossesTakeNoCreditsForEver) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Spread spread(two_leaves());
    spread.random = Random(seed);
    spread.run_for(Time::seconds(2));
    for (const Program program : {a, c}) spread.attach(program);
    spread.loss = 0.05;
    spread.doubled = 0.02;
    spread.overtaken = 0.02;
    const auto arrived = spread.stream(a, c, 3'000);
    EXPECT_GT(arrived.size(), 2'000u);
    EXPECT_LT(arrived.size(), 3'000u);
    for (std::size_t i = 1; i < arrived.size(); ++i) {
      ASSERT_LT(arrived[i - 1], arrived[i]) << "twice, or out of order";
    }
    EXPECT_GT(spread.at(2).tunnels.counters().late, 0u);
    // Once nothing is lost any more, all arrives.
    spread.loss = spread.doubled = spread.overtaken = 0;
    spread.run_for(Time::milliseconds(300));
    EXPECT_EQ(spread.stream(a, c, 500).size(), 500u);
    EXPECT_EQ(spread.at(2).traffic.counters().uncredited, 0u);
  }
}

// A program that takes nothing stops its sender on another machine, and nothing is lost.
TEST(TunnelsTest, CreditsHoldASenderBack) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  for (const Program program : {a, c}) spread.attach(program);
  std::uint32_t sent = 0;
  spread.each_turn = [&] {
    while (spread.offer(a, spread.packet(a, c, 2'048, sent)) == Offer::taken) ++sent;
  };
  spread.run_for(Time::milliseconds(60));
  spread.each_turn = {};
  const std::uint32_t held = sent;
  EXPECT_LT(held, 300u) << "four lanes' memory of 64 KiB";
  std::uint32_t taken = 0;
  for (int i = 0; i < 100; ++i) {
    while (!spread.take(c).empty()) ++taken;
    spread.run_for(Time::microseconds(200));
  }
  EXPECT_EQ(taken, held);
}

TEST(TunnelsTest, ACutCableIsDownAtBothEnds) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  ASSERT_TRUE(spread.is_up());
  for (const std::uint32_t machine : {0u, 1u}) {
    spread.machines[machine]->subnet.set_cut(spread.now, long_cable, true);
    spread.run_for(Time::milliseconds(300));
    for (const std::uint32_t node : {4u, 5u}) {
      EXPECT_EQ(spread.at(node).subnet.node(node).state(3), wire::PortState::down);
    }
    spread.machines[machine]->subnet.set_cut(spread.now, long_cable, false);
    spread.run_for(Time::seconds(3));
    EXPECT_TRUE(spread.is_up());
  }
}

// The link goes down and up at one end, and everything that was told of it in between is lost.
TEST(TunnelsTest, AnAttemptThatWasNotHeardOfIsNoticed) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  const auto changes = spread.machines[1]->subnet.link_changes();
  spread.loss = 1;
  spread.machines[0]->subnet.set_cut(spread.now, long_cable, true);
  spread.run_for(Time::milliseconds(200));
  spread.machines[0]->subnet.set_cut(spread.now, long_cable, false);
  spread.run_for(Time::milliseconds(200));
  EXPECT_EQ(spread.machines[1]->subnet.link_changes(), changes);
  spread.loss = 0;
  spread.run_for(Time::seconds(3));
  EXPECT_GT(spread.machines[1]->subnet.link_changes(), changes);
  EXPECT_TRUE(spread.is_up());
}

TEST(TunnelsTest, AMachineThatGoesTakesItsCablesAlongAndComesBack) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  for (const Program program : {a, c}) spread.attach(program);
  EXPECT_EQ(spread.stream(a, c, 100).size(), 100u);
  spread.stop(1);
  spread.run_for(Time::milliseconds(1'200));
  EXPECT_EQ(spread.machines[0]->tunnels.state(1), Tunnels::State::silent);
  EXPECT_EQ(spread.at(4).subnet.node(4).state(3), wire::PortState::down);
  // The datagrams that waited for it are not kept.
  spread.run_for(Time::seconds(2));
  EXPECT_TRUE(spread.machines[0]->tunnels.waiting().empty());
  spread.start(1);
  spread.run_for(Time::seconds(4));
  EXPECT_TRUE(spread.is_up());
  spread.attach(c);
  EXPECT_EQ(spread.stream(a, c, 100).size(), 100u);
  EXPECT_EQ(spread.stream(c, a, 100).size(), 100u);
}

// A process that restarts at once is not mistaken for the one that was there before.
TEST(TunnelsTest, AnotherLifeOfAMachineIsNoticed) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  spread.start(1);
  spread.run_for(Time::seconds(4));
  EXPECT_TRUE(spread.is_up());
  for (const Program program : {a, c}) spread.attach(program);
  EXPECT_EQ(spread.stream(a, c, 100).size(), 100u);
}

// Neither does the manager's machine: the nodes elsewhere do not wait until its key's lease ends.
TEST(TunnelsTest, AnotherLifeOfTheManagersMachineSetsTheSubnetUp) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  const auto key_of = [&](std::uint32_t node) {
    return spread.at(node)
        .subnet.node(node)
        .port_info(spread.topology.is_host(node) ? 1 : 0)
        .management_key;
  };
  const std::uint64_t before = key_of(c.host);
  EXPECT_NE(before, 0u);
  spread.start(0);
  spread.run_for(Time::seconds(4));
  EXPECT_TRUE(spread.is_up());
  EXPECT_NE(key_of(c.host), before);
  EXPECT_EQ(key_of(c.host), key_of(a.host));
  // A machine without the manager leaves the others' keys alone.
  spread.start(1);
  spread.run_for(Time::seconds(4));
  EXPECT_EQ(wire::key_protection_of(spread.at(a.host).subnet.node(a.host).port_info(1)), 1u);
}

// A process that stood still itself does not take the others for gone.
TEST(TunnelsTest, AProcessThatStoodStillLosesNobody) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  const auto changes = spread.machines[0]->subnet.link_changes();
  spread.standing_still = 0;
  spread.run_for(Time::milliseconds(900));
  spread.standing_still = 0xFFFF;
  spread.run_for(Time::seconds(3));
  EXPECT_EQ(spread.machines[0]->subnet.link_changes(), changes);
  EXPECT_TRUE(spread.is_up());
}

// Datagrams go one way alone. Both ends take their link down, and both say why.
TEST(TunnelsTest, ACableThatWorksOneWayIsDown) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  ASSERT_TRUE(spread.is_up());
  spread.mute = 0;
  spread.run_for(Time::milliseconds(2'500));
  EXPECT_EQ(spread.machines[1]->tunnels.state(0), Tunnels::State::silent);
  EXPECT_EQ(spread.machines[0]->tunnels.state(1), Tunnels::State::deaf);
  for (const std::uint32_t node : {4u, 5u}) {
    EXPECT_EQ(spread.at(node).subnet.node(node).state(3), wire::PortState::down) << node;
  }
  spread.mute = 0xFFFF;
  spread.run_for(Time::seconds(3));
  EXPECT_TRUE(spread.is_up());
  EXPECT_EQ(spread.machines[0]->tunnels.state(1), Tunnels::State::heard);
}

// A machine that is gone is no longer shown as it was.
TEST(TunnelsTest, ASilentMachinesPortsAreForgotten) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  EXPECT_NE(spread.machines[0]->subnet.node(2).port_info(1).lid, 0);
  spread.stop(1);
  spread.run_for(Time::seconds(2));
  EXPECT_EQ(spread.machines[0]->subnet.node(2).port_info(1).lid, 0);
  EXPECT_EQ(spread.machines[0]->subnet.node(5).state(1), wire::PortState::down);
}

// A datagram of the machine's last life comes late. It does not stand in the way of the new one's.
TEST(TunnelsTest, ALateDatagramOfAnEarlierLifeIsRefused) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(10));
  Bytes late;
  for (const auto& [when, each] : spread.under_way) late = std::get<2>(each);
  for (int i = 0; late.empty() && i < 1'000; ++i) {
    spread.run_for(Time::microseconds(500));
    for (const auto& [when, each] : spread.under_way) {
      const auto& bytes = std::get<2>(each);
      if (std::get<0>(each) == 1 && bytes[5] == std::byte{2}) late = bytes;
    }
  }
  ASSERT_FALSE(late.empty());
  spread.start(1);
  spread.run_for(Time::milliseconds(1'500));
  const auto before = spread.machines[0]->tunnels.counters().foreign;
  spread.machines[0]->tunnels.receive(spread.now, 1, late);
  EXPECT_EQ(spread.machines[0]->tunnels.counters().foreign, before + 1);
  spread.run_for(Time::seconds(3));
  EXPECT_TRUE(spread.is_up());
  EXPECT_EQ(spread.machines[0]->tunnels.counters().late, 0u);
}

// A manager restarts a link. What waited for it is lost at both ends, and both begin with new
// credits at once.
TEST(TunnelsTest, ALinkThatRestartsBeginsAnewAtBothEnds) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  for (const Program program : {a, c}) spread.attach(program);
  EXPECT_EQ(spread.stream(a, c, 1'000).size(), 1'000u);
  for (int i = 0; i < 5; ++i) {
    auto& subnet = spread.machines[1]->subnet;
    subnet.set_cut(spread.now, long_cable, true);
    subnet.set_cut(spread.now, long_cable, false);
    spread.run_for(Time::seconds(2));
    ASSERT_TRUE(spread.is_up());
    EXPECT_EQ(spread.stream(a, c, 70 + 13 * static_cast<std::uint32_t>(i)).size(), 70u + 13u * i);
    EXPECT_EQ(spread.at(2).traffic.counters().uncredited, 0u);
  }
}

TEST(TunnelsTest, AnotherFabricAndAnotherVersionAreNamed) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(1));
  const auto hello = [&](std::uint64_t session, std::uint32_t digest, std::uint8_t version) {
    TunnelHeader header;
    header.kind = static_cast<std::uint8_t>(TunnelKind::hello);
    header.machine = 1;
    header.version = version;
    header.session = session;
    TunnelHello body;
    body.session = 7;
    body.digest = digest;
    Bytes bytes(sizeof header + sizeof body);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &body, sizeof body);
    return bytes;
  };
  Tunnels& tunnels = spread.machines[0]->tunnels;
  spread.stop(1);
  // As long as the other one is there, nobody who does not know the session changes anything.
  tunnels.receive(spread.now, 1, hello(0, 1, TunnelHeader::right_version));
  tunnels.receive(spread.now, 1, hello(0, 1, TunnelHeader::right_version + 1));
  EXPECT_EQ(tunnels.state(1), Tunnels::State::heard);
  spread.run_for(Time::seconds(2));
  EXPECT_EQ(tunnels.state(1), Tunnels::State::silent);
  tunnels.receive(spread.now, 1, hello(0, 1, TunnelHeader::right_version));
  EXPECT_EQ(tunnels.state(1), Tunnels::State::other_fabric);
  tunnels.receive(spread.now, 1, hello(0, 1, TunnelHeader::right_version + 1));
  EXPECT_EQ(tunnels.state(1), Tunnels::State::other_version);
}

// Datagrams of a stranger who can send from a machine's address, and has read nothing.
TEST(TunnelsTest, AStrangerChangesNothing) {
  Spread spread(two_leaves());
  spread.run_for(Time::seconds(2));
  for (const Program program : {a, c}) spread.attach(program);
  Tunnels& tunnels = spread.machines[0]->tunnels;
  const auto changes = spread.machines[0]->subnet.link_changes();
  Random random(3);
  const auto before = tunnels.counters();
  std::size_t answers = 0;
  for (int i = 0; i < 20'000; ++i) {
    TunnelHeader header;
    header.kind = static_cast<std::uint8_t>(random.below(7));
    header.machine = 1;
    header.session = random.chance(0.5) ? 0 : random.next();
    header.sequence = static_cast<std::uint32_t>(random.next());
    header.link = long_cable;
    Bytes bytes(sizeof header + (header.kind == 1 ? sizeof(TunnelHello) : random.below(200)));
    std::memcpy(bytes.data(), &header, sizeof header);
    for (std::size_t k = sizeof header; k < bytes.size(); ++k) {
      bytes[k] = static_cast<std::byte>(random.next());
    }
    tunnels.receive(spread.now, 1, bytes);
    answers += tunnels.waiting().size();
    tunnels.pop(tunnels.waiting().size());
  }
  EXPECT_EQ(tunnels.counters().foreign + tunnels.counters().invalid,
            before.foreign + before.invalid + 20'000);
  EXPECT_EQ(answers, 0u) << "a flood of them makes no traffic";
  EXPECT_EQ(spread.machines[0]->subnet.link_changes(), changes);
  spread.run_for(Time::seconds(2));
  EXPECT_TRUE(spread.is_up());
  EXPECT_EQ(spread.stream(a, c, 300).size(), 300u);
}

// Tables that lead in a circle over three machines, as no manager makes them.
TEST(TunnelsTest, MulticastComesOnceFromEachMachine) {
  Spread spread(built(from_csv("a,b,gbps,delay_ns\n0,3,100,1\n1,4,100,1\n2,5,100,1\n"
                               "3,4,100,1\n4,5,100,1\n3,5,100,1\n",
                               "test")),
                3);
  spread.run_for(Time::seconds(3));
  ASSERT_TRUE(spread.is_up());
  constexpr std::uint16_t group = 0xC005;
  const auto set_trees = [&] {
    for (const std::uint32_t node : {3u, 4u, 5u}) {
      management::Packet packet;
      packet.source = Lid(spread.lid(0));
      packet.destination = Lid(spread.lid(node));
      packet.mad = management::request_of(wire::subnet_class, management::method_set,
                                          wire::attribute_multicast_forwarding, 0);
      packet.mad[wire::subnet_data_offset + 2 * 5 + 1] = std::byte{1u << 1 | 1u << 2 | 1u << 3};
      wire::SubnetHeader header;
      header.management_key = spread.at(node).subnet.node(node).port_info(0).management_key;
      management::put_attribute(header, wire::subnet_header_offset, packet.mad);
      spread.at(0).subnet.send(spread.now, 0, 1, packet);
      spread.run_for(Time::milliseconds(1));
      EXPECT_TRUE(spread.at(node).subnet.node(node).forwards_multicast(Lid(group), 3));
    }
  };
  set_trees();
  for (const std::uint32_t host : {0u, 1u, 2u}) spread.attach({host, 1});
  const Bytes sent = spread.packet(a, Lid(group), 0x7F, 100, 7);
  const auto all_hear = [&](const Program& from, const Bytes& packet) {
    EXPECT_EQ(spread.offer(from, packet), Offer::taken);
    spread.run_for(Time::milliseconds(1));
    for (const std::uint32_t host : {0u, 1u, 2u}) {
      EXPECT_EQ(spread.take({host, 1}), packet) << host;
      EXPECT_TRUE(spread.take({host, 1}).empty()) << host;
    }
  };
  for (int i = 0; i < 50; ++i) all_hear(a, sent);
  // Switches elsewhere remember what a machine has sent, and not for the next one in its place.
  for (int i = 0; i < 50; ++i) all_hear({2, 1}, spread.packet({2, 1}, Lid(group), 0x7F, 100, 9));
  spread.start(spread.machine_of[2]);
  spread.run_for(Time::seconds(4));
  ASSERT_TRUE(spread.is_up());
  set_trees();
  spread.attach({2, 1});
  for (int i = 0; i < 50; ++i) all_hear({2, 1}, spread.packet({2, 1}, Lid(group), 0x7F, 100, 9));
}

TEST(PlacementTest, HostsAreDividedAndSwitchesFollow) {
  const Topology topology = two_leaves();
  const std::array<Machine, 2> two = {Machine{"alpha", "", {}}, Machine{"beta", "", {}}};
  auto placed = place(topology, two);
  ASSERT_TRUE(placed);
  EXPECT_EQ(*placed, (std::vector<std::uint32_t>{0, 0, 1, 1, 0, 1}));
  const std::array<Machine, 2> named = {Machine{"alpha", "", {"h3", "switch4"}},
                                        Machine{"beta", "", {}}};
  placed = place(topology, named);
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(*placed, (std::vector<std::uint32_t>{0, 0, 1, 0, 0, 0}));
}

TEST(PlacementTest, MistakesAreNamed) {
  const Topology topology = two_leaves();
  const std::array<Machine, 2> unknown = {Machine{"alpha", "", {"h4"}}, Machine{"beta", "", {}}};
  EXPECT_EQ(place(topology, unknown).error().message,
            "machine \"alpha\": the topology has no host or switch \"h4\"");
  const std::array<Machine, 2> twice = {Machine{"alpha", "", {"h1"}}, Machine{"beta", "", {"h1"}}};
  EXPECT_EQ(place(topology, twice).error().message,
            "machine \"beta\": h1 belongs to machine \"alpha\" already");
}

}  // namespace
}  // namespace tulle::fabric

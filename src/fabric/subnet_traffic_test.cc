// Packets with data in a subnet, in virtual time.

#include "fabric/subnet_traffic.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "fabric/built_test.h"
#include "fabric/managed_subnet_test.h"
#include "fabric/random_topology_test.h"
#include "management/mad_test.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/packet.h"

namespace tulle::fabric {
namespace {

using Bytes = std::vector<std::byte>;
using Offer = SubnetTraffic::Offer;
using Program = SubnetTraffic::Program;

// A queue pair's number names its slot, as in live/slots.h.
std::uint32_t slot_of(QpNumber qp) { return qp.value >> 17; }
QpNumber qp_of(std::uint32_t slot) { return QpNumber(slot << 17 | 5); }

// Hosts 0 and 1 at switch 4, hosts 2 and 3 at switch 5.
Topology two_switches() {
  return built(
      from_csv("a,b,gbps,delay_ns\n0,4,100,1\n1,4,100,1\n2,5,100,1\n3,5,100,1\n"
               "4,5,100,1\n",
               "test"));
}

// Hosts 0 and 1 at a switch, by links of that rate.
Topology star_of(const std::string& gbps) {
  return built(from_csv("a,b,gbps,delay_ns\n0,2," + gbps + ",1\n1,2," + gbps + ",1\n", "test"));
}

struct Field {
  explicit Field(const Topology& topology) : managed(std::make_unique<ManagedSubnet>(topology)) {
    managed->settle();
    traffic = std::make_unique<SubnetTraffic>(managed->now, managed->subnet, slot_of);
  }

  Time now() const { return managed->now; }
  void attach(Program program) { traffic->attach(now(), program); }
  Bytes packet(std::uint32_t from, std::uint16_t to_lid, QpNumber qp, std::size_t payload,
               std::uint32_t number = 0, std::uint8_t level = 0) const {
    wire::LocalPath path;
    path.local.source = Lid(managed->lid(from));
    path.local.destination = Lid(to_lid);
    path.local.service_level = level;
    wire::Packet packet;
    packet.opcode = wire::opcode(wire::TransportClass::uc, wire::Operation::send_only);
    packet.destination_qp = qp;
    packet.psn = Psn(number);
    Bytes bytes(8 + wire::header_bytes(packet.opcode) + payload);
    const std::size_t link = port::encode_link_headers(path, bytes.size() - 8, bytes);
    wire::encode(packet, std::span(bytes).subspan(link));
    for (std::size_t i = 20; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(number + i);
    }
    return bytes;
  }
  Bytes packet(Program from, Program to, std::size_t payload, std::uint32_t number = 0,
               std::uint8_t level = 0) const {
    return packet(from.host, managed->lid(to.host), qp_of(to.slot), payload, number, level);
  }
  Offer offer(Program from, const Bytes& bytes) {
    const Offer result = traffic->offer(now(), from, bytes);
    traffic->run(now());
    return result;
  }
  Bytes take(Program program) {
    const auto bytes = traffic->take(now(), program);
    Bytes copy(bytes.begin(), bytes.end());
    traffic->run(now());
    return copy;
  }
  // Offers packets until one finds no room. Returns how many were taken.
  std::uint32_t fill(Program from, Program to, std::size_t payload, std::uint8_t level = 0) {
    std::uint32_t taken = 0;
    while (offer(from, packet(from, to, payload, taken, level)) == Offer::taken) ++taken;
    return taken;
  }
  void pass(Time span) {
    for (const Time end = managed->now + span; managed->now < end;) {
      managed->run_for(Time::milliseconds(5));
      traffic->follow(now());
      traffic->run(now());
    }
  }

  std::unique_ptr<ManagedSubnet> managed;
  std::unique_ptr<SubnetTraffic> traffic;
};

constexpr Program a{0, 1};
constexpr Program b{1, 1};
constexpr Program c{2, 1};
constexpr Program d{3, 1};

TEST(SubnetTrafficTest, PacketsReachEveryHost) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Field field(random_topology(seed));
    const std::uint32_t hosts = field.managed->subnet.topology().hosts;
    for (std::uint32_t host = 0; host < hosts; ++host) field.attach({host, 1 + host % 3});
    for (std::uint32_t from = 0; from < hosts; ++from) {
      for (std::uint32_t to = 0; to < hosts; ++to) {
        const Program sender{from, 1 + from % 3}, receiver{to, 1 + to % 3};
        const Bytes sent = field.packet(sender, receiver, 100, from * 100 + to);
        ASSERT_TRUE(field.offer(sender, sent) == Offer::taken);
        ASSERT_EQ(field.traffic->take_ready(), receiver) << from << " to " << to;
        EXPECT_EQ(field.take(receiver), sent);
        EXPECT_TRUE(field.take(receiver).empty());
      }
    }
    EXPECT_EQ(field.traffic->counters().delivered, hosts * hosts);
    EXPECT_EQ(field.traffic->counters().unrouted, 0u);
  }
}

TEST(SubnetTrafficTest, AProgramReceivesWhatIsForItsQueuePairs) {
  Field field(two_switches());
  for (const Program program : {a, c, Program{2, 9}, Program{0, 127}}) field.attach(program);
  EXPECT_EQ(field.offer(a, field.packet(a, {2, 9}, 12)), Offer::taken);
  EXPECT_EQ(field.offer(a, field.packet(a, {0, 127}, 12)), Offer::taken);
  EXPECT_FALSE(field.traffic->has_packet(c));
  EXPECT_EQ(field.take({2, 9}).size(), 8u + 12 + 12);
  EXPECT_EQ(field.take({0, 127}).size(), 8u + 12 + 12) << "another program of the sender's host";
}

TEST(SubnetTrafficTest, WhatHasNoReceiverIsDiscarded) {
  Field field(two_switches());
  field.attach(a);
  field.attach(c);
  field.offer(a, field.packet(a, {2, 2}, 12));                           // no program has the slot
  field.offer(a, field.packet(a, {3, 1}, 12));                           // a host without programs
  field.offer(a, field.packet(0, 77, qp_of(1), 12));                     // no port has the LID
  field.offer(a, field.packet(0, field.managed->lid(4), qp_of(1), 12));  // a switch
  EXPECT_EQ(field.traffic->counters().unrouted, 4u);
  EXPECT_FALSE(field.traffic->take_ready());
  // Its credits are back.
  EXPECT_GT(field.fill(a, c, 4'096), 16u);
}

TEST(SubnetTrafficTest, PacketsThatNoProgramMaySendAreDiscarded) {
  Field field(two_switches());
  field.attach(a);
  field.attach(c);
  const Bytes good = field.packet(a, c, 100);
  std::vector<Bytes> bad;
  bad.push_back(field.packet(1, field.managed->lid(2), qp_of(1), 100));  // another port's LID
  bad.push_back(field.packet(0, wire::permissive_lid, qp_of(1), 100));
  bad.push_back(field.packet(0, 0, qp_of(1), 100));
  bad.emplace_back();
  bad.emplace_back(good.begin(), good.begin() + 19);
  bad.emplace_back(good.begin(), good.end() - 4);  // shorter than it says
  bad.push_back(good);
  bad.back()[1] = std::byte{0x00};  // no transport follows the LRH
  bad.push_back(good);
  bad.back()[0] = std::byte{0x01};  // of another version
  bad.emplace_back(SubnetTraffic::packet_bytes_max + 1);
  for (const Bytes& packet : bad) {
    EXPECT_EQ(field.offer(a, packet), Offer::taken) << "nobody is to wait for it";
  }
  EXPECT_EQ(field.traffic->counters().invalid, bad.size());
  EXPECT_EQ(field.traffic->counters().packets, 0u);
  EXPECT_FALSE(field.traffic->take_ready());
}

TEST(SubnetTrafficTest, ASlowReceiverStopsItsSenderWithoutLoss) {
  Field field(two_switches());
  field.attach(a);
  field.attach(c);
  std::uint32_t sent = field.fill(a, c, 4'096);
  EXPECT_GT(sent, 32u) << "the lanes on the way have memory";
  std::uint32_t refused = 0;
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    field.managed->now = field.now() + Time::milliseconds(20);  // below a program's patience
    field.traffic->run(field.now());
    ASSERT_TRUE(field.take(c) == field.packet(a, c, 4'096, i)) << i;
    while (field.offer(a, field.packet(a, c, 4'096, sent)) == Offer::taken) ++sent;
    ++refused;
  }
  EXPECT_EQ(refused, 1'000u) << "the sender waits all the time";
  EXPECT_LT(sent, 1'000u + 128) << "and has no more under way than there is memory";
  EXPECT_EQ(field.traffic->counters().overdue, 0u);
  EXPECT_EQ(field.traffic->counters().lost, 0u);
}

TEST(SubnetTrafficTest, AnotherLaneGoesOn) {
  Field field(two_switches());
  for (const Program program : {a, b, c, d}) field.attach(program);
  field.fill(a, c, 4'096);
  // The cable between the switches is full on lane 0.
  EXPECT_EQ(field.offer(b, field.packet(b, d, 64, 1, 1)), Offer::taken);
  EXPECT_FALSE(field.take(d).empty()) << "on lane 1";
}

TEST(SubnetTrafficTest, AProgramThatTakesNothingHarmsNobodyForLong) {
  Field field(two_switches());
  for (const Program program : {a, b, c, Program{2, 2}, d}) field.attach(program);
  field.fill(a, c, 4'096);
  const Program sibling{2, 2};
  field.fill(b, sibling, 4'096);
  field.pass(Time::milliseconds(250));  // the patience with one, and with the other behind it
  EXPECT_GT(field.traffic->counters().overdue, 0u);
  // The way to the others is free again, also to another program of the host.
  EXPECT_EQ(field.offer(b, field.packet(b, d, 64, 1)), Offer::taken);
  EXPECT_FALSE(field.take(d).empty());
  field.attach({2, 3});
  EXPECT_EQ(field.offer(b, field.packet(b, {2, 3}, 64, 7'000)), Offer::taken);
  EXPECT_FALSE(field.take({2, 3}).empty());
  EXPECT_EQ(field.offer(b, field.packet(b, sibling, 64, 7'000)), Offer::taken);
  // The packets of the one that takes nothing are discarded at once.
  const std::uint64_t before = field.traffic->counters().lost;
  EXPECT_EQ(field.offer(a, field.packet(a, c, 64, 1)), Offer::taken);
  EXPECT_EQ(field.traffic->counters().lost, before + 1);
  // It is heard again after a while.
  field.pass(Time::milliseconds(1'000));
  while (!field.take(c).empty()) {
  }
  EXPECT_EQ(field.offer(a, field.packet(a, c, 64, 2)), Offer::taken);
  EXPECT_FALSE(field.take(c).empty());
}

TEST(SubnetTrafficTest, AProgramThatGoesLeavesNothing) {
  Field field(two_switches());
  for (const Program program : {a, c}) field.attach(program);
  field.fill(a, c, 4'096);
  field.traffic->detach(field.now(), c);
  field.traffic->run(field.now());
  // The packets that were on their way meet no program, and all room is free again.
  EXPECT_EQ(field.traffic->counters().packets,
            field.traffic->counters().lost + field.traffic->counters().unrouted);
  field.attach(c);
  EXPECT_FALSE(field.traffic->has_packet(c)) << "the next one in the slot";
  EXPECT_GT(field.fill(a, c, 4'096), 32u);
}

TEST(SubnetTrafficTest, AProgramThatTakesAgainIsHeardAtOnce) {
  Field field(two_switches());
  for (const Program program : {a, c}) field.attach(program);
  field.fill(a, c, 4'096);
  EXPECT_FALSE(field.traffic->is_given_up(c));
  field.pass(Time::milliseconds(150));
  EXPECT_TRUE(field.traffic->is_given_up(c));
  field.traffic->resume(field.now(), c);
  EXPECT_FALSE(field.traffic->is_given_up(c));
  EXPECT_EQ(field.offer(a, field.packet(a, c, 64, 5)), Offer::taken);
  EXPECT_FALSE(field.take(c).empty());
}

// Whoever calls run() may be stopped for seconds. Nobody gives packets up for that.
TEST(SubnetTrafficTest, TimeInWhichNothingRunsIsNobodysFault) {
  Field field(star_of("2.5"));
  field.traffic->keep_rates();
  for (const Program program : {a, b}) field.attach(program);
  const std::uint32_t sent = field.fill(a, b, 4'096);
  EXPECT_GT(sent, 8u);
  field.managed->now += Time::seconds(3);
  std::uint32_t taken = 0;
  do {
    while (!field.take(b).empty()) ++taken;
  } while (field.traffic->is_behind());
  EXPECT_EQ(taken, sent);
  EXPECT_EQ(field.traffic->counters().overdue + field.traffic->counters().lost, 0u);
  EXPECT_EQ(field.offer(a, field.packet(a, b, 64, 9)), Offer::taken);
  field.managed->now += Time::microseconds(50);
  EXPECT_FALSE(field.take(b).empty());
}

TEST(SubnetTrafficTest, TheNextProgramInASlotIsHeardAtOnce) {
  Field field(two_switches());
  for (const Program program : {a, c}) field.attach(program);
  field.fill(a, c, 4'096);
  field.pass(Time::milliseconds(150));  // its lane is stalled now
  field.traffic->detach(field.now(), c);
  field.attach(c);
  EXPECT_EQ(field.offer(a, field.packet(a, c, 64, 5)), Offer::taken);
  EXPECT_FALSE(field.take(c).empty());
}

TEST(SubnetTrafficTest, ShortPacketsTakeRoomToo) {
  Field field(two_switches());
  for (const Program program : {a, c}) field.attach(program);
  std::uint32_t taken = 0;
  for (std::uint8_t level = 0; level < 8; ++level) taken += field.fill(a, c, 0, level);
  EXPECT_LT(taken, SubnetTraffic::packets_max / 3) << "two senders do not fill the place of all";
}

// Each program of a host has memory of its own, and all of them together would fill the place of
// all packets.
TEST(SubnetTrafficTest, ProgramsOfOneHostLeaveOthersPlace) {
  Field field(two_switches());
  for (const Program program : {b, c, d}) field.attach(program);
  std::uint32_t taken = 0;
  for (std::uint32_t slot = 1; slot <= SubnetTraffic::slots_max; ++slot) {
    const Program greedy{0, slot};
    field.attach(greedy);
    for (std::uint8_t level = 0; level < 8; ++level) taken += field.fill(greedy, c, 0, level);
  }
  EXPECT_GE(taken, SubnetTraffic::packets_of_host_max);
  EXPECT_LT(taken, SubnetTraffic::packets_max / 2);
  EXPECT_EQ(field.offer(d, field.packet(d, b, 64, 5)), Offer::taken);
  EXPECT_FALSE(field.take(b).empty());
}

TEST(SubnetTrafficTest, ACableThatIsCutTakesItsPacketsAndComesBack) {
  Field field(built(leaf_spine({.leaves = 2, .spines = 2, .hosts_per_leaf = 2})));
  for (const Program program : {a, c}) field.attach(program);
  const std::uint32_t links =
      static_cast<std::uint32_t>(field.managed->subnet.topology().links.size());
  for (std::uint32_t link = 0; link < links; ++link) {
    SCOPED_TRACE(testing::Message() << "link " << link);
    field.fill(a, c, 4'096);
    field.managed->subnet.set_cut(field.now(), link, true);
    field.pass(Time::seconds(4));  // traps, sweeps, and the patience with what nobody took
    while (!field.take(c).empty()) {
    }
    const Link& cut = field.managed->subnet.topology().links[link];
    const bool is_only_way = cut.a == a.host || cut.a == c.host;
    EXPECT_EQ(field.offer(a, field.packet(a, c, 12, link)), Offer::taken);
    EXPECT_EQ(field.take(c).empty(), is_only_way);
    field.managed->subnet.set_cut(field.now(), link, false);
    field.pass(Time::seconds(4));
    EXPECT_EQ(field.offer(a, field.packet(a, c, 12, link)), Offer::taken);
    EXPECT_FALSE(field.take(c).empty());
  }
}

// Sends a request of subnet management from host 0, and expects that it succeeds.
void set(Field& field, Lid to, std::uint16_t attribute, std::uint32_t modifier,
         const std::vector<std::uint8_t>& block) {
  management::Packet packet;
  packet.source = Lid(field.managed->lid(0));
  packet.destination = to;
  packet.mad =
      management::request_of(wire::subnet_class, management::method_set, attribute, modifier);
  for (std::size_t i = 0; i < block.size(); ++i) {
    packet.mad[wire::subnet_data_offset + i] = std::byte{block[i]};
  }
  field.managed->subnet.send(field.now(), 0, 1, packet);
  field.managed->subnet.run(field.now());
  const auto answer = field.managed->subnet.take_arrival();
  ASSERT_TRUE(answer);
  EXPECT_EQ(management::header_of(answer->packet.mad).status & 0x7FFF, 0);
}

// Returns an attribute as it is on the wire.
template <typename Attribute>
std::vector<std::uint8_t> bytes_of(const Attribute& attribute) {
  std::vector<std::uint8_t> bytes(sizeof attribute);
  std::memcpy(bytes.data(), &attribute, sizeof attribute);
  return bytes;
}

TEST(SubnetTrafficTest, TablesThatLeadInACircleKeepNothing) {
  Field field(two_switches());
  for (const Program program : {a, c}) field.attach(program);
  // LID 40: from switch 4 to switch 5 by port 3, and back by port 3.
  for (const std::uint32_t node : {5u, 4u}) {
    std::vector<std::uint8_t> block(64, 0xFF);
    const auto& agent = field.managed->subnet.node(node);
    for (std::uint16_t lid = 0; lid < 64; ++lid) block[lid] = agent.output_port(Lid(lid));
    block[40] = 3;
    set(field, Lid(field.managed->lid(node)), wire::attribute_linear_forwarding, 0, block);
    wire::SwitchInfo info;
    info.linear_top = 63;
    set(field, Lid(field.managed->lid(node)), wire::attribute_switch_info, 0, bytes_of(info));
  }
  EXPECT_EQ(field.offer(a, field.packet(0, 40, qp_of(1), 100)), Offer::taken);
  EXPECT_EQ(field.traffic->counters().unrouted, 1u);
  EXPECT_GT(field.fill(a, c, 4'096), 32u) << "its credits are back";
}

// Returns a mapping of service levels to lanes in which one level has another lane (IBTA 14.2.5.8).
std::vector<std::uint8_t> mapping_with(std::uint8_t level, std::uint8_t lane) {
  std::vector<std::uint8_t> mapping(8);
  for (std::uint8_t i = 0; i < 16; ++i) {
    const auto own = static_cast<std::uint8_t>(i == level ? lane : i % 8);
    mapping[i / 2] = static_cast<std::uint8_t>(mapping[i / 2] | own << (i % 2 == 0 ? 4 : 0));
  }
  return mapping;
}

// Sets the mapping of a switch, for packets from one port to another, or of a host (ports 0).
void map(Field& field, std::uint32_t node, std::uint32_t in, std::uint32_t out,
         const std::vector<std::uint8_t>& mapping) {
  set(field, Lid(field.managed->lid(node)), wire::attribute_sl_to_vl, in << 8 | out, mapping);
}

TEST(SubnetTrafficTest, PacketsLeaveOnTheLanesOfTheManagersTables) {
  Field field(two_switches());
  for (const Program program : {a, b, c}) field.attach(program);
  std::vector<std::uint8_t> lanes;
  field.traffic->on_send([&](const SubnetTraffic::Sent& sent) { lanes.push_back(sent.lane); });
  const auto send = [&](Program from) {
    lanes.clear();
    field.offer(from, field.packet(from, c, 100, 0, 3));
    EXPECT_FALSE(field.take(c).empty());
    return lanes;
  };
  using Lanes = std::vector<std::uint8_t>;
  EXPECT_EQ(send(a), (Lanes{3, 3, 3})) << "a manager that sets no tables";
  map(field, 0, 0, 0, mapping_with(3, 1));
  map(field, 4, 1, 3, mapping_with(3, 6));
  map(field, 5, 3, 1, mapping_with(3, 2));
  EXPECT_EQ(send(a), (Lanes{1, 6, 2}));
  EXPECT_EQ(send(b), (Lanes{3, 3, 2})) << "another host, and so another port of the switch";
}

TEST(SubnetTrafficTest, PacketsWithoutALaneAreDiscarded) {
  Field field(two_switches());
  for (const Program program : {a, c}) field.attach(program);
  map(field, 4, 1, 3, mapping_with(3, 15));
  for (std::uint32_t i = 1; i <= 200; ++i) {
    ASSERT_EQ(field.offer(a, field.packet(a, c, 4'096, i, 3)), Offer::taken) << "credits are back";
    EXPECT_EQ(field.traffic->counters().laneless, i);
  }
  EXPECT_EQ(field.managed->subnet.counters(4, 3).transmit_discards, 200u);
  map(field, 0, 0, 0, mapping_with(5, 12));
  field.offer(a, field.packet(a, c, 100, 0, 5));
  EXPECT_EQ(field.traffic->counters().laneless, 201u) << "at the host itself";
  field.offer(a, field.packet(a, c, 100, 0, 4));
  EXPECT_FALSE(field.take(c).empty()) << "other levels have lanes";
}

// Makes a port of a switch let in, or out, only packets of one partition.
void enforce(Field& field, std::uint32_t node, std::uint32_t port, std::uint8_t flags,
             std::uint16_t pkey) {
  std::vector<std::uint8_t> keys(64);
  keys[0] = static_cast<std::uint8_t>(pkey >> 8);
  keys[1] = static_cast<std::uint8_t>(pkey);
  set(field, Lid(field.managed->lid(node)), wire::attribute_pkey_table, port << 16, keys);
  wire::PortInfo info = field.managed->subnet.node(node).port_info(static_cast<std::uint8_t>(port));
  info.operational_lanes_and_enforcement =
      static_cast<std::uint8_t>((info.operational_lanes_and_enforcement & 0xF0) | flags);
  info.speed_supported_and_state = 0;  // the state stays as it is
  info.physical_state_and_down_default = 0;
  info.extended_speed_enabled = 0;
  info.speed_active_and_enabled = 0;
  info.link_width_enabled = 0;
  set(field, Lid(field.managed->lid(node)), wire::attribute_port_info, port, bytes_of(info));
}

TEST(SubnetTrafficTest, SwitchesLetThroughOnlyThePartitionsOfTheirPorts) {
  struct Case {
    std::uint32_t node, port;
    std::uint8_t flags;
    std::uint16_t pkey;
    bool passes;
  };
  constexpr auto in = wire::PortInfo::enforces_inbound;
  constexpr auto out = wire::PortInfo::enforces_outbound;
  for (const Case& each :
       {Case{4, 1, in, 0x8001, false}, Case{4, 1, in, 0xFFFF, true}, Case{4, 1, out, 0x8001, true},
        Case{5, 1, out, 0x8001, false}, Case{5, 1, out, 0xFFFF, true}, Case{5, 1, in, 0x8001, true},
        Case{4, 1, in, 0x7FFF, true}, Case{5, 1, out, 0x7FFF, true}, Case{4, 1, 0, 0x8001, true}}) {
    Field field(two_switches());
    for (const Program program : {a, b, c}) field.attach(program);
    enforce(field, each.node, each.port, each.flags, each.pkey);
    field.offer(a, field.packet(a, c, 100));
    EXPECT_EQ(!field.take(c).empty(), each.passes) << each.node << " " << int{each.flags};
    EXPECT_EQ(field.traffic->counters().foreign, each.passes ? 0u : 1u);
    if (each.passes) continue;
    if (each.node == 4) {
      field.offer(b, field.packet(b, c, 100));
      EXPECT_FALSE(field.take(c).empty()) << "the other host's port lets everything in";
    }
    for (std::uint32_t i = 0; i < 200; ++i) {
      ASSERT_EQ(field.offer(a, field.packet(a, c, 4'096, i)), Offer::taken) << "credits are back";
    }
  }
}

TEST(SubnetTrafficTest, MulticastReachesTheTreeAndAllProgramsOfItsHosts) {
  Field field(two_switches());
  for (const Program program : {a, Program{0, 2}, b, c, Program{2, 2}, d}) field.attach(program);
  constexpr std::uint16_t group = 0xC005;
  // Hosts 0 and 2 are members: ports 1 and 3 of switch 4, ports 1 and 3 of switch 5.
  for (const std::uint32_t node : {4u, 5u}) {
    std::vector<std::uint8_t> block(64, 0);
    block[2 * 5 + 1] = 1u << 1 | 1u << 3;
    set(field, Lid(field.managed->lid(node)), wire::attribute_multicast_forwarding, 0, block);
  }
  const Bytes sent = field.packet(0, group, QpNumber(0xFF'FFFF), 200, 9);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(field.offer(a, sent), Offer::taken);
    for (const Program program : {a, Program{0, 2}, c, Program{2, 2}}) {
      EXPECT_EQ(field.take(program), sent) << program.host << " " << program.slot;
      EXPECT_TRUE(field.take(program).empty());
    }
  }
  EXPECT_FALSE(field.traffic->has_packet(b));
  EXPECT_FALSE(field.traffic->has_packet(d));
  // Copies for programs that take nothing are lost, and hold nobody up.
  for (int i = 0; i < 2'000; ++i) {
    if (field.offer(b, field.packet(1, group, QpNumber(0xFF'FFFF), 4'096, 9)) != Offer::taken) {
      field.pass(Time::milliseconds(150));
    }
  }
  EXPECT_GT(field.traffic->counters().lost, 0u);
  EXPECT_LE(field.traffic->counters().delivered, field.traffic->counters().packets * 4);
}

TEST(SubnetTrafficTest, MulticastTablesThatLeadInCirclesMakeNoStorm) {
  // Four switches, each joined to all others, with a host each.
  Field field(
      built(from_csv("a,b,gbps,delay_ns\n0,4,100,1\n1,5,100,1\n2,6,100,1\n3,7,100,1\n"
                     "4,5,100,1\n4,6,100,1\n4,7,100,1\n5,6,100,1\n5,7,100,1\n6,7,100,1\n",
                     "test")));
  for (const Program program : {a, b, c, d}) field.attach(program);
  for (const std::uint32_t node : {4u, 5u, 6u, 7u}) {
    std::vector<std::uint8_t> block(64, 0);
    block[2 * 5 + 1] = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4;
    set(field, Lid(field.managed->lid(node)), wire::attribute_multicast_forwarding, 0, block);
  }
  const Bytes sent = field.packet(0, 0xC005, QpNumber(0xFF'FFFF), 64, 9);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(field.traffic->offer(field.now(), a, sent), Offer::taken);
    EXPECT_TRUE(field.traffic->run(field.now())) << "it comes to an end";
    for (const Program program : {a, b, c, d}) {
      EXPECT_TRUE(field.take(program) == sent);
      EXPECT_TRUE(field.take(program).empty()) << "once, and at the sender's host too";
    }
  }
}

// Random programs send packets of random lengths on random lanes, and take them after random
// delays. What comes is what was sent, in the order of each lane, and every packet is accounted
// for.
TEST(SubnetTrafficTest, NothingIsLostSilently) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    Field field(random_topology(seed));
    const std::uint32_t hosts = field.managed->subnet.topology().hosts;
    std::vector<Program> programs;
    for (std::uint32_t i = 0; i < 2 * hosts; ++i) programs.push_back({i % hosts, 1 + i / hosts});
    for (const Program program : programs) field.attach(program);
    const auto any = [&]() { return programs[random.below(programs.size())]; };
    std::map<std::vector<std::uint32_t>, std::uint32_t> next, seen;  // by both ends and the level
    std::map<Bytes, std::vector<std::uint32_t>> sent;
    const auto check = [&](Program to, const Bytes& bytes) {
      const auto found = sent.find(bytes);
      ASSERT_NE(found, sent.end());
      std::vector<std::uint32_t> flow = found->second;
      const std::uint32_t number = flow.back();
      flow.pop_back();
      EXPECT_EQ(to.host, flow[2]);
      EXPECT_EQ(to.slot, flow[3]);
      EXPECT_EQ(seen[flow]++, number);
    };
    for (int step = 0; step < 5'000; ++step) {
      const Program from = any(), to = any();
      const auto level = static_cast<std::uint8_t>(random.below(16));
      std::vector<std::uint32_t> flow = {from.host, from.slot, to.host, to.slot, level};
      const std::uint32_t number = next[flow];
      const std::size_t payload = 40 + 4 * random.below(1'000);
      Bytes bytes = field.packet(from, to, payload, number, level);
      for (std::size_t i = 0; i < flow.size(); ++i) {
        std::memcpy(&bytes[24 + 4 * i], &flow[i], sizeof(std::uint32_t));
      }
      std::memcpy(&bytes[44], &number, sizeof number);
      if (field.offer(from, bytes) == Offer::taken) {
        ++next[flow];
        flow.push_back(number);
        sent[std::move(bytes)] = std::move(flow);
      }
      for (std::uint64_t taken = random.below(4); taken-- > 0;) {
        const Program reader = any();
        const Bytes came = field.take(reader);
        if (!came.empty()) check(reader, came);
      }
    }
    for (const Program program : programs) {
      for (Bytes came = field.take(program); !came.empty(); came = field.take(program)) {
        check(program, came);
      }
    }
    EXPECT_EQ(next, seen);
    EXPECT_EQ(field.traffic->counters().delivered, field.traffic->counters().packets);
    EXPECT_EQ(field.traffic->counters().packets, sent.size());
    EXPECT_TRUE(field.traffic->next_event().is_never() ||
                field.traffic->next_event() > field.now());
  }
}

// Sends what a lane takes for 40 ms, and looks as often as `step`. Returns the bits of payload a
// second.
double rate_of(Field& field, Time step) {
  field.traffic->keep_rates();
  for (const Program program : {a, b}) field.attach(program);
  const Bytes bytes = field.packet(a, b, 4'096);
  const Time end = field.now() + Time::milliseconds(40);
  std::uint64_t taken = 0;
  for (; field.managed->now <= end; field.managed->now += step) {
    do {
      while (field.traffic->offer(field.now(), a, bytes) == Offer::taken) continue;
      field.traffic->run(field.now());
      while (!field.traffic->take(field.now(), b).empty()) ++taken;
    } while (field.traffic->is_behind());
  }
  return static_cast<double>(taken) * 8 * 4'096 / 0.040;
}

// A packet has 8 bytes of LRH, 12 of BTH, 4 and 2 of checks and 2 symbols around 4,096 of payload.
// The first packets find empty links, and the last have not arrived.
TEST(SubnetTrafficTest, LinksKeepToTheirRates) {
  struct Case {
    std::string gbps;
    double data_gbps;
  };
  for (const Case& each :
       {Case{"2.5", 2}, Case{"10", 8}, Case{"40", 32}, Case{"56", 54.54}, Case{"100", 100}}) {
    // Also if the links are looked at late.
    for (const Time step :
         {Time::microseconds(1), Time::microseconds(100), Time::milliseconds(5)}) {
      Field field(star_of(each.gbps));
      const double expected = each.data_gbps * 1e9 * 4'096 / (4'096 + 28);
      EXPECT_NEAR(rate_of(field, step) / expected, 1, 0.06)
          << each.gbps << " " << step.to_microseconds();
    }
  }
}

// Writes a table of a port: pairs of a lane and its weight, in units of 64 bytes.
void arbitrate(Field& field, std::uint32_t node, std::uint32_t port, bool is_high,
               std::vector<std::uint8_t> entries) {
  entries.resize(64);
  const std::uint32_t block = is_high ? 3 : 1;
  set(field, Lid(field.managed->lid(node)), wire::attribute_vl_arbitration, block << 16 | port,
      entries);
}

// Sends without pause for 20 ms, on lane 0 from `a` and on lane 1 from another program. Returns how
// many packets came on lane 1 for each on lane 0.
double share_of_lane_1(Field& field, Program to, Program other, Program other_to) {
  std::array<int, 2> taken{};
  const auto fill = [&](Program from, const Bytes& packet) {
    while (field.traffic->offer(field.now(), from, packet) == Offer::taken) continue;
  };
  for (const Time end = field.now() + Time::milliseconds(20); field.now() < end;) {
    fill(a, field.packet(a, to, 4'096));
    fill(other, field.packet(other, other_to, 4'096, 0, 1));
    field.traffic->run(field.now());
    while (!field.traffic->take(field.now(), to).empty()) ++taken[0];
    while (!field.traffic->take(field.now(), other_to).empty()) ++taken[1];
    field.managed->now += Time::microseconds(5);
  }
  return static_cast<double>(taken[1]) / taken[0];
}

// Lanes of a link share it by the weights of the manager's tables. A packet here is 65 blocks.
TEST(SubnetTrafficTest, LanesShareALinkAsTheManagersTablesSay) {
  for (const auto& [high, low, expected] :
       {std::tuple(std::vector<std::uint8_t>{0, 65, 1, 195}, std::vector<std::uint8_t>{}, 3.0),
        std::tuple(std::vector<std::uint8_t>{}, std::vector<std::uint8_t>{0, 130, 1, 65}, 0.5),
        // Low priority gets a packet after each of high, since the limit is 0.
        std::tuple(std::vector<std::uint8_t>{1, 65}, std::vector<std::uint8_t>{0, 65}, 1.0)}) {
    Field field(built(from_csv("a,b,gbps,delay_ns\n0,3,2.5,1\n1,3,2.5,1\n2,3,2.5,1\n", "test")));
    field.traffic->keep_rates();
    for (const Program program : {a, b, c, Program{2, 2}}) field.attach(program);
    arbitrate(field, 3, 3, true, high);
    arbitrate(field, 3, 3, false, low);
    field.traffic->follow(field.now());
    EXPECT_NEAR(share_of_lane_1(field, c, b, {2, 2}) / expected, 1, 0.1) << expected;
    // Tables of zeros are as if nobody had written them: lane 0 and the others take turns.
    arbitrate(field, 3, 3, true, {});
    arbitrate(field, 3, 3, false, {});
    field.traffic->follow(field.now());
    EXPECT_NEAR(share_of_lane_1(field, c, b, {2, 2}), 1, 0.1);
  }
}

// A lane that no table has sends nothing, and others are not held up.
TEST(SubnetTrafficTest, ALaneWithoutAnEntryWaits) {
  Field field(two_switches());
  for (const Program program : {a, b, c, d}) field.attach(program);
  arbitrate(field, 4, 3, true, {0, 255, 9, 255, 15, 255});
  field.traffic->follow(field.now());
  EXPECT_EQ(field.offer(a, field.packet(a, c, 100, 0, 1)), Offer::taken);
  EXPECT_TRUE(field.take(c).empty());
  EXPECT_EQ(field.offer(a, field.packet(a, c, 100, 7, 0)), Offer::taken);
  EXPECT_TRUE(field.take(c) == field.packet(a, c, 100, 7, 0));
  arbitrate(field, 4, 3, true, {0, 255, 1, 255});
  field.traffic->follow(field.now());
  field.traffic->run(field.now());
  EXPECT_TRUE(field.take(c) == field.packet(a, c, 100, 0, 1)) << "it waited";
}

// A host that had no program then has the tables of its port, too.
TEST(SubnetTrafficTest, AHostsPortSharesItsLinkAsWell) {
  Field field(star_of("2.5"));
  field.traffic->keep_rates();
  arbitrate(field, 0, 1, true, {0, 65, 1, 195});
  field.traffic->follow(field.now());
  const Program other{0, 2}, there{1, 2};
  for (const Program program : {a, other, b, there}) field.attach(program);
  EXPECT_NEAR(share_of_lane_1(field, b, other, there), 3, 0.3);
}

// A link that had nothing to carry has no time to make up for.
TEST(SubnetTrafficTest, AnIdleLinkSavesNothingUp) {
  Field field(star_of("2.5"));
  field.traffic->keep_rates();
  for (const Program program : {a, b}) field.attach(program);
  field.managed->now += Time::milliseconds(40);
  field.traffic->run(field.now());
  int taken = 0;
  for (int i = 0; i < 1'000; ++i) {
    field.offer(a, field.packet(a, b, 4'096));
    while (!field.take(b).empty()) ++taken;
  }
  EXPECT_EQ(taken, 1);
}

TEST(SubnetTrafficTest, WithoutRatesPacketsTakeNoTime) {
  Field field(star_of("2.5"));
  for (const Program program : {a, b}) field.attach(program);
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    ASSERT_EQ(field.offer(a, field.packet(a, b, 4'096, i)), Offer::taken);
    ASSERT_FALSE(field.take(b).empty()) << i;
  }
}

// The manager of a slow link is heard at once, and other ports are not slowed down.
TEST(SubnetTrafficTest, ASlowLinkHoldsUpOnlyWhatItCarries) {
  Field field(built(from_csv("a,b,gbps,delay_ns\n0,3,2.5,1\n1,3,100,1\n2,3,100,1\n", "test")));
  field.traffic->keep_rates();
  for (const Program program : {a, b, c}) field.attach(program);
  EXPECT_GT(field.fill(a, c, 4'096), 8u);
  EXPECT_FALSE(field.traffic->next_event().is_never());
  EXPECT_GT(field.traffic->next_event(), field.now());
  while (!field.take(c).empty()) continue;
  field.managed->now += Time::microseconds(1);
  EXPECT_EQ(field.offer(b, field.packet(b, c, 4'096, 7)), Offer::taken);
  EXPECT_FALSE(field.take(c).empty()) << "the other host's link is free";
}

TEST(SubnetTrafficTest, PortsCountThePacketsWithData) {
  Field field(two_switches());
  for (const Program program : {a, c}) field.attach(program);
  const std::uint64_t before = field.managed->subnet.counters(5, 3).bytes_received;
  EXPECT_EQ(field.offer(a, field.packet(a, c, 100)), Offer::taken);
  EXPECT_EQ(field.managed->subnet.counters(5, 3).bytes_received - before, 8u + 12 + 100 + 4 + 2)
      << "from the LRH to the VCRC";
}

TEST(SubnetTrafficTest, WhatIsOverdueLeavesItsPlaceToOthers) {
  Field field(two_switches());
  for (const Program program : {a, b, c}) field.attach(program);
  while (field.traffic->counters().overdue <= SubnetTraffic::packets_of_host_max) {
    const std::uint64_t before = field.traffic->counters().overdue;
    field.fill(a, b, 100);
    field.pass(Time::milliseconds(200));
    field.traffic->resume(field.now(), b);
    ASSERT_LT(before, field.traffic->counters().overdue) << "the host may send no more";
  }
  const Bytes sent = field.packet(a, c, 100);
  EXPECT_TRUE(field.offer(a, sent) == Offer::taken);
  EXPECT_EQ(field.take(c), sent);
}

}  // namespace
}  // namespace tulle::fabric

#include "management/ipoib/interface.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "management/ipoib/subnet_test.h"
#include "rdma/port/framing/infiniband.h"

namespace tulle::ipoib {
namespace {

using testing::Host;
using testing::IpPacket;
using testing::ipv4_packet;
using testing::ipv6_packet;
using testing::Subnet;

Gid group(std::uint32_t address) { return Gid::from_ipv4(address); }
const Gid solicited = solicited_node_group(Subnet::ip6(1));
Gid of_ip(const Gid& ip) { return wire::group_of_ip(ip, testing::partition); }

// RFC 4391 §4 gives this one.
TEST(IpoibTest, NamesOfGroups) {
  EXPECT_EQ(wire::broadcast_group(Pkey(0x8002)),
            (Gid{{0xFF, 0x12, 0x40, 0x1B, 0x80, 0x02, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF}}));
  EXPECT_EQ(wire::broadcast_group(Pkey(0x0002)), wire::broadcast_group(Pkey(0x8002)));
  EXPECT_EQ(of_ip(group(0xE000'0001)),
            (Gid{{0xFF, 0x12, 0x40, 0x1B, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01}}));
  EXPECT_EQ(of_ip(solicited),
            (Gid{{0xFF, 0x12, 0x60, 0x1B, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0x01, 0xFF, 0, 0, 0x02}}));
}

TEST(IpoibTest, PacketsOfBothFamiliesFindTheirWay) {
  Subnet subnet;
  subnet.add();
  Host& other = subnet.add();
  const IpPacket first = ipv4_packet(Subnet::ip(0), Subnet::ip(1));
  const IpPacket second = ipv6_packet(Subnet::ip6(0), Subnet::ip6(1), 21);
  subnet.send(0, first);
  subnet.send(0, second);
  EXPECT_EQ(other.received, (std::vector<IpPacket>{first, second}));
  EXPECT_EQ(other.interface.counters().invalid, 0u);
  // The neighbour is known now: each packet is one on the wire.
  const std::uint64_t before = subnet.packets;
  subnet.send(0, first);
  EXPECT_EQ(subnet.packets, before + 1);
  EXPECT_EQ(other.received.size(), 3u);
  EXPECT_EQ(subnet.hosts[0]->interface.counters().sent, 3u);
}

// The other side learns the way back from the question, and asks nobody.
TEST(IpoibTest, WhoIsAskedKnowsTheAsker) {
  Subnet subnet;
  Host& asker = subnet.add();
  subnet.add();
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
  const std::uint64_t before = subnet.packets;
  subnet.send(1, ipv4_packet(Subnet::ip(1), Subnet::ip(0)));
  EXPECT_EQ(subnet.packets, before + 1);
  EXPECT_EQ(asker.received.size(), 1u);
}

TEST(IpoibTest, PacketsAreAsLongAsTheGroupAllows) {
  Subnet subnet;
  Host& sender = subnet.add();
  Host& other = subnet.add();
  EXPECT_EQ(sender.interface.mtu(), 2'044u);
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1), 2'024));
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1), 2'025));
  EXPECT_EQ(other.received.size(), 1u);
  EXPECT_EQ(sender.interface.counters().too_long, 1u);

  subnet.mtu_code = 5;
  sender.interface.register_anew(subnet.now);
  subnet.settle();
  EXPECT_EQ(sender.interface.mtu(), 4'092u);
}

// MTUs of InfiniBand are 256 to 4,096 bytes (IBTA 14.2.5.6), and the IPoIB header takes four.
TEST(IpoibTest, EachMtuOfTheGroupIsUnderstood) {
  Subnet subnet;
  Host& host = subnet.add();
  const std::array<std::size_t, 7> mtus = {0, 252, 508, 1'020, 2'044, 4'092, 0};
  for (std::size_t code = 0; code < mtus.size(); ++code) {
    subnet.mtu_code = static_cast<std::uint8_t>(code);
    host.interface.register_anew(subnet.now);
    subnet.settle();
    EXPECT_EQ(host.interface.mtu(), mtus[code]) << code;
  }
}

TEST(IpoibTest, BroadcastsAndGroups) {
  Subnet subnet;
  subnet.add();
  Host& member = subnet.add();
  Host& other = subnet.add();
  for (const std::uint32_t to : {0xFFFF'FFFFu, 0x0A01'00FFu, 0xE000'0001u}) {
    subnet.send(0, ipv4_packet(Subnet::ip(0), group(to)));
  }
  EXPECT_EQ(member.received.size(), 3u);
  EXPECT_EQ(other.received.size(), 3u);
  EXPECT_TRUE(subnet.hosts[0]->received.empty());

  // IGMPv2: the host joins 239.1.2.3. Its report goes to that group.
  const Gid wanted = group(0xEF01'0203);
  IpPacket report = ipv4_packet(Subnet::ip(1), wanted, 8, 2);
  const std::array<std::uint8_t, 8> igmp = {0x16, 0, 0, 0, 0xEF, 1, 2, 3};
  std::memcpy(report.data() + 20, igmp.data(), igmp.size());
  subnet.send(1, report);
  EXPECT_EQ(subnet.members[of_ip(wanted)], std::set<std::uint32_t>{1});
  subnet.send(0, ipv4_packet(Subnet::ip(0), wanted));
  EXPECT_EQ(member.received.size(), 4u);
  EXPECT_EQ(other.received.size(), 3u);

  report[20] = std::byte{0x17};  // it leaves
  subnet.send(1, report);
  EXPECT_TRUE(subnet.members[of_ip(wanted)].empty());
}

// IPv6 has no broadcasts, whatever an address ends with.
TEST(IpoibTest, AnIpv6AddressThatEndsInOnesIsOneNeighbours) {
  Subnet subnet;
  subnet.add();
  Host& other = subnet.add();
  Host& third = subnet.add();
  Gid ones = Subnet::ip6(1);
  std::fill(ones.bytes.end() - 4, ones.bytes.end(), 0xFF);
  other.interface.set_addresses(subnet.now, {{ones, 64}});
  subnet.settle();
  const IpPacket packet = ipv6_packet(Subnet::ip6(0), ones);
  subnet.send(0, packet);
  EXPECT_EQ(other.received, std::vector<IpPacket>{packet});
  EXPECT_TRUE(third.received.empty());
}

// A host that has sent to a group before it joined it leaves it altogether, and so does one that
// only sent, after a while.
TEST(IpoibTest, GroupsAreLeftAltogether) {
  Subnet subnet;
  subnet.add();
  subnet.add();
  const Gid wanted = group(0xEF01'0203);
  const auto report = [&](std::uint8_t type, std::uint32_t host) {
    IpPacket packet = ipv4_packet(Subnet::ip(host), wanted, 8, 2);
    const std::array<std::uint8_t, 8> igmp = {type, 0, 0, 0, 0xEF, 1, 2, 3};
    std::memcpy(packet.data() + 20, igmp.data(), igmp.size());
    subnet.send(host, packet);
  };
  report(0x16, 1);
  subnet.send(0, ipv4_packet(Subnet::ip(0), wanted));
  EXPECT_EQ((subnet.join_states[{of_ip(wanted), 0}]), wire::MemberRecord::send_only_non_member);
  report(0x16, 0);
  EXPECT_EQ((subnet.join_states[{of_ip(wanted), 0}]),
            wire::MemberRecord::send_only_non_member | wire::MemberRecord::full_member);
  // It has just sent, and so it joins once more to send.
  report(0x17, 0);
  EXPECT_EQ((subnet.join_states[{of_ip(wanted), 0}]), wire::MemberRecord::send_only_non_member);
  subnet.pass(Time::seconds(20));
  subnet.send(0, ipv4_packet(Subnet::ip(0), wanted));
  EXPECT_EQ((subnet.join_states[{of_ip(wanted), 0}]), wire::MemberRecord::send_only_non_member);
  subnet.pass(Time::seconds(120));
  EXPECT_EQ((subnet.join_states[{of_ip(wanted), 0}]), 0);
}

// The last is not joined, although its address is the lowest.
TEST(IpoibTest, GroupsBeyondThoseThatMayBeAreNotJoined) {
  Subnet subnet;
  subnet.add();
  const auto join = [&](std::uint32_t address) {
    IpPacket report = ipv4_packet(Subnet::ip(0), group(address), 8, 2);
    const std::array<be32, 2> igmp = {be32(0x1600'0000), be32(address)};
    std::memcpy(report.data() + 20, igmp.data(), sizeof(igmp));
    subnet.send(0, report);
  };
  constexpr std::uint32_t last = 0xEF01'0000 + Groups::groups_max;
  for (std::uint32_t i = 0; i < Groups::groups_max; ++i) join(last - i);
  subnet.pass(Time::seconds(1));
  const std::uint32_t beyond = last - Groups::groups_max;
  EXPECT_FALSE(subnet.members[of_ip(group(beyond + 1))].empty());
  join(beyond);
  subnet.pass(Time::seconds(1));
  EXPECT_TRUE(subnet.members[of_ip(group(beyond))].empty());
  EXPECT_FALSE(subnet.members[of_ip(group(beyond + 1))].empty());
  const Gid all_nodes{{0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01}};
  EXPECT_FALSE(subnet.members[of_ip(all_nodes)].empty()) << "IPv6 needs this one, whatever comes";
}

// Reports cost a fabric little, however many come: they change the groups some times in a second.
TEST(IpoibTest, ManyReportsTakeEffectTogether) {
  Subnet subnet;
  Host& host = subnet.add();
  std::size_t asked = 0;
  const auto report = [&](std::uint32_t address, std::uint32_t type) {
    IpPacket packet = ipv4_packet(Subnet::ip(0), group(0xE000'0001), 8, 2);
    const std::array<be32, 2> igmp = {be32(type << 24), be32(address)};
    std::memcpy(packet.data() + 20, igmp.data(), sizeof(igmp));
    static_cast<void>(host.interface.send(subnet.now, packet));
    host.interface.progress(subnet.now);
    while (host.interface.pull_question()) ++asked;
  };
  constexpr std::uint32_t join = 0x16, leave = 0x17;
  report(0xEF01'0203, join);
  EXPECT_EQ(asked, 1u) << "the first at once";
  for (int i = 0; i < 100; ++i) report(0xEF01'0203, join);
  EXPECT_EQ(asked, 1u) << "nothing has changed";
  for (std::uint32_t i = 0; i < 2'000; ++i) {
    report(0xEF02'0000 + i, join);
    report(0xEF02'0000 + i, leave);
  }
  report(0xEF03'0001, join);
  host.interface.rebase(subnet.now);
  subnet.now = Time::zero();
  EXPECT_LE(asked, 64u);
  EXPECT_TRUE(subnet.members[of_ip(group(0xEF03'0001))].empty());
  EXPECT_LE(host.interface.next_deadline(), subnet.now + Time::seconds(1));
  subnet.pass(Time::seconds(1));
  EXPECT_FALSE(subnet.members[of_ip(group(0xEF03'0001))].empty());
}

// A group that nobody has joined has no packets, and is not asked for with each of them.
TEST(IpoibTest, AGroupThatIsNotThere) {
  Subnet subnet;
  Host& sender = subnet.add();
  for (int i = 0; i < 50; ++i) subnet.send(0, ipv4_packet(Subnet::ip(0), group(0xEF01'0203)));
  EXPECT_EQ(sender.interface.counters().no_group, 50u);
  EXPECT_LE(subnet.questions, 10u);
}

TEST(IpoibTest, AnAbsentNeighbourIsLookedForThreeTimes) {
  Subnet subnet;
  Host& sender = subnet.add();
  subnet.add();
  const std::uint64_t before = subnet.packets;
  for (int i = 0; i < 20; ++i) subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(77)));
  subnet.pass(Time::seconds(5));
  EXPECT_EQ(subnet.packets, before + 3);
  EXPECT_EQ(sender.interface.neighbours().unresolved(), 20u);
  subnet.pass(Time::seconds(60));
  EXPECT_EQ(sender.interface.neighbours().size(), 0u);
}

// RFC 826 and RFC 4861 §7.2.2: a question names who asks.
TEST(IpoibTest, WithoutAnAddressOfAFamilyNobodyIsAskedInIt) {
  Subnet subnet;
  Host& sender = subnet.add();
  subnet.add();
  sender.interface.set_addresses(subnet.now, {{Subnet::ip6(0), 64}});
  subnet.settle();
  const std::uint64_t before = subnet.packets;
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
  subnet.pass(Time::seconds(5));
  EXPECT_EQ(subnet.packets, before);
  EXPECT_EQ(sender.interface.neighbours().unresolved(), 1u);
}

// The neighbour has another address of InfiniBand after a while, and its host does not say so.
TEST(IpoibTest, ANeighbourThatHasMoved) {
  Subnet subnet;
  subnet.add();
  Host& old = subnet.add();
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
  old.interface.set_addresses(subnet.now, {});
  Host& heir = subnet.add();
  heir.interface.set_addresses(subnet.now, {{Subnet::ip(1), 96 + 24}});
  for (int i = 0; i < 50; ++i) {
    subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
    subnet.pass(Time::seconds(1));
  }
  EXPECT_GE(heir.received.size(), 10u);
}

TEST(IpoibTest, ANeighbourWithAnotherLid) {
  Subnet subnet;
  Host& sender = subnet.add();
  Host& other = subnet.add();
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
  other.port.lid = Lid(42);
  other.interface.set_port(subnet.now, other.port);
  // A manager that gives out LIDs anew asks all to register.
  sender.interface.register_anew(subnet.now);
  subnet.settle();
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
  EXPECT_EQ(other.received.size(), 2u);
}

TEST(IpoibTest, WithoutAManagerNothingPasses) {
  Subnet subnet;
  Host& sender = subnet.add();
  Host& other = subnet.add();
  PortView port = sender.port;
  port.manager = Lid(0);
  sender.interface.set_port(subnet.now, port);
  subnet.settle();
  EXPECT_FALSE(sender.interface.is_running());
  EXPECT_EQ(sender.interface.mtu(), 0u);
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
  EXPECT_TRUE(other.received.empty());
  sender.interface.set_port(subnet.now, sender.port);
  subnet.settle();
  EXPECT_TRUE(sender.interface.is_running());
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
  EXPECT_EQ(other.received.size(), 1u);
}

// The manager goes while a neighbour is known, which is not asked whether it is still there.
TEST(IpoibTest, WhileTheInterfaceDoesNotRunItAsksNoNeighbour) {
  Subnet subnet;
  Host& sender = subnet.add();
  Host& other = subnet.add();
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
  ASSERT_EQ(other.received.size(), 1u);
  PortView port = sender.port;
  port.manager = Lid(0);
  sender.interface.set_port(subnet.now, port);
  const std::uint64_t before = subnet.packets;
  subnet.pass(Time::seconds(40));
  EXPECT_EQ(subnet.packets, before);
  sender.interface.set_port(subnet.now, sender.port);
  subnet.settle();
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
  EXPECT_EQ(other.received.size(), 2u);
}

// The partition has no IP until its manager makes the group. The interface asks ever less often.
TEST(IpoibTest, APartitionWithoutIp) {
  Subnet subnet;
  subnet.has_broadcast = false;
  Host& host = subnet.add();
  subnet.pass(Time::seconds(60));
  EXPECT_FALSE(host.interface.is_running());
  EXPECT_LE(subnet.questions, 10u);
  subnet.has_broadcast = true;
  subnet.pass(Time::seconds(20));
  EXPECT_TRUE(host.interface.is_running());
}

TEST(IpoibTest, PartitionsDoNotHearEachOther) {
  Subnet subnet;
  subnet.add(Pkey(0x8001));
  Host& other = subnet.add(Pkey(0x8002));
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
  subnet.pass(Time::seconds(5));
  EXPECT_TRUE(other.received.empty());
  // A packet that finds its way to the port is not taken either.
  Host& third = subnet.add(Pkey(0x8001));
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(2)));
  ASSERT_EQ(third.received.size(), 1u);
  const auto packet =
      subnet.hosts[0]->interface.send(subnet.now, ipv4_packet(Subnet::ip(0), Subnet::ip(2)));
  std::vector<std::byte> forged(packet.begin(), packet.end());
  subnet.deliver(other, forged);
  EXPECT_TRUE(other.received.empty());
  EXPECT_EQ(other.interface.counters().invalid, 1u);
}

// --- strangers ---

class Stranger : public ::testing::Test {
 protected:
  Stranger() : victim(subnet.add()) { subnet.add(); }
  // A packet as the other host sends it to the victim.
  std::vector<std::byte> packet(std::uint16_t type, std::span<const std::byte> payload,
                                std::uint32_t key = testing::qkey) const {
    std::vector<std::byte> out(4'200);
    wire::LocalPath path;
    path.local.source = Lid(2);
    path.local.destination = victim.port.lid;
    wire::Packet header;
    header.opcode = wire::opcode(wire::TransportClass::ud, wire::Operation::send_only);
    header.destination_qp = QpNumber(0x100);
    header.qkey = Qkey(key);
    header.source_qp = QpNumber(0x101);
    header.pad_count = static_cast<std::uint8_t>((4 - payload.size() % 4) % 4);
    const std::size_t transport = 20 + 4 + payload.size() + header.pad_count;
    const std::size_t link = port::encode_link_headers(path, transport, out);
    const std::size_t headers = wire::encode(header, std::span(out).subspan(link));
    wire::IpoibHeader ipoib;
    ipoib.type = type;
    std::memcpy(out.data() + link + headers, &ipoib, sizeof(ipoib));
    std::ranges::copy(payload,
                      out.begin() + static_cast<std::ptrdiff_t>(link + headers + sizeof(ipoib)));
    out.resize(link + transport);
    return out;
  }
  std::vector<std::byte> arp(std::uint32_t sender, std::uint32_t target) const {
    wire::IpoibAddress address;
    address.qp = sender & 0xFFFF;
    address.gid = subnet.hosts[1]->port.gid.bytes;
    const WrittenMessage message =
        write_question(Gid::from_ipv4(sender), address, Gid::from_ipv4(target), {});
    return packet(message.type, message.bytes);
  }

  Subnet subnet;
  Host& victim;
};

// Any number of askers take a bounded number of places, and a neighbour in use keeps its own.
TEST_F(Stranger, ManyAskersTakeNoMoreThanTheirRoom) {
  subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
  const std::size_t heard = subnet.hosts[1]->received.size();
  for (std::uint32_t i = 0; i < 5'000; ++i) {
    subnet.deliver(victim, arp(0x0B00'0001 + i, Subnet::ip(0).ipv4()));
    if (i % 100 != 0) continue;
    subnet.now += Time::milliseconds(1);
    subnet.settle();
    subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(1)));
  }
  EXPECT_LE(victim.interface.neighbours().size(), Neighbours::neighbours_max);
  EXPECT_EQ(subnet.hosts[1]->received.size(), heard + 50);
}

// The host does not remember what it is told about an address that it has not asked for.
TEST_F(Stranger, WhatIsNotForTheHostIsNotRemembered) {
  for (std::uint32_t i = 0; i < 100; ++i) {
    subnet.deliver(victim, arp(0x0B00'0001 + i, Subnet::ip(55).ipv4()));
  }
  EXPECT_EQ(victim.interface.neighbours().size(), 0u);
  // Nobody can take the host's own address from it either.
  subnet.deliver(victim, arp(Subnet::ip(0).ipv4(), Subnet::ip(0).ipv4()));
  EXPECT_EQ(victim.interface.neighbours().size(), 0u);
}

TEST_F(Stranger, PacketsThatAreNone) {
  const IpPacket ip = ipv4_packet(Subnet::ip(1), Subnet::ip(0));
  const auto is_taken = [&](const std::vector<std::byte>& bytes) {
    victim.received.clear();
    subnet.deliver(victim, bytes);
    return !victim.received.empty();
  };
  EXPECT_TRUE(is_taken(packet(wire::IpoibHeader::ipv4, ip)));
  EXPECT_FALSE(is_taken(packet(wire::IpoibHeader::ipv4, ip, 7)));  // another Q_Key
  EXPECT_FALSE(is_taken(packet(wire::IpoibHeader::ipv6, ip)));     // another version
  EXPECT_FALSE(is_taken(packet(0x8847, ip)));                      // MPLS
  EXPECT_FALSE(is_taken(packet(wire::IpoibHeader::ipv4, {})));
  auto cut = packet(wire::IpoibHeader::ipv4, ip);
  cut.resize(cut.size() - 4);
  EXPECT_FALSE(is_taken(cut));
  // Neighbour discovery comes from the link, and has its checksum.
  WrittenMessage message = write_question(Subnet::ip6(1), {}, Subnet::ip6(0), wire::IpoibAddress{});
  ASSERT_TRUE(read_neighbour_message(message.bytes));
  message.bytes[7] = std::byte{254};  // hop limit
  EXPECT_FALSE(read_neighbour_message(message.bytes));
  message.bytes[7] = std::byte{255};
  message.bytes.back() ^= std::byte{1};
  EXPECT_FALSE(read_neighbour_message(message.bytes));
  EXPECT_FALSE(is_taken(packet(wire::IpoibHeader::ipv6, message.bytes)));
}

// Returns what an interface does in minutes in which neighbours and groups come and go.
std::vector<std::uint64_t> life_of_an_interface(Time kept) {
  Subnet subnet;
  subnet.kept = kept;
  Host& sender = subnet.add();
  subnet.add();
  std::vector<std::uint64_t> seen;
  for (std::uint32_t i = 0; i < 40; ++i) {
    subnet.answers = i % 7 != 3;
    subnet.send(0, ipv4_packet(Subnet::ip(0), Subnet::ip(i % 3 == 0 ? 1 : 40 + i)));
    subnet.send(0, ipv4_packet(Subnet::ip(0), Gid::from_ipv4(0xE000'0100 + i % 5)));
    subnet.pass(Time::milliseconds(1'900 * (i % 11)));
    seen.insert(seen.end(),
                {subnet.packets, subnet.questions, sender.received.size(),
                 sender.interface.neighbours().unresolved(), sender.interface.neighbours().size()});
  }
  return seen;
}

TEST(IpoibTest, AnInterfaceDoesTheSameIfTheZeroMoves) {
  EXPECT_EQ(life_of_an_interface(Time::never()), life_of_an_interface(Time::seconds(120)));
}

}  // namespace
}  // namespace tulle::ipoib

#pragma once

// A subnet in virtual time that has interfaces of IP over InfiniBand and nothing else: packets
// arrive at once, and an administration that knows all answers at once, unless a test says
// otherwise.

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "management/ipoib/interface.h"
#include "rdma/wire/ipv4.h"
#include "rdma/wire/ipv6.h"

namespace tulle::ipoib::testing {

using IpPacket = std::vector<std::byte>;

inline constexpr Pkey partition{0xFFFF};
inline constexpr std::uint32_t qkey = 0xB1B;

inline IpPacket ipv4_packet(const Gid& from, const Gid& to, std::size_t payload = 8,
                            std::uint8_t protocol = 17) {
  wire::Ipv4 header;
  header.total_length = static_cast<std::uint16_t>(sizeof(header) + payload);
  header.protocol = protocol;
  header.source = from.ipv4();
  header.destination = to.ipv4();
  IpPacket packet(sizeof(header) + payload, std::byte{0xA5});
  std::memcpy(packet.data(), &header, sizeof(header));
  return packet;
}

inline IpPacket ipv6_packet(const Gid& from, const Gid& to, std::size_t payload = 8) {
  wire::Ipv6 header;
  header.version_class_flow = wire::Ipv6::version;
  header.payload_length = static_cast<std::uint16_t>(payload);
  header.next_header = 17;
  header.source = from.bytes;
  header.destination = to.bytes;
  IpPacket packet(sizeof(header) + payload, std::byte{0x5A});
  std::memcpy(packet.data(), &header, sizeof(header));
  return packet;
}

inline Gid ipv6(std::uint8_t scope, std::uint8_t last) {
  Gid gid;
  gid.bytes[0] = 0xFE;
  gid.bytes[1] = scope;
  gid.bytes[15] = last;
  return gid;
}

struct Host {
  Interface interface;
  PortView port;
  std::vector<IpPacket> received;
};

class Subnet {
 public:
  Time now = Time::seconds(1);
  Time kept = Time::never();  // the clock's zero moves when it is so long ago
  bool answers = true;        // administration does
  bool has_broadcast = true;  // the partition has IP
  std::uint8_t mtu_code = 4;
  std::uint64_t questions = 0;
  std::uint64_t packets = 0;  // on the wire
  std::vector<std::unique_ptr<Host>> hosts;
  std::map<Gid, std::set<std::uint32_t>> members;  // by group: the hosts that receive
  std::map<std::pair<Gid, std::uint32_t>, std::uint8_t> join_states;  // by group and host

  Host& add(Pkey pkey = partition) {
    const auto number = static_cast<std::uint32_t>(hosts.size());
    hosts.push_back(
        std::make_unique<Host>(Host{Interface(pkey, QpNumber(0x100 + number)), {}, {}}));
    Host& host = *hosts.back();
    host.port.gid = ipv6(0x80, static_cast<std::uint8_t>(0x10 + number));
    host.port.lid = Lid(static_cast<std::uint16_t>(number + 1));
    host.port.manager = Lid(99);
    host.port.is_active = host.port.is_in_partition = true;
    host.interface.set_port(now, host.port);
    host.interface.set_addresses(now, {{ip(number), 96 + 24}, {ip6(number), 64}});
    settle();
    return host;
  }
  static Gid ip(std::uint32_t host) { return Gid::from_ipv4(0x0A01'0001 + host); }
  static Gid ip6(std::uint32_t host) { return ipv6(0x80, static_cast<std::uint8_t>(1 + host)); }

  void send(std::uint32_t host, const IpPacket& packet) {
    carry(hosts[host]->interface.send(now, packet));
    settle();
  }
  // Lets all that can happen now happen.
  void settle() {
    for (int i = 0; i < 100; ++i) {
      for (const auto& host : hosts) turn(*host);
    }
  }
  void pass(Time span) {
    for (Time end = now + span; now < end;) {
      now += Time::milliseconds(100);
      if (now > kept) {
        const Time by = now - kept;
        tulle::rebase(by, now, end);
        for (const auto& host : hosts) host->interface.rebase(by);
      }
      settle();
    }
  }
  // Takes a packet to whom it is for.
  void carry(std::span<const std::byte> packet) {
    if (packet.empty()) return;
    ++packets;
    const std::vector<std::byte> bytes(packet.begin(), packet.end());
    const wire::LocalRoute route = wire::decode_lrh(std::span(bytes).first<wire::lrh_bytes>());
    for (std::uint32_t i = 0; i < hosts.size(); ++i) {
      const auto group = mlids.find(route.destination.value);
      const bool is_for = group != mlids.end() ? members[group->second].contains(i)
                                               : hosts[i]->port.lid == route.destination;
      if (is_for) deliver(*hosts[i], bytes);
    }
  }
  void deliver(Host& host, std::span<const std::byte> packet) {
    const auto ip_packet = host.interface.receive(now, packet);
    if (!ip_packet.empty()) host.received.emplace_back(ip_packet.begin(), ip_packet.end());
  }

 private:
  void turn(Host& host) {
    host.interface.progress(now);
    while (const auto question = host.interface.pull_question()) answer(host, *question);
    for (;;) {
      const auto packet = host.interface.pull_packet();
      if (packet.empty()) return;
      carry(packet);
    }
  }
  void answer(Host& host, const Question& question) {
    ++questions;
    if (const auto* path = std::get_if<wire::PathRecord>(&question.record)) {
      wire::PathRecord found = *path;
      const auto to = std::find_if(hosts.begin(), hosts.end(), [&](const auto& other) {
        return other->port.gid.bytes == path->destination_gid;
      });
      const bool is_there = answers && to != hosts.end() && (*to)->port.is_active;
      if (is_there) found.destination_lid = (*to)->port.lid.value;
      return host.interface.take_path(now, question.number, is_there ? &found : nullptr);
    }
    auto member = std::get<wire::MemberRecord>(question.record);
    const Gid gid{member.group_gid};
    if (question.kind == Question::Kind::leave) {
      auto& states = join_states[{gid, number_of(host)}];
      states &= static_cast<std::uint8_t>(~member.scope_and_join_state);
      members[gid].erase(number_of(host));
      return;
    }
    const bool receives = (member.scope_and_join_state & wire::MemberRecord::full_member) != 0;
    const bool is_broadcast = gid == wire::broadcast_group(Pkey(member.pkey));
    const bool is_there = is_broadcast ? has_broadcast : receives || mlid_of.contains(gid);
    if (!answers || !is_there) return host.interface.take_group(now, question.number, nullptr);
    const auto [place, is_new] =
        mlid_of.try_emplace(gid, static_cast<std::uint16_t>(0xC000 + mlid_of.size()));
    mlids[place->second] = gid;
    if (receives) members[gid].insert(number_of(host));
    join_states[{gid, number_of(host)}] |= member.scope_and_join_state;
    member.lid = place->second;
    member.qkey = qkey;
    member.mtu = wire::selected(wire::Selector::exactly, mtu_code);
    host.interface.take_group(now, question.number, &member);
  }
  std::uint32_t number_of(const Host& host) const {
    for (std::uint32_t i = 0; i < hosts.size(); ++i) {
      if (hosts[i].get() == &host) return i;
    }
    return 0;
  }

  std::map<Gid, std::uint16_t> mlid_of;
  std::map<std::uint16_t, Gid> mlids;
};

}  // namespace tulle::ipoib::testing

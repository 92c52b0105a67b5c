#include "management/ipoib/interface.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "management/ipoib/group_reports.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/ipoib.h"
#include "rdma/wire/pkey.h"

namespace tulle::ipoib {
namespace {

using wire::IpoibHeader;

constexpr std::uint32_t multicast_qp = 0xFF'FFFF;  // IBTA 10.5.1
constexpr unsigned ipv4 = 4, ipv6 = 6;             // versions
constexpr std::size_t ipv4_header = wire::ipv4_header_bytes, ipv6_header = wire::ipv6_header_bytes;
constexpr std::size_t ipv4_destination_at = 16, ipv6_destination_at = 24;
constexpr wire::Opcode datagram =
    wire::opcode(wire::TransportClass::ud, wire::Operation::send_only);

// Groups that every interface receives: all hosts (RFC 1112), and all nodes (RFC 4291 §2.7.1).
constexpr Gid all_hosts = Gid::from_ipv4(0xE000'0001);
constexpr Gid all_nodes{{0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01}};

unsigned version_of(std::span<const std::byte> packet) {
  return packet.empty() ? 0 : std::to_integer<unsigned>(packet[0]) >> 4;
}

// Returns the destination of an IP packet, or nothing if it has none.
std::optional<Gid> destination_of(std::span<const std::byte> packet) {
  if (version_of(packet) == ipv4 && packet.size() >= ipv4_header) {
    be32 address;
    std::memcpy(&address, packet.data() + ipv4_destination_at, sizeof(address));
    return Gid::from_ipv4(address);
  }
  if (version_of(packet) != ipv6 || packet.size() < ipv6_header) return std::nullopt;
  Gid address;
  std::memcpy(address.bytes.data(), packet.data() + ipv6_destination_at, address.bytes.size());
  return address;
}

bool has_prefix(const Gid& a, const Gid& b, unsigned bits) {
  constexpr unsigned byte_bits = 8;
  const unsigned whole = bits / byte_bits;
  if (!std::equal(a.bytes.begin(), a.bytes.begin() + whole, b.bytes.begin())) return false;
  if (bits % byte_bits == 0) return true;
  const unsigned shift = byte_bits - bits % byte_bits;
  return a.bytes[whole] >> shift == b.bytes[whole] >> shift;
}

// Returns the bytes of a code of an MTU: 1 is 256 (IBTA 14.2.5.6), 0 for one that there is not.
std::size_t mtu_bytes(std::uint8_t code) {
  constexpr std::uint8_t longest = 5;
  constexpr std::size_t unit = 128;
  return code >= 1 && code <= longest ? unit << code : 0;
}

}  // namespace

// --- the port ---

bool Interface::set_port(Time now, const PortView& port) {
  if (port == port_) return false;
  port_ = port;
  register_anew(now);
  return true;
}

void Interface::register_anew(Time now) {
  const bool is_up = port_.is_active && port_.is_in_partition && port_.manager != Lid(0);
  groups_.join_anew(now, port_.gid, is_up);
  neighbours_.route_anew(now, port_.gid);
}

std::size_t Interface::mtu() const {
  const wire::MemberRecord* broadcast = groups_.broadcast();
  if (broadcast == nullptr) return 0;
  const std::size_t bytes = mtu_bytes(wire::selected_value(broadcast->mtu));
  return bytes == 0 ? 0 : bytes - sizeof(IpoibHeader);
}

wire::IpoibAddress Interface::own_address() const { return {0, qp_.value, port_.gid.bytes}; }

// --- the host ---

void Interface::set_addresses(Time now, std::vector<HostAddress> addresses) {
  if (addresses == addresses_) return;
  addresses_ = std::move(addresses);
  follow_wanted(now);
}

// One packet of the host's may report hundreds of changes, and another takes them back.
void Interface::follow_reports(Time now) {
  if (now >= follows_end_) {
    follows_left_ = follows_max;
    follows_end_ = now + follows_interval;
  }
  if (follows_left_ == 0) {
    follow_due_ = follows_end_;
    return;
  }
  --follows_left_;
  follow_wanted(now);
}

void Interface::follow_wanted(Time now) {
  follow_due_ = Time::never();
  std::set<Gid> wanted = {all_hosts, all_nodes};
  for (const HostAddress& address : addresses_) {
    if (!address.ip.is_ipv4_mapped()) wanted.insert(solicited_node_group(address.ip));
  }
  // What the host has joined takes no room from what every interface needs. The group of broadcasts
  // is one more.
  for (const Gid& group : reported_) {
    if (wanted.size() + 1 >= Groups::groups_max) break;
    wanted.insert(group);
  }
  groups_.set_wanted(now, wanted);
}

bool Interface::is_own(const Gid& ip) const {
  return std::any_of(addresses_.begin(), addresses_.end(),
                     [&ip](const HostAddress& address) { return address.ip == ip; });
}

// Networks of two addresses have no address for broadcasts (RFC 3021).
bool Interface::is_broadcast(const Gid& ip) const {
  if (!ip.is_ipv4_mapped()) return false;
  constexpr std::uint32_t all_ones = 0xFFFF'FFFF;
  constexpr unsigned mapped_bits = 96, longest_prefix = 30;
  if (ip.ipv4() == all_ones) return true;
  return std::any_of(addresses_.begin(), addresses_.end(), [&](const HostAddress& address) {
    if (!address.ip.is_ipv4_mapped() || address.prefix_bits < mapped_bits) return false;
    const unsigned bits = address.prefix_bits - mapped_bits;
    return bits <= longest_prefix &&
           (bits == 0 || has_prefix(ip, address.ip, address.prefix_bits)) &&
           (ip.ipv4() | ~(all_ones >> bits)) == all_ones;
  });
}

// Returns the host's address that shares its network with the target, or else one of its family;
// the unspecified one if it has none.
Gid Interface::source_towards(const Gid& target) const {
  Gid source;
  for (const HostAddress& address : addresses_) {
    if (address.ip.is_ipv4_mapped() != target.is_ipv4_mapped()) continue;
    if (has_prefix(address.ip, target, address.prefix_bits)) return address.ip;
    if (source == Gid{}) source = address.ip;
  }
  return source;
}

std::span<const std::byte> Interface::send(Time now, std::span<const std::byte> ip_packet) {
  const auto to = destination_of(ip_packet);
  if (!to) {
    ++counters_.invalid;
    return {};
  }
  if (to->is_multicast()) {
    bool has_changed = false;
    read_group_reports(ip_packet, [&](const Gid& group, bool joins) {
      if (!joins) has_changed |= reported_.erase(group) > 0;
      if (!joins || reported_.size() >= Groups::groups_max) return;
      has_changed |= reported_.insert(group).second;
    });
    if (has_changed) follow_reports(now);
  }
  if (!is_running() || ip_packet.size() > mtu()) {
    ++(is_running() ? counters_.too_long : counters_.no_group);
    return {};
  }
  const std::uint16_t type = to->is_ipv4_mapped() ? IpoibHeader::ipv4 : IpoibHeader::ipv6;
  std::span<const std::byte> packet;
  if (is_broadcast(*to)) {
    packet = write(groups_.broadcast_route(), type, ip_packet);
  } else if (to->is_multicast()) {
    const auto group = groups_.find_to_send(now, *to, ip_packet);
    if (group) packet = write(*group, type, ip_packet);
    if (!group) ++counters_.no_group;
  } else if (const auto route = neighbours_.find_to_send(now, *to, ip_packet)) {
    packet = write(*route, type, ip_packet);
  }
  counters_.sent += packet.empty() ? 0 : 1;
  return packet;
}

// --- packets ---

std::span<const std::byte> Interface::write(const Neighbours::Route& route, std::uint16_t type,
                                            std::span<const std::byte> payload) {
  wire::LocalPath path;
  path.local.service_level = route.service_level;
  path.local.destination = route.lid;
  path.has_global = route.has_global;
  path.global = {port_.gid, route.gid, route.traffic_class, route.hop_limit, route.flow_label};
  return write(path, route.qp, type, payload);
}

// A multicast packet has a GRH (IBTA 10.5.1).
std::span<const std::byte> Interface::write(const Groups::Joined& group, std::uint16_t type,
                                            std::span<const std::byte> payload) {
  wire::LocalPath path;
  path.local.service_level = group.service_level;
  path.local.destination = group.lid;
  path.has_global = true;
  path.global = {port_.gid, group.gid, group.traffic_class, group.hop_limit, group.flow_label};
  return write(path, QpNumber(multicast_qp), type, payload);
}

std::span<const std::byte> Interface::write(const wire::LocalPath& path, QpNumber to,
                                            std::uint16_t type,
                                            std::span<const std::byte> payload) {
  constexpr std::size_t word = 4;
  wire::LocalPath whole = path;
  whole.local.source = port_.lid;
  wire::Packet packet;
  packet.opcode = datagram;
  packet.pkey = partition_;
  packet.destination_qp = to;
  packet.psn = psn_;
  ++psn_;
  packet.qkey = Qkey(groups_.broadcast()->qkey);
  packet.source_qp = qp_;
  const std::size_t bytes = sizeof(IpoibHeader) + payload.size();
  packet.pad_count = static_cast<std::uint8_t>((word - bytes % word) % word);
  const std::size_t transport = wire::header_bytes(datagram) + bytes + packet.pad_count;
  std::span<std::byte> out(out_);
  const std::size_t link = port::encode_link_headers(whole, transport, out);
  out = out.subspan(link);
  const std::size_t headers = wire::encode(packet, out);
  IpoibHeader header;
  header.type = type;
  std::memcpy(out.data() + headers, &header, sizeof(header));
  std::memcpy(out.data() + headers + sizeof(header), payload.data(), payload.size());
  std::memset(out.data() + headers + bytes, 0, packet.pad_count);
  return std::span(out_).first(link + transport);
}

void Interface::queue(std::span<const std::byte> packet) {
  if (queued_.size() < queued_max) queued_.emplace_back(packet.begin(), packet.end());
}

std::span<const std::byte> Interface::pull_packet() {
  if (queued_.empty()) return {};
  pulled_ = std::move(queued_.front());
  queued_.pop_front();
  return pulled_;
}

std::span<const std::byte> Interface::receive(Time now, std::span<const std::byte> bytes) {
  ++counters_.invalid;  // until it has passed all checks
  const wire::MemberRecord* broadcast = groups_.broadcast();
  wire::LocalPath path;
  const auto link = port::decode_link_headers(bytes, bytes.size() + wire::icrc_bytes, path);
  if (broadcast == nullptr || link.verdict != port::Verdict::ok) return {};
  wire::Packet packet;
  std::span<const std::byte> payload;
  if (port::decode_transport(bytes.subspan(link.bytes), packet, payload) != port::Verdict::ok) {
    return {};
  }
  // A port brings its own multicast packets back.
  const bool is_own = path.local.source == port_.lid && packet.source_qp == qp_;
  if (is_own) {
    --counters_.invalid;
    return {};
  }
  const bool is_multicast = packet.destination_qp == QpNumber(multicast_qp);
  const bool is_admitted = packet.opcode == datagram && packet.qkey == Qkey(broadcast->qkey) &&
                           wire::pkeys_match(packet.pkey, partition_);
  const bool is_for_this = is_multicast
                               ? path.has_global && groups_.is_member(path.global.destination)
                               : packet.destination_qp == qp_;
  if (!is_admitted || !is_for_this || payload.size() < sizeof(IpoibHeader)) return {};
  IpoibHeader header;
  std::memcpy(&header, payload.data(), sizeof(header));
  payload = payload.subspan(sizeof(header));
  if (header.type == IpoibHeader::arp) {
    const auto message = read_arp(payload);
    if (!message) return {};
    --counters_.invalid;
    hear(now, *message);
    return {};
  }
  const unsigned version = header.type == IpoibHeader::ipv4   ? ipv4
                           : header.type == IpoibHeader::ipv6 ? ipv6
                                                              : 0;
  if (version == 0 || version_of(payload) != version) return {};
  if (version == ipv6 && is_neighbour_message(payload)) {
    const auto message = read_neighbour_message(payload);
    if (!message) return {};
    --counters_.invalid;
    hear(now, *message);
    return {};
  }
  --counters_.invalid;
  ++counters_.received;
  return payload;
}

// --- neighbours ---

// RFC 826: a node that asks for this host is remembered, since packets to it will follow.
void Interface::hear(Time now, const ResolutionMessage& message) {
  if (message.address == own_address()) return;
  const bool is_asked = message.asks && is_own(message.target);
  // An advertisement tells the address of its target, which is the sender in ARP.
  const bool is_advertisement = !message.asks && !message.target.is_ipv4_mapped();
  const Gid& ip = is_advertisement ? message.target : message.sender;
  if (is_own(ip)) return;
  neighbours_.hear(now, ip, message.address, is_asked,
                   is_asked ? std::optional(message.target) : std::nullopt);
}

void Interface::search(Time now, const Neighbours::Search& search) {
  const Gid source = source_towards(search.ip);
  if (source == Gid{} || !is_running()) return;
  const WrittenMessage message = write_question(source, own_address(), search.ip, search.known);
  if (search.route) return queue(write(*search.route, message.type, message.bytes));
  if (search.ip.is_ipv4_mapped()) {
    return queue(write(groups_.broadcast_route(), message.type, message.bytes));
  }
  const auto group = groups_.find_to_send(now, solicited_node_group(search.ip), message.bytes);
  if (group) queue(write(*group, message.type, message.bytes));
}

// --- subnet administration ---

std::optional<Question> Interface::pull_question() {
  // In order: a group may be left and joined again.
  if (next_question_ == questions_.size()) {
    questions_.clear();
    next_question_ = 0;
    return std::nullopt;
  }
  return questions_[next_question_++];
}

void Interface::take_path(Time now, std::uint32_t number, const wire::PathRecord* record) {
  std::optional<Neighbours::Found> found;
  if (!neighbours_.take(now, number, record, found) || !found || !is_running()) return;
  for (const Gid& target : found->owed_targets) {
    const WrittenMessage answer = write_answer(target, own_address(), found->ip, found->address);
    queue(write(found->route, answer.type, answer.bytes));
  }
  for (const WaitingPacket& packet : found->packets) {
    const std::uint16_t type = version_of(packet) == ipv4 ? IpoibHeader::ipv4 : IpoibHeader::ipv6;
    queue(write(found->route, type, packet));
    ++counters_.sent;
  }
}

void Interface::take_group(Time now, std::uint32_t number, const wire::MemberRecord* record) {
  std::optional<Groups::Joined> group;
  WaitingPackets packets;
  const bool is_known = groups_.take(now, number, record, group, packets);
  if (!is_known || !group || !is_running()) return;
  for (const WaitingPacket& packet : packets) {
    const std::uint16_t type = version_of(packet) == ipv4 ? IpoibHeader::ipv4 : IpoibHeader::ipv6;
    queue(write(*group, type, packet));
    counters_.sent += is_neighbour_message(packet) ? 0 : 1;  // a question of this interface
  }
}

void Interface::progress(Time now) {
  if (now >= follow_due_) follow_reports(now);
  groups_.progress(now, next_number_, questions_);
  neighbours_.progress(now, next_number_, questions_, searches_);
  for (const Neighbours::Search& one : std::exchange(searches_, {})) search(now, one);
}

}  // namespace tulle::ipoib

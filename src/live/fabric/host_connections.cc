#include "live/fabric/host_connections.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "live/fabric/client.h"
#include "live/fabric/host_networks.h"
#include "management/administration/groups.h"
#include "management/administration/paths.h"
#include "management/administration/view.h"
#include "management/answer.h"

namespace tulle::live {
namespace {

using management::administration::MemberComponents;
using management::administration::PathComponents;

constexpr std::uint8_t only_port = 1;
// A question waits three seconds for its answer, as librdmacm's programs commonly do.
constexpr std::uint32_t question_milliseconds = 1'000;
constexpr std::uint32_t question_retries = 2;

std::span<const std::byte> mad_of(const HostServices::Delivery& delivery) {
  return delivery.whole.empty() ? std::span<const std::byte>(delivery.packet.mad)
                                : std::span<const std::byte>(delivery.whole);
}

template <typename Record>
Record record_in(std::span<const std::byte> mad) {
  Record record;
  std::memcpy(&record, mad.data() + wire::administration_data_offset, sizeof(record));
  return record;
}

// Returns the group for an IP group: that of IPoIB (RFC 4391, 4), or in the port space UDP one with
// the signature of Linux's connection manager (cma_set_mgid in cma.c). An address that is a group's
// GID already stays.
Gid group_gid(PortSpace space, const SocketAddress& group) {
  constexpr std::uint8_t scope_link_local = 0x12;
  constexpr std::uint8_t ipv4_signature[2] = {0x40, 0x1B};
  constexpr std::uint8_t ipv6_signature[2] = {0x60, 0x1B};
  constexpr std::uint8_t manager_signature = 0x01;
  const Gid address = group.gid();
  const auto& from = address.bytes;
  // 0xFF10A01B is the signature by which a program gives a GID (cma.c).
  const bool is_gid =
      group.family == AF_INET6 && (from[1] & 0xF0) == 0x10 && from[2] == 0xA0 && from[3] == 0x1B;
  if (is_gid) return address;
  const bool is_ipv4 = group.family == AF_INET;
  Gid gid;
  gid.bytes[0] = 0xFF;
  gid.bytes[1] = scope_link_local;
  gid.bytes[2] = is_ipv4 ? ipv4_signature[0] : ipv6_signature[0];
  gid.bytes[3] = space == PortSpace::udp ? manager_signature : ipv4_signature[1];
  gid.bytes[4] = gid.bytes[5] = 0xFF;  // the default partition
  if (is_ipv4) {
    for (std::size_t i = 0; i < 4; ++i) {
      gid.bytes[12 + i] = std::to_integer<std::uint8_t>(group.address[i]);
    }
    gid.bytes[12] &= 0x0F;
  } else {
    std::copy(from.begin() + 6, from.end(), gid.bytes.begin() + 6);
  }
  return gid;
}

}  // namespace

HostConnections::HostConnections(std::uint32_t host, std::uint32_t client, Now now,
                                 const fabric::Subnet& subnet, HostServices& services)
    : host_(host),
      client_(client),
      now_(now),
      subnet_(subnet),
      services_(services),
      service_(*this, subnet.node(host).settings().guid) {
  RegisterAgent connections{wire::cm::management_class, wire::cm::class_version, 0, {}, false};
  connections.methods[0] = 1u << wire::cm::method_send;
  connection_agent_ = services_.add(host_, client_, connections).agent;
  const RegisterAgent administration{
      wire::subnet_administration_class, wire::administration_version, 0, {}, false};
  administration_agent_ = services_.add(host_, client_, administration).agent;
}

HostConnections::~HostConnections() { services_.leave(host_, client_); }

bool HostConnections::progress() {
  has_sent_ = false;
  service_.progress();
  return std::exchange(has_sent_, false);
}

Time HostConnections::time_left() const {
  const Time next = service_.next_deadline();
  if (next.is_never()) return next;
  const Time now = service_.now();
  return next > now ? next - now : Time::zero();
}

// --- management datagrams ---

void HostConnections::take(const HostServices::Delivery& delivery) {
  if (delivery.agent == connection_agent_) {
    // A message to a peer is sent without waiting, so that none comes back.
    if (!delivery.has_timed_out) arrived_.push_back(delivery.packet);
    return;
  }
  const auto header = management::header_of(delivery.packet.mad);
  const auto found = questions_.find(static_cast<std::uint32_t>(header.transaction_id));
  if (found == questions_.end()) return;
  const Question question = found->second;
  questions_.erase(found);
  answer(question, delivery);
}

bool HostConnections::receive(Time, const Handle& handle) {
  for (const management::Packet& packet : std::exchange(arrived_, {})) {
    // The sender's host follows from its LID, as no global route is in these datagrams.
    const auto from = host_with(packet.source.value);
    if (!from) continue;
    handle({gid_at(host_), gid_at(*from), 0, packet.source.value}, packet.mad);
  }
  return true;
}

void HostConnections::send(const management::cm::Outgoing& datagram) {
  std::uint16_t lid = datagram.route.remote_lid;
  if (lid == 0) {
    const auto to = host_with(datagram.route.remote);
    if (to) lid = lid_at(*to);
  }
  Datagram out;
  out.agent = connection_agent_;
  out.qp = wire::general_services_qp.value;
  out.qkey = wire::general_services_qkey.value;
  out.lid = lid;
  out.bytes.assign(datagram.bytes.begin(), datagram.bytes.end());
  services_.send(now_(), host_, client_, out);
  has_sent_ = true;
}

// --- addresses ---

Gid HostConnections::gid_at(std::uint32_t host) const {
  const auto& node = subnet_.node(host);
  return {management::administration::gid_bytes(node.port_info(only_port).gid_prefix,
                                                node.port_guid(only_port))};
}

std::uint16_t HostConnections::lid_at(std::uint32_t host) const {
  return subnet_.node(host).port_info(only_port).lid;
}

std::optional<std::uint32_t> HostConnections::host_with(std::uint16_t lid) const {
  for (std::uint32_t host = 0; host < subnet_.topology().adapters(); ++host) {
    if (subnet_.node(host).has_lid(only_port, Lid(lid))) return host;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> HostConnections::host_with(const Gid& gid) const {
  for (std::uint32_t host = 0; host < subnet_.topology().adapters(); ++host) {
    if (gid_at(host) == gid) return host;
  }
  return std::nullopt;
}

std::optional<Gid> HostConnections::gid_of(const SocketAddress& address) const {
  const Gid gid = address.gid();
  if (gid.is_multicast()) return gid;
  if (!gid.is_ipv4_mapped()) {
    return host_with(gid) ? std::optional<Gid>(gid) : std::nullopt;
  }
  const auto host = host_at_address(std::span(gid.bytes).last<4>());
  if (!host || *host >= subnet_.topology().adapters()) return std::nullopt;
  return gid_at(*host);
}

Result<DeviceInfo> HostConnections::describe(const std::string& name, const std::string&) {
  return device_of(name, services_.describe(host_, {}));
}

int HostConnections::check_is_local(const SocketAddress& address) {
  return is_loopback(address) || gid_of(address) == gid_at(host_) ? 0 : EADDRNOTAVAIL;
}

int HostConnections::find_source(SocketAddress& source, const SocketAddress& destination) {
  const bool is_here = is_loopback(destination);
  if (!is_here && !gid_of(destination)) return ENETUNREACH;
  if (source.family != 0 && !source.is_wildcard()) {
    if (source.family != destination.family) return EINVAL;
    return check_is_local(source);
  }
  source = {};
  source.family = destination.family;
  if (is_here) {
    source.address = destination.address;
  } else if (destination.gid().is_ipv4_mapped()) {
    const auto own = host_address_bytes(host_);
    const std::size_t at = destination.family == AF_INET ? 0 : 12;
    if (at != 0) source.address = destination.address;  // the mapping's prefix
    std::transform(own.begin(), own.end(), source.address.begin() + static_cast<std::ptrdiff_t>(at),
                   [](std::uint8_t byte) { return std::byte{byte}; });
  } else {
    const Gid own = gid_at(host_);
    std::memcpy(source.address.data(), own.bytes.data(), source.address.size());
  }
  return 0;
}

// --- subnet administration ---

// Asks the subnet's manager. A question of which no answer is awaited is null. Returns false if
// there is no manager.
template <typename Record>
bool HostConnections::ask(std::uint8_t method, std::uint16_t attribute, std::uint64_t components,
                          const Record& record, const Question* question) {
  const InfinibandPort own = services_.port_of(host_);
  if (own.sm_lid == 0) return false;
  const std::uint32_t number = next_question_++;
  if (question != nullptr) questions_[number] = *question;
  wire::MadHeader header;
  header.management_class = wire::subnet_administration_class;
  header.class_version = wire::administration_version;
  header.method = method;
  header.transaction_id = number;
  header.attribute_id = attribute;
  wire::AdministrationHeader rest;
  rest.components = components;
  Datagram out;
  out.agent = administration_agent_;
  out.timeout_milliseconds = question_milliseconds;
  out.retries = question_retries;
  out.qp = wire::general_services_qp.value;
  out.qkey = wire::general_services_qkey.value;
  out.lid = own.sm_lid;
  out.service_level = own.sm_sl;
  out.bytes.resize(wire::mad_bytes);
  std::memcpy(out.bytes.data(), &header, sizeof(header));
  std::memcpy(out.bytes.data() + wire::administration_header_offset, &rest, sizeof(rest));
  std::memcpy(out.bytes.data() + wire::administration_data_offset, &record, sizeof(record));
  services_.send(now_(), host_, client_, out);
  has_sent_ = true;
  return true;
}

// IBTA 15.2.5.16: the path must be usable in both directions, as a connection's messages need it.
std::optional<ConnectionRoute> HostConnections::find_route(Asker asker, const DeviceInfo&,
                                                           const Gid& remote) {
  wire::PathRecord record;
  record.source_gid = gid_at(host_).bytes;
  record.destination_gid = remote.bytes;
  record.reversible_and_paths = wire::PathRecord::reversible | 1;
  record.pkey = default_pkey.value;
  constexpr std::uint64_t components = PathComponents::destination_gid |
                                       PathComponents::source_gid | PathComponents::reversible |
                                       PathComponents::paths | PathComponents::pkey;
  const Question question{asker, std::nullopt};
  const bool is_asked =
      ask(management::method_get, wire::attribute_path_record, components, record, &question);
  if (!is_asked) service_.take_route(asker, Error{"the subnet has no manager", ENETUNREACH});
  return std::nullopt;
}

std::optional<ConnectionGroup> HostConnections::join(Asker asker, PortSpace space,
                                                     const SocketAddress& group,
                                                     std::uint32_t qkey) {
  const Gid gid = group_gid(space, group);
  wire::MemberRecord record;
  record.group_gid = gid.bytes;
  record.port_gid = gid_at(host_).bytes;
  record.qkey = qkey;
  record.pkey = default_pkey.value;
  record.scope_and_join_state = wire::MemberRecord::full_member;
  constexpr std::uint64_t components = MemberComponents::group_gid | MemberComponents::port_gid |
                                       MemberComponents::qkey | MemberComponents::pkey |
                                       MemberComponents::traffic_class | MemberComponents::sl |
                                       MemberComponents::flow_label | MemberComponents::join_state;
  const Question question{asker, group};
  ++members_[gid];
  const bool is_asked =
      ask(management::method_set, wire::attribute_member_record, components, record, &question);
  if (!is_asked) {
    service_.take_group(asker, group, Error{"the subnet has no manager", ENETUNREACH});
  }
  return std::nullopt;
}

// The port leaves a group with its last member here.
void HostConnections::leave(PortSpace space, const SocketAddress& group) {
  const Gid gid = group_gid(space, group);
  const auto found = members_.find(gid);
  if (found == members_.end() || --found->second > 0) return;
  members_.erase(found);
  wire::MemberRecord record;
  record.group_gid = gid.bytes;
  record.port_gid = gid_at(host_).bytes;
  record.scope_and_join_state = wire::MemberRecord::full_member;
  constexpr std::uint64_t components =
      MemberComponents::group_gid | MemberComponents::port_gid | MemberComponents::join_state;
  static_cast<void>(
      ask(wire::method_delete, wire::attribute_member_record, components, record, nullptr));
}

void HostConnections::answer(const Question& question, const HostServices::Delivery& delivery) {
  const auto bytes = mad_of(delivery);
  const auto header = management::header_of(delivery.packet.mad);
  const int error = delivery.has_timed_out           ? ETIMEDOUT
                    : header.status != 0             ? EHOSTUNREACH
                    : bytes.size() < wire::mad_bytes ? EPROTO
                                                     : 0;
  const Error refused{"subnet administration knows no way", error};
  if (!question.group) {
    if (error != 0) return service_.take_route(question.asker, refused);
    const auto record = record_in<wire::PathRecord>(bytes);
    return service_.take_route(question.asker, ConnectionRoute::of(record));
  }
  if (error != 0) return service_.take_group(question.asker, *question.group, refused);
  const auto record = record_in<wire::MemberRecord>(bytes);
  ConnectionGroup group;
  group.gid.bytes = record.group_gid;
  group.lid = record.lid;
  group.service_level = static_cast<std::uint8_t>(record.sl_flow_and_hops >> 28);
  service_.take_group(question.asker, *question.group, group);
}

}  // namespace tulle::live

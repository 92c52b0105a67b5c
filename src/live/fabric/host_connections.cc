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
#include "rdma/wire/ipoib.h"

namespace tulle::live {
namespace {

using management::administration::MemberComponents;

constexpr char no_way[] = "subnet administration knows no way";
constexpr char no_manager[] = "the subnet has no manager";

// Returns the group for an IP group: that of IPoIB (RFC 4391, 4), or in the port space UDP one with
// the signature of Linux's connection manager (cma_set_mgid in cma.c). An address that is a group's
// GID already stays.
Gid group_gid(PortSpace space, const SocketAddress& group) {
  constexpr std::uint16_t ipv4_signature = 0x4001;
  constexpr std::uint16_t ipv6_signature = 0x6001;
  const Gid address = group.gid();
  const auto& from = address.bytes;
  // 0xFF10A01B is the signature by which a program gives a GID as an address of IPv6 (cma.c).
  const bool is_signed =
      group.family == AF_INET6 && (from[1] & 0xF0) == 0x10 && from[2] == 0xA0 && from[3] == 0x1B;
  if (group.is_gid() || is_signed) return address;
  if (space != PortSpace::udp) return wire::group_of_ip(address, default_pkey);
  return wire::group_of_ip(address, default_pkey,
                           address.is_ipv4_mapped() ? ipv4_signature : ipv6_signature);
}

}  // namespace

HostConnections::HostConnections(std::uint32_t host, std::uint32_t client, Now now,
                                 const fabric::Subnet& subnet, HostServices& services,
                                 HostAdministration& administration)
    : host_(host),
      client_(client),
      now_(std::move(now)),
      subnet_(subnet),
      services_(services),
      administration_(administration),
      service_(*this, subnet.node(host).settings().guid) {
  RegisterAgent connections{wire::cm::management_class, wire::cm::class_version, 0, {}, false};
  connections.methods[0] = 1u << wire::cm::method_send;
  agent_ = services_.add_own(host_, client_, connections);
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

// A message to a peer is sent without waiting, so that none comes back.
void HostConnections::take(const HostServices::Delivery& delivery) {
  if (delivery.agent == agent_ && !delivery.has_timed_out) arrived_.push_back(delivery.packet);
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
  out.agent = agent_;
  out.qp = wire::general_services_qp.value;
  out.qkey = wire::general_services_qkey.value;
  out.lid = lid;
  out.bytes.assign(datagram.bytes.begin(), datagram.bytes.end());
  services_.send(now_(), host_, client_, std::move(out));
  has_sent_ = true;
}

// --- addresses ---

std::uint16_t HostConnections::lid_at(std::uint32_t host) const {
  return subnet_.node(host).port_info(host_port).lid;
}

// Another machine may report any LIDs of its hosts. Those of the hosts here are known.
std::optional<std::uint32_t> HostConnections::host_with(std::uint16_t lid) const {
  std::optional<std::uint32_t> elsewhere;
  for (std::uint32_t host = 0; host < subnet_.topology().adapters(); ++host) {
    if (!subnet_.node(host).has_lid(host_port, Lid(lid))) continue;
    if (!subnet_.is_elsewhere(host)) return host;
    if (!elsewhere) elsewhere = host;
  }
  return elsewhere;
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

Result<DeviceInfo> HostConnections::describe(const DeviceChoice& choice) {
  return device_of(choice.name, services_.describe(host_, {}));
}

// Libraries that look for the addresses of a device find those of both networks, and listen at one.
std::optional<SocketAddress> HostConnections::other_address(const SocketAddress& address) const {
  if (!address.gid().is_ipv4_mapped() || gid_of(address) != gid_at(host_)) return std::nullopt;
  SocketAddress other = address;
  const std::size_t at = address.family == AF_INET ? 1 : 13;  // the network's second byte
  const std::byte first{host_address_bytes(host_)[1]}, second{infiniband_address_bytes(host_)[1]};
  other.address[at] = address.address[at] == first ? second : first;
  return other;
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
    const std::size_t at = destination.family == AF_INET ? 0 : 12;
    // The host's address is that in the network of the destination.
    const bool is_infiniband =
        destination.address[at + 1] == std::byte{infiniband_address_bytes(host_)[1]};
    const auto own = is_infiniband ? infiniband_address_bytes(host_) : host_address_bytes(host_);
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

std::optional<ConnectionRoute> HostConnections::find_route(Asker asker, const DeviceInfo&,
                                                           const LocalAddress&, const Gid& remote) {
  const auto question = management::administration::path_question(gid_at(host_).bytes, remote.bytes,
                                                                  default_pkey.value);
  const bool is_asked =
      administration_.find_path(question.record, question.components,
                                [this, asker](int error, const wire::PathRecord& found) {
                                  if (error != 0)
                                    return service_.take_route(asker, Error{no_way, error});
                                  service_.take_route(asker, ConnectionRoute::of(found));
                                });
  has_sent_ = has_sent_ || is_asked;
  if (!is_asked) service_.take_route(asker, Error{no_manager, ENETUNREACH});
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
  const bool is_asked = administration_.join(
      record, components, [this, asker, group](int error, const wire::MemberRecord& joined) {
        if (error != 0) return service_.take_group(asker, group, Error{no_way, error});
        ConnectionGroup of;
        of.gid.bytes = joined.group_gid;
        of.lid = joined.lid;
        of.service_level = static_cast<std::uint8_t>(joined.sl_flow_and_hops >> 28);
        service_.take_group(asker, group, of);
      });
  has_sent_ = has_sent_ || is_asked;
  if (!is_asked) service_.take_group(asker, group, Error{no_manager, ENETUNREACH});
  return std::nullopt;
}

void HostConnections::leave(PortSpace space, const SocketAddress& group) {
  administration_.leave(group_gid(space, group).bytes);
  has_sent_ = true;
}

}  // namespace tulle::live

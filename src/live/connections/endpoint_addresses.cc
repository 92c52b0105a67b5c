#include "live/connections/endpoint_addresses.h"

#include <cerrno>
#include <cstring>

#include "rdma/wire/sa.h"

namespace tulle::live {
namespace {

bool is_known_family(const SocketAddress& address) {
  return address.family == AF_INET || address.family == AF_INET6 || address.is_gid();
}

}  // namespace

int EndpointAddresses::bind(const ProgramChannel& channel, Endpoint& endpoint,
                            const SocketAddress& address) {
  if (endpoint.state != State::idle) return EINVAL;
  if (!is_known_family(address)) return EAFNOSUPPORT;
  if (!address.is_wildcard() || address.is_gid()) {
    if (const int error = bind_to_device(channel, endpoint, address); error != 0) return error;
  }
  return resources_.bind(endpoint, address);
}

// A wildcard is an address of every device that it can belong to.
int EndpointAddresses::bind_to_device(const ProgramChannel& channel, Endpoint& endpoint,
                                      const SocketAddress& address) {
  if (!address.is_wildcard()) {
    if (const int error = network_.check_is_local(address); error != 0) return error;
  }
  auto device = network_.describe(channel.device);
  if (!device) return ENODEV;
  // Linux, too, knows GIDs as addresses only on InfiniBand (rdma_cap_af_ib).
  if (address.is_gid() && !device->infiniband) return ENODEV;
  if (address.is_wildcard()) return 0;
  const auto local = local_address_of(*device, address);
  if (!local) return ENODEV;
  use_device(endpoint, *device, *local);
  return 0;
}

// The kernel's routing knows the source address. No link
// address is resolved here, since the kernel's sockets do that.
int EndpointAddresses::resolve(const ProgramChannel& channel, Endpoint& endpoint,
                               const command::ResolveAddress& command) {
  const SocketAddress& destination = command.destination;
  if (!is_known_family(destination)) return EAFNOSUPPORT;
  if (!channels_.may_ask_for_event(channel)) return ENOBUFS;
  const bool may = endpoint.state == State::idle || endpoint.state == State::bound ||
                   endpoint.state == State::address_resolved;
  if (!may) return EINVAL;
  if (endpoint.state == State::idle) {
    SocketAddress own = command.source;
    if (own.family == 0) own.family = destination.family;
    if (own.family != destination.family) return EINVAL;
    if (const int error = bind(channel, endpoint, own); error != 0) return error;
  }
  if (endpoint.source.family != destination.family) return EINVAL;
  const std::uint16_t port = endpoint.source.port;
  SocketAddress own = endpoint.source;
  const auto fail = [&](int error) {
    channels_.tell(endpoint, event::AddressError{endpoint.id, -error});
    return 0;
  };
  SocketAddress target = destination;
  // A wildcard destination means this host, as in connect().
  if (target.is_wildcard()) {
    target.address[target.family == AF_INET ? 3 : 15] = std::byte{1};
    if (target.family == AF_INET) target.address[0] = std::byte{127};
  }
  if (const int error = network_.find_source(own, target); error != 0) return fail(error);
  auto device = network_.describe(channel.device);
  if (!device) return fail(ENODEV);
  const auto local = local_address_of(*device, own);
  if (!local) return fail(ENODEV);
  // An address may have RoCE v1 alone, whose frames are sent with the agent's rights
  // (AgentCore::open_channel).
  if (channel.owner.is_limited && local->is_roce_v1) return fail(EPERM);
  use_device(endpoint, *device, *local);
  const auto is_known = local_address_of(*device, target);
  const auto remote = network_.gid_of(target);
  if (!remote && !is_known) return fail(EHOSTUNREACH);
  // A loopback destination is the GID that the device uses for it.
  endpoint.remote = is_known && (is_loopback(target) || !remote) ? is_known->gid : *remote;
  if (is_loopback(target) && !is_loopback(own)) endpoint.remote = local->gid;
  endpoint.source = own;
  endpoint.source.port = port;
  endpoint.destination = target;
  endpoint.state = State::address_resolved;
  channels_.tell(endpoint,
                 event::AddressResolved{endpoint.id, status_of(endpoint), attributes_of(endpoint)});
  return 0;
}

int EndpointAddresses::resolve_route(const ProgramChannel& channel, Endpoint& endpoint) {
  if (endpoint.state != State::address_resolved) return EINVAL;
  auto device = network_.describe(channel.device);
  if (!device) return ENODEV;
  endpoint.state = State::resolving_route;
  const auto route = network_.find_route(endpoint.id, *device, endpoint.local, endpoint.remote);
  if (route) take_route(endpoint.id, *route);
  return 0;
}

// A program may know a path. All paths of RoCE are alike, so that the resolved one is kept there.
int EndpointAddresses::use_route(const ProgramChannel& channel, Endpoint& endpoint,
                                 std::span<const std::byte> path_data) {
  if (endpoint.state == State::route_resolved) return 0;
  if (endpoint.state != State::address_resolved) return EINVAL;
  auto device = network_.describe(channel.device);
  if (!device) return ENODEV;
  // struct ibv_path_data: flags, a reserved word, and the record.
  constexpr std::size_t record_offset = 8;
  wire::PathRecord record;
  if (!device->infiniband || path_data.size() < record_offset + sizeof(record)) {
    return resolve_route(channel, endpoint);
  }
  std::memcpy(&record, path_data.data() + record_offset, sizeof(record));
  endpoint.state = State::resolving_route;
  take_route(endpoint.id, ConnectionRoute::of(record));
  return 0;
}

void EndpointAddresses::take_route(EndpointId asker, Result<ConnectionRoute> found) {
  Endpoint* endpoint = endpoints_.find(asker);
  if (endpoint == nullptr || endpoint->state != State::resolving_route) return;
  if (!found) {
    endpoint->state = State::address_resolved;
    return channels_.tell(*endpoint, event::RouteError{asker, -found.error().error_number});
  }
  endpoint->route = *found;
  if (endpoint->ack_timeout != 0) {
    endpoint->route.packet_lifetime = static_cast<std::uint8_t>(endpoint->ack_timeout - 1);
  }
  endpoint->state = State::route_resolved;
  channels_.tell(*endpoint, event::RouteResolved{asker, status_of(*endpoint)});
}

std::optional<LocalAddress> EndpointAddresses::local_address_of(
    const DeviceInfo& device, const SocketAddress& address) const {
  return local_address(device, address, network_.gid_of(address).value_or(address.gid()));
}

}  // namespace tulle::live

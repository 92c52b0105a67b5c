#include "live/connections/endpoint_resources.h"

#include <cerrno>
#include <vector>

#include "rdma/wire/cm.h"

namespace tulle::live {
namespace {

// The most endpoints that a program has in one channel: half of the connections that the manager
// keeps.
constexpr std::size_t endpoints_max = 32'768;

std::uint64_t service_id_of(PortSpace space, std::uint16_t port) {
  return wire::cm::ip_service_id(static_cast<std::uint16_t>(space), port);
}

// Returns where requests for the endpoint come to. On InfiniBand they may come by a LID.
Gid address_of(const Endpoint& endpoint) {
  const bool has_address = endpoint.has_device && endpoint.local_lid == 0;
  return has_address ? endpoint.local.gid : management::cm::Manager::any_address;
}

}  // namespace

bool EndpointResources::may_create(const ProgramChannel& channel) const {
  return channel.endpoints.size() < endpoints_max && shares_.may_have_endpoint(channel.owner);
}

Endpoint& EndpointResources::create(ProgramChannel& channel, PortSpace space,
                                    ConnectionQpType qp_type) {
  Endpoint& endpoint = endpoints_.create(channel.number, space, qp_type);
  channel.endpoints.push_back(endpoint.id);
  shares_.add_endpoint(channel.owner);
  return endpoint;
}

void EndpointResources::destroy(Endpoint& endpoint, bool may_return) {
  ProgramChannel& channel = channels_.at(endpoint.channel);
  if (endpoint.connection != management::cm::ConnectionId{}) {
    manager_.release(now(), endpoint.connection);
    endpoints_.forget_connection(endpoint);
  }
  if (endpoint.listened_service != 0) {
    manager_.stop_listening(endpoint.listened_service);
    if (may_return) expect_return(endpoint);
  }
  if (endpoint.source.port != 0 && !endpoint.is_passive) {
    ports_.release(endpoint.space, endpoint.source.port, endpoint.id);
    shares_.remove_port(channel.owner);
  }
  shares_.remove_groups(channel.owner, endpoint.groups.size());
  shares_.remove_endpoint(channel.owner);
  for (const SocketAddress& group : endpoint.groups) network_.leave(endpoint.space, group);
  channels_.forget_request(endpoint);
  const EndpointId id = endpoint.id;
  // A channel that closes destroys its last endpoint first, so that many take no time to find.
  auto& others = channel.endpoints;
  if (others.back() == id) {
    others.pop_back();
  } else {
    std::erase(others, id);
  }
  endpoints_.erase(id);
  for (const EndpointId orphan : channels_.drop_waiting(channel, id)) {
    if (Endpoint* child = endpoints_.find(orphan)) destroy(*child, false);
  }
}

int EndpointResources::bind(Endpoint& endpoint, SocketAddress address) {
  const ChannelOwner& owner = channels_.at(endpoint.channel).owner;
  if (!shares_.may_have_port(owner)) {
    endpoint.has_device = false;
    return EADDRNOTAVAIL;
  }
  PortTable::Binding binding;
  binding.endpoint = endpoint.id;
  binding.address = address;
  binding.may_share = endpoint.may_share;
  binding.is_ipv6_only = endpoint.is_ipv6_only;
  const int error = ports_.bind(endpoint.space, binding, address,
                                static_cast<std::uint32_t>(random_.next() >> 32));
  if (error != 0) {
    endpoint.has_device = false;
    return error;
  }
  shares_.add_port(owner);
  endpoint.source = address;
  endpoint.state = Endpoint::State::bound;
  return 0;
}

int EndpointResources::listen(Endpoint& endpoint) {
  const int error = ports_.listen(endpoint.space, endpoint.source.port, endpoint.id);
  if (error != 0) return error;
  endpoint.listened_service = service_id_of(endpoint.space, endpoint.source.port);
  manager_.listen(now(), endpoint.listened_service, address_of(endpoint));
  endpoint.state = Endpoint::State::listening;
  return 0;
}

// The listener may return in either port space: perftest uses a connection in TCP's space to agree
// on a test in UDP's, at the same port.
void EndpointResources::expect_return(const Endpoint& endpoint) {
  expect_listener(endpoint, PortSpace::tcp);
  expect_listener(endpoint, PortSpace::udp);
}

void EndpointResources::expect_listener(const Endpoint& endpoint, PortSpace space) {
  manager_.expect_listener(now(), service_id_of(space, endpoint.source.port),
                           channels_.at(endpoint.channel).owner.user, address_of(endpoint));
}

Endpoint* EndpointResources::listener_at(PortSpace space, const SocketAddress& address) {
  return endpoints_.find(ports_.listener(space, address));
}

}  // namespace tulle::live

// Turns the connection manager's events into librdmacm's.

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "live/connections/connection_service.h"

namespace tulle::live {
namespace {

namespace cm = management::cm;
using Kind = cm::Event::Kind;

struct Asked {
  SocketAddress source;
  SocketAddress destination;
};

SocketAddress hello_address(unsigned version, const std::array<std::byte, 16>& bytes,
                            std::uint16_t port) {
  SocketAddress address;
  address.family = version == 4 ? AF_INET : AF_INET6;
  address.port = port;
  if (version == 4) {
    std::copy_n(bytes.begin() + 12, 4, address.address.begin());
  } else {
    address.address = bytes;
  }
  return address;
}

// Reads the two addresses of a request. Returns false if they are not given as in IBTA A11.
bool read_hello(const cm::Request& request, Asked& asked) {
  wire::cm::IpHello hello;
  if (request.private_data.size < sizeof(hello)) return false;
  std::memcpy(&hello, request.private_data.bytes.data(), sizeof(hello));
  const unsigned version = wire::cm::IpHello::IpVersion::of(hello.ip_version);
  const bool is_known =
      wire::cm::IpHello::MajorVersion::of(hello.version) == 0 && (version == 4 || version == 6);
  if (!is_known) return false;
  const auto port = static_cast<std::uint16_t>(request.service_id & 0xFFFF);
  asked.source = hello_address(version, hello.source, hello.source_port);
  asked.destination = hello_address(version, hello.destination, port);
  return true;
}

ConnectionQpType type_of(cm::Service service) {
  if (service == cm::Service::uc) return ConnectionQpType::uc;
  return service == cm::Service::xrc ? ConnectionQpType::xrc_receive : ConnectionQpType::rc;
}

std::vector<std::byte> vector_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

// Each side has its own view of READs and atomics: one side must serve what the other has under
// way.
ConnectionParameters parameters_of(const cm::Request& request, bool has_hello) {
  ConnectionParameters parameters;
  parameters.private_data =
      vector_of(request.private_data.span().subspan(has_hello ? sizeof(wire::cm::IpHello) : 0));
  parameters.responder_resources = request.initiator_depth;
  parameters.initiator_depth = request.responder_resources;
  parameters.flow_control = request.flow_control;
  parameters.retry_count = request.retry_count;
  parameters.rnr_retry_count = request.rnr_retry_count;
  parameters.srq = request.srq;
  parameters.qp_number = request.qp.value;
  return parameters;
}

ConnectionParameters parameters_of(const cm::Reply& reply) {
  ConnectionParameters parameters;
  parameters.private_data = vector_of(reply.private_data.span());
  parameters.responder_resources = reply.initiator_depth;
  parameters.initiator_depth = reply.responder_resources;
  parameters.flow_control = reply.flow_control;
  parameters.rnr_retry_count = reply.rnr_retry_count;
  parameters.srq = reply.srq;
  parameters.qp_number = reply.qp.value;
  return parameters;
}

// Returns the host's address of the connection that a request asks for.
std::optional<LocalAddress> address_of_request(const cm::Request& request,
                                               const DeviceInfo& device) {
  SocketAddress own;
  own.family = AF_INET6;
  std::memcpy(own.address.data(), request.route.local.bytes.data(), own.address.size());
  auto local = local_address(device, own, request.route.local, request.route.is_roce_v1);
  // The connection's packets go the way that the request came.
  if (local && local->is_roce_v1 != request.route.is_roce_v1) local.reset();
  return local;
}

}  // namespace

// Returns true if the addresses that the request names are those by which it came. Otherwise a
// program of another host could name a listener that is bound to the loopback address. Programs of
// this host do so rightly: their requests travel between addresses of the device.
bool ConnectionService::is_as_it_came(const SocketAddress& source, const SocketAddress& destination,
                                      const cm::Route& route, const DeviceInfo& device) const {
  const bool is_of_this_host = std::ranges::any_of(
      device.gids, [&](const auto& entry) { return entry.gid == route.remote; });
  const auto agrees = [&](const SocketAddress& named, const Gid& came) {
    return network_.gid_of(named) == came || (is_of_this_host && is_loopback(named));
  };
  return agrees(destination, route.local) && agrees(source, route.remote);
}

void ConnectionService::handle_events() {
  while (const auto event = manager_.pull_event()) handle(*event);
}

void ConnectionService::handle(const cm::Event& event) {
  if (event.kind == Kind::request || event.kind == Kind::service_question) {
    return handle_request(event);
  }
  const auto found = by_connection_.find(event.id.value);
  if (found == by_connection_.end()) return;
  Endpoint& endpoint = *find(found->second);
  switch (event.kind) {
    case Kind::reply:
      return handle_reply(endpoint, event);
    case Kind::established:
      endpoint.state = State::connected;
      return tell(endpoint, event::Established{endpoint.id});
    case Kind::rejected:
      forget_connection(endpoint);
      endpoint.state = State::closed;
      return tell(endpoint, event::Rejected{endpoint.id, static_cast<std::int32_t>(event.reason),
                                            vector_of(event.private_data.span())});
    case Kind::unreachable:
    case Kind::service_unreachable:
      forget_connection(endpoint);
      endpoint.state = State::closed;
      return tell(endpoint, event::Unreachable{endpoint.id, -ETIMEDOUT, {}});
    case Kind::disconnect_request:
      endpoint.state = State::disconnected;
      return tell(endpoint, event::Disconnected{endpoint.id, 0});
    case Kind::disconnected:
      endpoint.state = State::disconnected;
      return tell(endpoint, event::Disconnected{endpoint.id, event.timed_out ? -ETIMEDOUT : 0});
    case Kind::time_wait_over:
      forget_connection(endpoint);
      endpoint.state = State::closed;
      return tell(endpoint, event::TimewaitExit{endpoint.id});
    case Kind::service_answer:
      return handle_service_answer(endpoint, event);
    case Kind::request:
    case Kind::service_question:
      return;
  }
}

ConnectionService::Endpoint* ConnectionService::listener_at(PortSpace space,
                                                            const SocketAddress& address) {
  if (Endpoint* listener = find(ports_.listener(space, address))) return listener;
  const auto other = network_.other_address(address);
  return other ? find(ports_.listener(space, *other)) : nullptr;
}

// Handles a REQ or SIDR_REQ to a service with a listener, which may listen at another address. Who
// listens at a GID is asked without addresses of IP, and takes requests that have some as well:
// they are private data then, as in Linux (drivers/infiniband/core/cma.c, cma_match_private_data).
void ConnectionService::handle_request(const cm::Event& event) {
  const bool is_question = event.kind == Kind::service_question;
  const cm::Request& request = event.request;
  const auto space = static_cast<PortSpace>(request.service_id >> 16 & 0xFFFF);
  Asked asked;
  bool is_known = read_hello(request, asked);
  Endpoint* listener = is_known ? listener_at(space, asked.destination) : nullptr;
  if (listener == nullptr) {
    const auto port = static_cast<std::uint16_t>(request.service_id & 0xFFFF);
    const SocketAddress by_gid = SocketAddress::of(request.route.local, port);
    listener = find(ports_.listener(space, by_gid));
    is_known |= listener != nullptr;
    if (listener != nullptr) asked = {SocketAddress::of(request.route.remote, 0), by_gid};
  }
  const auto refuse = [&](wire::cm::Reason reason, wire::cm::ServiceStatus status) {
    if (!is_question) {
      manager_.reject(now(), event.id, reason, {});
      return;
    }
    cm::ServiceAnswer answer;
    answer.status = status;
    manager_.answer_service(now(), event.id, answer);
  };
  using wire::cm::Reason;
  using wire::cm::ServiceStatus;
  if (!is_known) return refuse(Reason::unsupported, ServiceStatus::unsupported_version);
  if (listener == nullptr) {
    return refuse(Reason::invalid_service_id, ServiceStatus::unsupported_service);
  }
  Channel& channel = channels_.at(listener->channel);
  auto device = describe(channel);
  std::optional<LocalAddress> local;
  if (device && is_as_it_came(asked.source, asked.destination, request.route, *device)) {
    local = address_of_request(request, *device);
  }
  // Answers by RoCE v1 are sent with the agent's rights, as in AgentCore::open_channel.
  const bool is_forbidden = channel.owner.is_limited && request.route.is_roce_v1;
  if (!local || is_forbidden) {
    return refuse(Reason::invalid_service_id, ServiceStatus::unsupported_service);
  }
  if (!has_room(*listener) || !may_have_more(channel)) {
    // Linux does not answer a REQ that finds the backlog full, so that it comes again after a while
    // (ucma.c, and ENOMEM in cm.c). It answers a question with a rejection.
    if (!is_question) manager_.pass_over(event.id);
    return is_question ? refuse({}, ServiceStatus::rejected) : void();
  }
  ++listener->requests;
  const EndpointId listener_id = listener->id;
  const std::uint8_t own_ack_timeout = listener->ack_timeout;
  Endpoint& endpoint =
      create(channel, space, is_question ? ConnectionQpType::ud : type_of(request.service));
  endpoint.listener = listener_id;
  endpoint.ack_timeout = own_ack_timeout;
  use_device(endpoint, *device, *local);
  endpoint.source = asked.destination;
  endpoint.destination = asked.source;
  endpoint.connection = event.id;
  by_connection_[event.id.value] = endpoint.id;
  take_request(endpoint, event, device->infiniband.has_value());
  tell(endpoint, event::ConnectRequest{endpoint.id, listener_id, is_question,
                                       parameters_of(request, !endpoint.source.is_gid()),
                                       status_of(endpoint), attributes_of(endpoint)});
}

void ConnectionService::take_request(Endpoint& endpoint, const cm::Event& event, bool infiniband) {
  const bool is_question = event.kind == Kind::service_question;
  const cm::Request& request = event.request;
  endpoint.is_passive = true;
  endpoint.state = State::requested;
  endpoint.traffic_class = request.route.traffic_class;
  endpoint.remote = request.route.remote;
  endpoint.remote_qp = request.qp;
  endpoint.remote_psn = request.starting_psn;
  endpoint.route.path_mtu = request.path_mtu;
  endpoint.route.packet_lifetime = request.packet_lifetime;
  if (infiniband) {
    endpoint.route.remote_lid = is_question ? request.route.remote_lid : request.lids.remote;
    endpoint.route.service_level = request.lids.service_level;
  }
  endpoint.responder_resources = request.initiator_depth;
  endpoint.initiator_depth = request.responder_resources;
  endpoint.retry_count = request.retry_count;
  endpoint.rnr_retry = request.rnr_retry_count;
}

void ConnectionService::handle_reply(Endpoint& endpoint, const cm::Event& event) {
  const cm::Reply& reply = event.reply;
  endpoint.state = State::answered;
  endpoint.remote_qp = reply.qp;
  endpoint.remote_psn = reply.starting_psn;
  endpoint.target_ack_delay = reply.target_ack_delay;
  endpoint.responder_resources = reply.initiator_depth;
  endpoint.initiator_depth = reply.responder_resources;
  endpoint.rnr_retry = reply.rnr_retry_count;
  tell(endpoint,
       event::ConnectResponse{endpoint.id, parameters_of(reply), attributes_of(endpoint)});
}

void ConnectionService::handle_service_answer(Endpoint& endpoint, const cm::Event& event) {
  forget_connection(endpoint);
  const cm::ServiceAnswer& answer = event.answer;
  const std::vector<std::byte> private_data = vector_of(answer.private_data.span());
  if (answer.status != wire::cm::ServiceStatus::valid) {
    endpoint.state = State::closed;
    const auto status = static_cast<std::int32_t>(answer.status);
    return tell(endpoint, event::Unreachable{endpoint.id, status, private_data});
  }
  endpoint.state = State::connected;
  endpoint.remote_qp = answer.qp;
  tell(endpoint, event::DatagramEstablished{endpoint.id, answer.qp.value, answer.qkey.value,
                                            path_of(endpoint), private_data});
}

// Counts the backlog as Linux does: the requests that the program has not taken. The last report of
// how many it has taken may be out of date, so the requests are counted again when they seem too
// many.
bool ConnectionService::has_room(Endpoint& listener) {
  if (listener.requests < listener.requests_max) return true;
  Channel& channel = channels_.at(listener.channel);
  int unread_bytes = 0;
  if (ioctl(channel.events.get(), SIOCOUTQ, &unread_bytes) == 0 && unread_bytes == 0) {
    note_taken(channel, channel.events_sent);
  }
  std::size_t requests = listener.requests_sent;
  for (const ConnectionEvent& event : channel.waiting) {
    requests += counted_with(event) == listener.id && endpoint_of(event) != listener.id;
  }
  listener.requests = static_cast<std::uint32_t>(requests);
  return listener.requests < listener.requests_max;
}

void ConnectionService::forget_connection(Endpoint& endpoint) {
  by_connection_.erase(endpoint.connection.value);
  endpoint.connection = {};
}

}  // namespace tulle::live

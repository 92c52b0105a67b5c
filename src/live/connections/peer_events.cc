#include "live/connections/peer_events.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "rdma/wire/cm.h"

namespace tulle::live {
namespace {

namespace cm = management::cm;
using Kind = cm::Event::Kind;

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

// Gives a passive endpoint what the peer's request says.
void take_request(Endpoint& endpoint, const cm::Event& event, bool infiniband) {
  const bool is_question = event.kind == Kind::service_question;
  const cm::Request& request = event.request;
  endpoint.is_passive = true;
  endpoint.state = Endpoint::State::requested;
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

}  // namespace

void PeerEvents::handle(const cm::Event& event) {
  if (event.kind == Kind::request || event.kind == Kind::service_question) {
    return handle_request(event);
  }
  Endpoint* const found = endpoints_.find(event.id);
  if (found == nullptr) return;
  Endpoint& endpoint = *found;
  switch (event.kind) {
    case Kind::reply:
      return handle_reply(endpoint, event);
    case Kind::established:
      endpoint.state = State::connected;
      return channels_.tell(endpoint, event::Established{endpoint.id});
    case Kind::rejected:
      endpoints_.forget_connection(endpoint);
      endpoint.state = State::closed;
      return channels_.tell(endpoint,
                            event::Rejected{endpoint.id, static_cast<std::int32_t>(event.reason),
                                            vector_of(event.private_data.span())});
    case Kind::unreachable:
    case Kind::service_unreachable:
      endpoints_.forget_connection(endpoint);
      endpoint.state = State::closed;
      return channels_.tell(endpoint, event::Unreachable{endpoint.id, -ETIMEDOUT, {}});
    case Kind::disconnect_request:
      endpoint.state = State::disconnected;
      return channels_.tell(endpoint, event::Disconnected{endpoint.id, 0});
    case Kind::disconnected:
      endpoint.state = State::disconnected;
      return channels_.tell(endpoint,
                            event::Disconnected{endpoint.id, event.timed_out ? -ETIMEDOUT : 0});
    case Kind::time_wait_over:
      endpoints_.forget_connection(endpoint);
      endpoint.state = State::closed;
      return channels_.tell(endpoint, event::TimewaitExit{endpoint.id});
    case Kind::service_answer:
      return handle_service_answer(endpoint, event);
    case Kind::request:
    case Kind::service_question:
      return;
  }
}

Endpoint* PeerEvents::listener_at(PortSpace space, const SocketAddress& address) {
  if (Endpoint* listener = resources_.listener_at(space, address)) return listener;
  const auto other = network_.other_address(address);
  return other ? resources_.listener_at(space, *other) : nullptr;
}

// Who listens at a GID is asked without addresses of IP, and takes requests that have some as well:
// they are private data then, as in Linux (drivers/infiniband/core/cma.c, cma_match_private_data).
PeerEvents::Asked PeerEvents::asked_by(const cm::Request& request) {
  const auto space = static_cast<PortSpace>(request.service_id >> 16 & 0xFFFF);
  Asked asked;
  asked.addresses = read_addresses(request);
  if (asked.addresses) asked.listener = listener_at(space, asked.addresses->destination);
  if (asked.listener != nullptr) return asked;
  const auto port = static_cast<std::uint16_t>(request.service_id & 0xFFFF);
  const SocketAddress by_gid = SocketAddress::of(request.route.local, port);
  asked.listener = resources_.listener_at(space, by_gid);
  if (asked.listener != nullptr) {
    asked.addresses = {SocketAddress::of(request.route.remote, 0), by_gid};
  }
  return asked;
}

// Returns true if the addresses that the request names are those by which it came. Otherwise a
// program of another host could name a listener that is bound to the loopback address. Programs of
// this host do so rightly: their requests travel between addresses of the device.
bool PeerEvents::is_as_it_came(const RequestAddresses& named, const cm::Route& route,
                               const DeviceInfo& device) const {
  const bool is_of_this_host = std::ranges::any_of(
      device.gids, [&](const auto& entry) { return entry.gid == route.remote; });
  const auto agrees = [&](const SocketAddress& address, const Gid& came) {
    return network_.gid_of(address) == came || (is_of_this_host && is_loopback(address));
  };
  return agrees(named.destination, route.local) && agrees(named.source, route.remote);
}

void PeerEvents::refuse(const cm::Event& event, wire::cm::Reason reason,
                        wire::cm::ServiceStatus status) {
  if (event.kind != Kind::service_question) {
    manager_.reject(now(), event.id, reason, {});
    return;
  }
  cm::ServiceAnswer answer;
  answer.status = status;
  manager_.answer_service(now(), event.id, answer);
}

// Handles a REQ or SIDR_REQ to a service with a listener, which may listen at another address.
void PeerEvents::handle_request(const cm::Event& event) {
  using wire::cm::Reason;
  using wire::cm::ServiceStatus;
  const cm::Request& request = event.request;
  const auto& [addresses, listener] = asked_by(request);
  if (!addresses) return refuse(event, Reason::unsupported, ServiceStatus::unsupported_version);
  if (listener == nullptr) {
    return refuse(event, Reason::invalid_service_id, ServiceStatus::unsupported_service);
  }
  ProgramChannel& channel = channels_.at(listener->channel);
  auto device = network_.describe(channel.device);
  std::optional<LocalAddress> local;
  if (device && is_as_it_came(*addresses, request.route, *device)) {
    local = address_of_request(request, *device);
  }
  // Answers by RoCE v1 are sent with the agent's rights, as in AgentCore::open_channel.
  const bool is_forbidden = channel.owner.is_limited && request.route.is_roce_v1;
  if (!local || is_forbidden) {
    return refuse(event, Reason::invalid_service_id, ServiceStatus::unsupported_service);
  }
  if (!has_room(*listener) || !resources_.may_create(channel)) {
    // Linux does not answer a REQ that finds the backlog full, so that it comes again after a while
    // (ucma.c, and ENOMEM in cm.c). It answers a question with a rejection.
    const bool is_question = event.kind == Kind::service_question;
    if (!is_question) manager_.pass_over(event.id);
    return is_question ? refuse(event, {}, ServiceStatus::rejected) : void();
  }
  make_endpoint(event, *listener, *addresses, *device, *local);
}

// Makes the endpoint that a request asks for, and tells the listener's program.
void PeerEvents::make_endpoint(const cm::Event& event, Endpoint& listener,
                               const RequestAddresses& addresses, const DeviceInfo& device,
                               const LocalAddress& local) {
  const bool is_question = event.kind == Kind::service_question;
  const cm::Request& request = event.request;
  ++listener.requests;
  Endpoint& endpoint =
      resources_.create(channels_.at(listener.channel), listener.space,
                        is_question ? ConnectionQpType::ud : type_of(request.service));
  endpoint.listener = listener.id;
  endpoint.ack_timeout = listener.ack_timeout;
  use_device(endpoint, device, local);
  endpoint.source = addresses.destination;
  endpoint.destination = addresses.source;
  endpoints_.set_connection(endpoint, event.id);
  take_request(endpoint, event, device.infiniband.has_value());
  channels_.tell(endpoint, event::ConnectRequest{endpoint.id, listener.id, is_question,
                                                 parameters_of(request, !endpoint.source.is_gid()),
                                                 status_of(endpoint), attributes_of(endpoint)});
}

void PeerEvents::handle_reply(Endpoint& endpoint, const cm::Event& event) {
  const cm::Reply& reply = event.reply;
  endpoint.state = State::answered;
  endpoint.remote_qp = reply.qp;
  endpoint.remote_psn = reply.starting_psn;
  endpoint.target_ack_delay = reply.target_ack_delay;
  endpoint.responder_resources = reply.initiator_depth;
  endpoint.initiator_depth = reply.responder_resources;
  endpoint.rnr_retry = reply.rnr_retry_count;
  channels_.tell(
      endpoint, event::ConnectResponse{endpoint.id, parameters_of(reply), attributes_of(endpoint)});
}

void PeerEvents::handle_service_answer(Endpoint& endpoint, const cm::Event& event) {
  endpoints_.forget_connection(endpoint);
  const cm::ServiceAnswer& answer = event.answer;
  const std::vector<std::byte> private_data = vector_of(answer.private_data.span());
  if (answer.status != wire::cm::ServiceStatus::valid) {
    endpoint.state = State::closed;
    const auto status = static_cast<std::int32_t>(answer.status);
    return channels_.tell(endpoint, event::Unreachable{endpoint.id, status, private_data});
  }
  endpoint.state = State::connected;
  endpoint.remote_qp = answer.qp;
  channels_.tell(endpoint,
                 event::DatagramEstablished{endpoint.id, answer.qp.value, answer.qkey.value,
                                            path_of(endpoint), private_data});
}

// Counts the backlog as Linux does: the requests that the program has not taken. The last report of
// how many it has taken may be out of date, so the requests are counted again when they seem too
// many.
bool PeerEvents::has_room(Endpoint& listener) {
  if (listener.requests < listener.requests_max) return true;
  listener.requests = channels_.untaken_requests(listener);
  return listener.requests < listener.requests_max;
}

}  // namespace tulle::live

#include "live/connections/peer_messages.h"

#include <algorithm>
#include <cerrno>

#include "live/connections/request_addresses.h"
#include "rdma/wire/cm.h"

namespace tulle::live {
namespace {

namespace cm = management::cm;

// The delay that a process that is not running may add to an acknowledgement, as the device reports
// it.
constexpr std::uint8_t local_ack_delay = 15;

cm::Service service_of(ConnectionQpType type) {
  if (type == ConnectionQpType::uc) return cm::Service::uc;
  const bool is_xrc = type == ConnectionQpType::xrc_send || type == ConnectionQpType::xrc_receive;
  return is_xrc ? cm::Service::xrc : cm::Service::rc;
}

}  // namespace

int PeerMessages::connect(Endpoint& endpoint, const command::Connect& command) {
  const ConnectionParameters& parameters = command.parameters;
  if (endpoint.state != State::route_resolved) return EINVAL;
  if (is_datagram(endpoint.space)) return ask_service(endpoint, parameters);
  constexpr std::size_t data_max = sizeof(wire::cm::Request::private_data);
  if (parameters.private_data.size() > data_max - hello_bytes(endpoint.destination)) return EINVAL;
  endpoint.qp_type = command.qp_type;
  endpoint.responder_resources = parameters.responder_resources;
  endpoint.initiator_depth = parameters.initiator_depth;
  endpoint.retry_count = std::min<std::uint8_t>(parameters.retry_count, 7);
  endpoint.rnr_retry = std::min<std::uint8_t>(parameters.rnr_retry_count, 7);

  cm::Request request;
  request.route = route_of(endpoint);
  request.service_id = wire::cm::ip_service_id(static_cast<std::uint16_t>(endpoint.space),
                                               endpoint.destination.port);
  request.service = service_of(command.qp_type);
  request.qp = QpNumber{parameters.qp_number & qp_number_max};
  request.starting_psn = endpoint.psn;
  request.responder_resources = parameters.responder_resources;
  request.initiator_depth = parameters.initiator_depth;
  request.flow_control = parameters.flow_control != 0;
  request.srq = parameters.srq != 0;
  request.retry_count = endpoint.retry_count;
  request.rnr_retry_count = endpoint.rnr_retry;
  request.path_mtu = endpoint.route.path_mtu;
  request.packet_lifetime = endpoint.route.packet_lifetime;
  request.ack_timeout = ack_timeout_for(endpoint.route.packet_lifetime, 0);
  const bool has_lids = endpoint.route.remote_lid != 0;
  request.hop_limit = has_lids ? 0 : roce_hop_limit;
  if (has_lids) {
    request.lids = {endpoint.local_lid, endpoint.route.remote_lid, endpoint.route.service_level};
  }
  request.private_data =
      with_hello({endpoint.source, endpoint.destination}, parameters.private_data);
  if (const int error = begin_connecting(endpoint, manager_.connect(now(), request)); error != 0) {
    return error;
  }
  endpoints_.set_queue_pair(endpoint, request.qp);
  return 0;
}

// Returns ENOMEM if the manager has too many connections.
int PeerMessages::begin_connecting(Endpoint& endpoint, cm::ConnectionId connection) {
  if (connection == cm::ConnectionId{}) return ENOMEM;
  endpoints_.set_connection(endpoint, connection);
  endpoint.state = State::connecting;
  return 0;
}

int PeerMessages::ask_service(Endpoint& endpoint, const ConnectionParameters& parameters) {
  constexpr std::size_t data_max = sizeof(wire::cm::ServiceIdRequest::private_data);
  if (parameters.private_data.size() > data_max - hello_bytes(endpoint.destination)) return EINVAL;
  cm::ServiceQuestion question;
  question.route = route_of(endpoint);
  question.service_id = wire::cm::ip_service_id(static_cast<std::uint16_t>(endpoint.space),
                                                endpoint.destination.port);
  question.private_data =
      with_hello({endpoint.source, endpoint.destination}, parameters.private_data);
  return begin_connecting(endpoint, manager_.ask_service(now(), question));
}

int PeerMessages::accept(Endpoint& endpoint, const command::Accept& command) {
  const ConnectionParameters& parameters = command.parameters;
  if (endpoint.state != State::requested) return EINVAL;
  if (is_datagram(endpoint.space)) return answer_service(endpoint, parameters);
  if (parameters.private_data.size() > sizeof(wire::cm::Reply::private_data)) return EINVAL;
  endpoint.qp_type = command.qp_type;
  endpoint.responder_resources = parameters.responder_resources;
  endpoint.initiator_depth = parameters.initiator_depth;
  cm::Reply reply;
  reply.qp = QpNumber{parameters.qp_number & qp_number_max};
  reply.starting_psn = endpoint.psn;
  reply.responder_resources = parameters.responder_resources;
  reply.initiator_depth = parameters.initiator_depth;
  reply.flow_control = parameters.flow_control != 0;
  reply.srq = parameters.srq != 0;
  reply.rnr_retry_count = std::min<std::uint8_t>(parameters.rnr_retry_count, 7);
  reply.target_ack_delay = local_ack_delay;
  reply.private_data = cm::PrivateData(parameters.private_data);
  if (!manager_.accept(now(), endpoint.connection, reply)) return EINVAL;
  endpoints_.set_queue_pair(endpoint, reply.qp);
  endpoint.state = State::answered;
  return 0;
}

int PeerMessages::answer_service(Endpoint& endpoint, const ConnectionParameters& parameters) {
  if (parameters.private_data.size() > sizeof(wire::cm::ServiceIdReply::private_data)) {
    return EINVAL;
  }
  endpoint.qkey = parameters.qkey != 0 ? parameters.qkey : Endpoint::default_qkey;
  cm::ServiceAnswer answer;
  answer.status = wire::cm::ServiceStatus::valid;
  answer.qp = QpNumber{parameters.qp_number & qp_number_max};
  answer.qkey = Qkey{endpoint.qkey};
  answer.private_data = cm::PrivateData(parameters.private_data);
  if (!manager_.answer_service(now(), endpoint.connection, answer)) return EINVAL;
  endpoints_.forget_connection(endpoint);
  endpoint.state = State::connected;
  return 0;
}

int PeerMessages::establish(Endpoint& endpoint) {
  if (endpoint.state != State::answered || endpoint.is_passive) return EINVAL;
  if (!manager_.establish(now(), endpoint.connection, {})) return EINVAL;
  endpoint.state = State::connected;
  return 0;
}

int PeerMessages::reject(Endpoint& endpoint, const command::Reject& command) {
  const std::vector<std::byte>& private_data = command.private_data;
  const bool is_answer = endpoint.state == State::answered && !endpoint.is_passive;
  if (endpoint.state != State::requested && !is_answer) return EINVAL;
  bool is_done;
  if (is_datagram(endpoint.space)) {
    if (private_data.size() > sizeof(wire::cm::ServiceIdReply::private_data)) return EINVAL;
    cm::ServiceAnswer answer;
    answer.status = wire::cm::ServiceStatus::rejected;
    answer.private_data = cm::PrivateData(private_data);
    is_done = manager_.answer_service(now(), endpoint.connection, answer);
  } else {
    if (private_data.size() > sizeof(wire::cm::Reject::private_data)) return EINVAL;
    const auto code = command.reason == 0 ? wire::cm::Reason::consumer
                                          : static_cast<wire::cm::Reason>(command.reason);
    is_done = manager_.reject(now(), endpoint.connection, code, private_data);
  }
  if (!is_done) return EINVAL;
  endpoints_.forget_connection(endpoint);
  endpoint.state = State::closed;
  return 0;
}

int PeerMessages::notify_established(Endpoint& endpoint) {
  return manager_.notify_established(now(), endpoint.connection) ? 0 : EINVAL;
}

int PeerMessages::disconnect(Endpoint& endpoint) {
  if (is_datagram(endpoint.space)) return EINVAL;
  if (manager_.disconnect(now(), endpoint.connection, {})) return 0;
  // The connection is disconnecting already, or closed: programs on both sides usually disconnect.
  return endpoint.state == State::disconnected || endpoint.state == State::closed ||
                 endpoint.state == State::connected
             ? 0
             : EINVAL;
}

void PeerMessages::end_connections_of(QpNumbers gone) {
  for (const EndpointId id : endpoints_.with_queue_pairs(gone)) {
    Endpoint& endpoint = *endpoints_.find(id);
    endpoints_.set_queue_pair(endpoint, QpNumber{});
    if (endpoint.connection == cm::ConnectionId{}) continue;
    manager_.release(now(), endpoint.connection);
    endpoints_.forget_connection(endpoint);
    endpoint.state = State::closed;
  }
}

}  // namespace tulle::live

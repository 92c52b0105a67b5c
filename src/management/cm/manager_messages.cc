// Handles each message of the connection manager.

#include <algorithm>
#include <cstring>

#include "management/cm/manager.h"

namespace tulle::management::cm {
namespace {

using wire::cm::Reason;
using wire::cm::Subject;

// Limits of the peer's response timeout. A shorter one would cause a flood of messages, and a
// longer one would keep records too long.
constexpr std::uint8_t response_timeout_min = 8;   // 1 ms
constexpr std::uint8_t response_timeout_max = 24;  // 69 s

Request request_of(const wire::cm::Request& message, const Route& route) {
  using Message = wire::cm::Request;
  Request request;
  request.route = route;
  request.service_id = message.service_id;
  switch (Message::ServiceType::of(message.service_type)) {
    case Message::service_rc:
      request.service = Service::rc;
      break;
    case Message::service_uc:
      request.service = Service::uc;
      break;
    default:
      request.service = Service::xrc;
      break;
  }
  request.qp = QpNumber{message.local_qp};
  request.starting_psn = Psn{message.starting_psn};
  request.responder_resources = message.responder_resources;
  request.initiator_depth = message.initiator_depth;
  request.flow_control = Message::FlowControl::of(message.service_type) != 0;
  request.srq = Message::Srq::of(message.max_retries) != 0;
  request.retry_count = Message::RetryCount::of(message.retry_count);
  request.rnr_retry_count = Message::RnrRetryCount::of(message.mtu);
  request.pkey = Pkey{message.pkey};
  request.path_mtu = Message::PathMtu::of(message.mtu);
  request.ack_timeout = wire::cm::Path::AckTimeout::of(message.primary.ack_timeout);
  request.packet_lifetime =
      static_cast<std::uint8_t>(request.ack_timeout == 0 ? 0 : request.ack_timeout - 1);
  request.hop_limit = message.primary.hop_limit;
  request.lids = {message.primary.remote_lid, message.primary.local_lid,
                  wire::cm::Path::ServiceLevel::of(message.primary.service_level)};
  request.flow_label = message.primary.flow_label_and_rate >> wire::cm::Path::flow_label_shift;
  request.private_data = PrivateData(message.private_data);
  return request;
}

Reply reply_of(const wire::cm::Reply& message) {
  using Message = wire::cm::Reply;
  Reply reply;
  reply.qp = QpNumber{message.local_qp};
  reply.starting_psn = Psn{message.starting_psn};
  reply.responder_resources = message.responder_resources;
  reply.initiator_depth = message.initiator_depth;
  reply.flow_control = Message::FlowControl::of(message.ack_delay) != 0;
  reply.target_ack_delay = Message::TargetAckDelay::of(message.ack_delay);
  reply.srq = Message::Srq::of(message.rnr_retry_count) != 0;
  reply.rnr_retry_count = Message::RnrRetryCount::of(message.rnr_retry_count);
  reply.private_data = PrivateData(message.private_data);
  return reply;
}

}  // namespace

bool Manager::handle(Time now, const Route& route, std::span<const std::byte> payload) {
  if (payload.size() < sizeof(wire::MadHeader)) {
    ++counters_.malformed;
    return false;
  }
  std::span<const std::byte> rest = payload;
  const auto header = wire::take<wire::MadHeader>(rest);
  if (header.management_class != wire::cm::management_class) return false;
  ++counters_.received;
  const bool is_well_formed = header.base_version == wire::MadHeader::current_base_version &&
                              header.class_version == wire::cm::class_version &&
                              header.method == wire::cm::method_send &&
                              rest.size() == wire::cm::message_bytes;
  if (!is_well_formed) {
    ++counters_.malformed;
    return true;
  }
  dispatch({now, route, header.transaction_id, payload}, header.attribute_id, rest);
  return true;
}

void Manager::dispatch(const Received& received, std::uint16_t attribute,
                       std::span<const std::byte> rest) {
  using wire::cm::Attribute;
  switch (static_cast<Attribute>(attribute)) {
    case Attribute::request:
      handle(received, wire::take<wire::cm::Request>(rest));
      break;
    case Attribute::message_receipt_acknowledgement:
      handle(received, wire::take<wire::cm::MessageReceiptAcknowledgement>(rest));
      break;
    case Attribute::reject:
      handle(received, wire::take<wire::cm::Reject>(rest));
      break;
    case Attribute::reply:
      handle(received, wire::take<wire::cm::Reply>(rest));
      break;
    case Attribute::ready_to_use:
      handle(received, wire::take<wire::cm::ReadyToUse>(rest));
      break;
    case Attribute::disconnect_request:
      handle(received, wire::take<wire::cm::DisconnectRequest>(rest));
      break;
    case Attribute::disconnect_reply:
      handle(received, wire::take<wire::cm::DisconnectReply>(rest));
      break;
    case Attribute::service_id_request:
      handle(received, wire::take<wire::cm::ServiceIdRequest>(rest));
      break;
    case Attribute::service_id_reply:
      handle(received, wire::take<wire::cm::ServiceIdReply>(rest));
      break;
    case Attribute::load_alternate_path:
      handle(received, wire::take<wire::cm::LoadAlternatePath>(rest));
      break;
    case Attribute::alternate_path_response:
      ++counters_.unknown;  // this manager never sends the question
      break;
    default:
      ++counters_.malformed;
      break;
  }
}

// Handles a repeated REQ or SIDR_REQ: sends the same answer again, or an MRA that asks for
// patience.
void Manager::handle_again(Connection& connection) {
  ++counters_.duplicates;
  switch (connection.state) {
    case State::request_received:
      return send_mra(connection, Subject::request);
    case State::reply_sent:
    case State::answered:
      return send_kept(connection);
    case State::time_wait:
      if (keeps_reject(connection)) send_kept(connection);
      return;
    default:
      return;  // a late copy: the peer has the answer
  }
}

// Returns the reason to refuse the request, or nothing if it may go to a program.
std::optional<Reason> Manager::objection_to(const wire::cm::Request& message) const {
  using Message = wire::cm::Request;
  if (!services_.offers(message.service_id)) return Reason::invalid_service_id;
  const unsigned service = Message::ServiceType::of(message.service_type);
  const bool is_xrc =
      service == Message::service_extended &&
      Message::ExtendedTransportType::of(message.max_retries) == Message::extended_xrc;
  if (service != Message::service_rc && service != Message::service_uc && !is_xrc) {
    return Reason::invalid_transport_type;
  }
  const unsigned mtu = Message::PathMtu::of(message.mtu);
  if (mtu < 1 || mtu > 5) return Reason::invalid_path_mtu;
  return std::nullopt;
}

// Breaks a stale connection. If a queue pair that is connected here asks again, the peer has
// forgotten the connection, most likely in a crash. The old connection must end before there can be
// another (IBTA 12.9.8.3.1). Returns true if there was one. One that is not established yet is not
// in the way: whoever has the queue pair now may be another user, who has no part in it.
bool Manager::break_stale(const RemoteKey& remote_qp, Time now) {
  const auto found = by_remote_qp_.find(remote_qp);
  if (found == by_remote_qp_.end()) return false;
  Connection* stale = find(found->second);
  if (stale->state == State::established) send_disconnect_request(*stale, now, {});
  return stale->state == State::disconnect_sent;
}

// Notes that a connection has that queue pair of its peer's. Number 0 is nobody's.
void Manager::note_remote_qp(const Connection& connection) {
  if (connection.remote_qp == QpNumber{}) return;
  by_remote_qp_[remote_qp_key(connection)] = connection.id;
}

void Manager::handle(const Received& received, const wire::cm::Request& message) {
  const RemoteKey key{received.route.remote, message.local_ca_guid, message.local_id, false};
  if (const auto known = by_remote_id_.find(key); known != by_remote_id_.end()) {
    return handle_again(*find(known->second));
  }
  if (hold(received, message.service_id, key)) return;
  const auto refuse_it = [&](Reason reason) {
    refuse(received.route, received.transaction_id, 0, message.local_id, Subject::request, reason);
  };
  if (const auto reason = objection_to(message)) return refuse_it(*reason);
  const RemoteKey qp_key{received.route.remote, message.local_ca_guid, message.local_qp, false};
  if (break_stale(qp_key, received.now)) return refuse_it(Reason::stale_connection);
  Connection* connection = create_requested(received.route, State::request_received);
  if (connection == nullptr) return refuse_it(Reason::no_resources);

  using Message = wire::cm::Request;
  const Request request = request_of(message, received.route);
  connection->remote_id = message.local_id;
  connection->remote_guid = message.local_ca_guid;
  connection->remote_qp = request.qp;
  connection->service_id = request.service_id;
  connection->transaction_id = received.transaction_id;
  connection->packet_lifetime = request.packet_lifetime;
  connection->retries_left = Message::MaxRetries::of(message.max_retries);
  const std::uint8_t timeout = Message::LocalResponseTimeout::of(message.retry_count);
  connection->interval =
      exponential_time(std::clamp(timeout, response_timeout_min, response_timeout_max));
  by_remote_id_[key] = connection->id;
  note_remote_qp(*connection);
  tell(*connection, Event::Kind::request)->request = request;
}

void Manager::handle(const Received& received,
                     const wire::cm::MessageReceiptAcknowledgement& message) {
  using Message = wire::cm::MessageReceiptAcknowledgement;
  Connection* connection = find(ConnectionId{message.remote_id});
  if (connection != nullptr && !is_from_peer(*connection, received)) connection = nullptr;
  const bool is_of_request =
      Message::Message::of(message.message) == static_cast<unsigned>(Subject::request);
  const bool is_expected =
      connection != nullptr &&
      (connection->state == State::request_sent
           ? is_of_request
           : connection->state == State::reply_sent && connection->remote_id == message.local_id);
  if (!is_expected) {
    ++counters_.unknown;
    return;
  }
  const std::uint8_t patience =
      std::min(Message::ServiceTimeout::of(message.service_timeout), response_timeout_max);
  set_deadline(*connection, received.now + exponential_time(patience) + connection->interval);
}

// Finds the connection that a REJ names: by both IDs if both sides know both. A peer that gave up
// before it received anything from this side knows only its own ID, which its GUID completes. If
// this side does not know the peer's ID, its own ID must suffice.
Manager::Connection* Manager::find_rejected(const wire::cm::Reject& message,
                                            const Received& received) {
  if (message.remote_id == 0) {
    be64 guid;
    std::memcpy(&guid, message.info.data(), sizeof(guid));
    const RemoteKey key{received.route.remote, guid, message.local_id, false};
    services_.drop(key);
    const auto found = by_remote_id_.find(key);
    return found == by_remote_id_.end() ? nullptr : find(found->second);
  }
  Connection* connection = find(ConnectionId{message.remote_id});
  if (connection == nullptr || !is_from_peer(*connection, received)) return nullptr;
  const bool is_named = connection->remote_id == 0 || connection->remote_id == message.local_id;
  return is_named ? connection : nullptr;
}

// A host may answer from another of its addresses than the one that was asked. It proves by the
// transaction ID of its REP that it has seen the REQ.
bool Manager::is_from_peer(const Connection& connection, const Received& received) {
  const Gid& from = received.route.remote;
  return from == connection.route.remote || from == connection.answers_from ||
         received.transaction_id == connection.transaction_id;
}

Manager::Connection* Manager::find(const Received& received, std::uint32_t local_id,
                                   std::uint32_t remote_id) {
  Connection* connection = find(local_id, remote_id);
  return connection == nullptr || !is_from_peer(*connection, received) ? nullptr : connection;
}

void Manager::handle(const Received& received, const wire::cm::Reject& message) {
  Connection* connection = find_rejected(message, received);
  if (connection == nullptr) {
    ++counters_.unknown;
    return;
  }
  switch (connection->state) {
    case State::disconnect_sent:
      tell(*connection, Event::Kind::disconnected);
      connection->has_kept = false;
      return enter_time_wait(*connection, received.now, time_wait_of(*connection));
    case State::request_sent:
    case State::request_received:
    case State::reply_sent:
    case State::reply_received:
    case State::established:
      break;
    default:
      ++counters_.duplicates;
      return;
  }
  if (Event* event = tell(*connection, Event::Kind::rejected)) {
    event->reason = static_cast<Reason>(std::uint16_t{message.reason});
    event->private_data = PrivateData(message.private_data);
  }
  connection->is_released = true;
  if (connection->is_active) return erase(*connection);
  // A late copy of the request must not look like a new one.
  connection->has_kept = false;
  enter_time_wait(*connection, received.now, time_wait_of(*connection));
}

void Manager::handle(const Received& received, const wire::cm::Reply& message) {
  Connection* connection = find(ConnectionId{message.remote_id});
  const bool is_ours =
      connection != nullptr && connection->is_active && is_from_peer(*connection, received) &&
      (connection->state == State::request_sent || connection->remote_id == message.local_id) &&
      connection->state != State::question_sent;
  if (!is_ours) {
    ++counters_.unknown;
    return refuse(received.route, received.transaction_id, message.remote_id, message.local_id,
                  Subject::reply, Reason::invalid_communication_id);
  }
  switch (connection->state) {
    case State::request_sent: {
      connection->remote_id = message.local_id;
      connection->remote_guid = message.local_ca_guid;
      connection->remote_qp = QpNumber{message.local_qp};
      connection->answers_from = received.route.remote;
      unasked_.prove(received.route.remote);
      const RemoteKey qp_key = remote_qp_key(*connection);
      if (break_stale(qp_key, received.now)) {
        if (Event* event = tell(*connection, Event::Kind::rejected)) {
          event->reason = Reason::stale_connection;
        }
        return reject_and_wait(*connection, received.now, Subject::reply, Reason::stale_connection,
                               {});
      }
      note_remote_qp(*connection);
      connection->state = State::reply_received;
      connection->has_kept = false;
      set_deadline(*connection, Time::never());
      tell(*connection, Event::Kind::reply)->reply = reply_of(message);
      return;
    }
    case State::reply_received:
      ++counters_.duplicates;
      return send_mra(*connection, Subject::reply);
    case State::established:
      ++counters_.duplicates;
      return send_kept(*connection);  // RTU
    case State::time_wait:
      ++counters_.duplicates;
      if (keeps_reject(*connection)) send_kept(*connection);
      return;
    default:
      ++counters_.duplicates;
      return;
  }
}

void Manager::handle(const Received& received, const wire::cm::ReadyToUse& message) {
  Connection* connection = find(received, message.remote_id, message.local_id);
  if (connection == nullptr) {
    ++counters_.unknown;
    return;
  }
  if (connection->state != State::reply_sent) {
    ++counters_.duplicates;
    return;
  }
  unasked_.prove(received.route.remote);
  connection->state = State::established;
  connection->has_kept = false;
  set_deadline(*connection, Time::never());
  if (Event* event = tell(*connection, Event::Kind::established)) {
    event->private_data = PrivateData(message.private_data);
  }
}

void Manager::handle(const Received& received, const wire::cm::DisconnectRequest& message) {
  Connection* connection = find(received, message.remote_id, message.local_id);
  // A peer that disconnects a connection that no longer exists must get an answer, or it would
  // repeat its DREQ for a long time.
  if (connection == nullptr) {
    ++counters_.unknown;
    wire::cm::DisconnectReply reply;
    reply.local_id = message.remote_id;
    reply.remote_id = message.local_id;
    return send(received.route, received.transaction_id, reply);
  }
  if (connection->local_qp != QpNumber{message.remote_qp}) {
    ++counters_.malformed;
    return;
  }
  switch (connection->state) {
    case State::established:
    case State::reply_sent:  // the RTU is late or was lost
      // The peer is done with its queue pair, whenever this side's program agrees.
      forget_remote_qp(*connection);
      connection->state = State::disconnect_received;
      connection->transaction_id = received.transaction_id;
      set_deadline(*connection, Time::never());
      if (Event* event = tell(*connection, Event::Kind::disconnect_request)) {
        event->private_data = PrivateData(message.private_data);
      }
      return;
    case State::disconnect_sent:  // both sides disconnect at once
      tell(*connection, Event::Kind::disconnected);
      connection->transaction_id = received.transaction_id;
      return send_disconnect_reply(*connection, received.now, {});
    case State::time_wait: {
      ++counters_.duplicates;
      wire::cm::DisconnectReply reply;
      reply.local_id = connection->id.value;
      reply.remote_id = connection->remote_id;
      return send(connection->route, received.transaction_id, reply);
    }
    default:
      ++counters_.duplicates;
      return;
  }
}

void Manager::handle(const Received& received, const wire::cm::DisconnectReply& message) {
  Connection* connection = find(received, message.remote_id, message.local_id);
  if (connection == nullptr) {
    ++counters_.unknown;
    return;
  }
  if (connection->state != State::disconnect_sent) {
    ++counters_.duplicates;
    return;
  }
  if (Event* event = tell(*connection, Event::Kind::disconnected)) {
    event->private_data = PrivateData(message.private_data);
  }
  connection->has_kept = false;
  enter_time_wait(*connection, received.now, time_wait_of(*connection));
}

void Manager::handle(const Received& received, const wire::cm::ServiceIdRequest& message) {
  const RemoteKey key{received.route.remote, 0, message.request_id, true};
  if (const auto known = by_remote_id_.find(key); known != by_remote_id_.end()) {
    return handle_again(*find(known->second));
  }
  if (hold(received, message.service_id, key)) return;
  const bool is_offered = services_.offers(message.service_id);
  Connection* connection =
      is_offered ? create_requested(received.route, State::question_received) : nullptr;
  if (connection == nullptr) {
    using wire::cm::ServiceStatus;
    wire::cm::ServiceIdReply reply;
    reply.request_id = message.request_id;
    reply.status = static_cast<std::uint8_t>(is_offered ? ServiceStatus::no_qp
                                                        : ServiceStatus::unsupported_service);
    reply.service_id = message.service_id;
    return send(received.route, received.transaction_id, reply);
  }
  connection->remote_id = message.request_id;
  connection->service_id = message.service_id;
  connection->transaction_id = received.transaction_id;
  connection->interval = exponential_time(settings_.response_timeout);
  by_remote_id_[key] = connection->id;
  Request& request = tell(*connection, Event::Kind::service_question)->request;
  request.route = received.route;
  request.service_id = message.service_id;
  request.pkey = Pkey{message.pkey};
  request.private_data = PrivateData(message.private_data);
}

void Manager::handle(const Received& received, const wire::cm::ServiceIdReply& message) {
  Connection* connection = find(ConnectionId{message.request_id});
  const bool is_expected = connection != nullptr && connection->state == State::question_sent &&
                           is_from_peer(*connection, received);
  if (!is_expected) {
    ++counters_.unknown;
    return;
  }
  if (Event* event = tell(*connection, Event::Kind::service_answer)) {
    event->answer.status = static_cast<wire::cm::ServiceStatus>(message.status);
    event->answer.qp = QpNumber{message.qp};
    event->answer.qkey = Qkey{message.qkey};
    event->answer.private_data = PrivateData(message.private_data);
  }
  erase(*connection);
}

// Two ports have only one path to each other here, so alternate paths are refused.
void Manager::handle(const Received& received, const wire::cm::LoadAlternatePath& message) {
  const bool is_known = find(received, message.remote_id, message.local_id) != nullptr;
  wire::cm::AlternatePathResponse response;
  response.local_id = message.remote_id;
  response.remote_id = message.local_id;
  response.status =
      static_cast<std::uint8_t>(is_known ? wire::cm::PathStatus::unsupported
                                         : wire::cm::PathStatus::invalid_communication_id);
  send(received.route, received.transaction_id, response);
}

}  // namespace tulle::management::cm

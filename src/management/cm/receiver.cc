#include "management/cm/receiver.h"

#include <algorithm>
#include <cstring>

#include "management/cm/message_values.h"
#include "rdma/wire/mad.h"

namespace tulle::management::cm {
namespace {

using wire::cm::Reason;
using wire::cm::Subject;
using State = Connection::State;

// Limits of the peer's response timeout. A shorter one would cause a flood of messages, and a
// longer one would keep records too long.
constexpr std::uint8_t response_timeout_min = 8;   // 1 ms
constexpr std::uint8_t response_timeout_max = 24;  // 69 s

}  // namespace

Receiver::Receiver(const Parts& parts, Time question_interval)
    : connections_(parts.connections),
      services_(parts.services),
      outbox_(parts.outbox),
      events_(parts.events),
      counters_(parts.counters),
      transitions_(parts.transitions),
      question_interval_(question_interval) {}

bool Receiver::handle(Time now, const Route& route, std::span<const std::byte> payload) {
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

void Receiver::handle_held(Time now, const OfferedServices::Held& held) {
  std::span<const std::byte> rest = held.mad;
  const auto header = wire::take<wire::MadHeader>(rest);
  dispatch({now, held.route, header.transaction_id, held.mad}, header.attribute_id, rest);
}

void Receiver::dispatch(const Received& received, std::uint16_t attribute,
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
void Receiver::handle_again(Connection& connection) {
  ++counters_.duplicates;
  switch (connection.state) {
    case State::request_received:
      return transitions_.ask_patience(connection, Subject::request);
    case State::reply_sent:
    case State::answered:
      return outbox_.send_kept(connection);
    case State::time_wait:
      if (connection.keeps_reject()) outbox_.send_kept(connection);
      return;
    default:
      return;  // a late copy: the peer has the answer
  }
}

// Returns the reason to refuse the request, or nothing if it may go to a program.
std::optional<Reason> Receiver::objection_to(const wire::cm::Request& message) const {
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
// in the way: the queue pair may have another owner now, who has no part in it.
bool Receiver::break_stale(const RemoteKey& remote_qp, Time now) {
  Connection* stale = connections_.find_by_remote_qp(remote_qp);
  if (stale == nullptr) return false;
  if (stale->state == State::established) transitions_.send_disconnect_request(*stale, now, {});
  return stale->state == State::disconnect_sent;
}

// Returns true if the request waits, or repeats one that waits.
bool Receiver::hold(const Received& received, std::uint64_t service_id, const RemoteKey& from) {
  switch (services_.hold(received.now, received.route, received.mad, service_id, from)) {
    case OfferedServices::Outcome::refused:
      return false;
    case OfferedServices::Outcome::repeated:
      ++counters_.duplicates;
      return true;
    case OfferedServices::Outcome::held:
      ++counters_.held;
      return true;
  }
  return false;
}

// Creates a connection that a peer asks for. If there are too many, and none is over, the one goes
// that has waited longest for its peer's RTU. Returns null if there is no room.
Connection* Receiver::create_requested(const Route& route, State state) {
  if (!connections_.make_room_for_request()) {
    Connection* const oldest = connections_.oldest_unanswered();
    if (oldest == nullptr) return nullptr;
    events_.add(*oldest, Event::Kind::unreachable);
    connections_.erase(*oldest);
  }
  return connections_.create_requested(route, state);
}

void Receiver::refuse(const Received& received, std::uint32_t local_id, std::uint32_t remote_id,
                      Subject subject, Reason reason) {
  wire::cm::Reject message;
  message.local_id = local_id;
  message.remote_id = remote_id;
  message.reason = static_cast<std::uint16_t>(reason);
  wire::cm::Reject::Message::set(message.message, static_cast<unsigned>(subject));
  outbox_.send(received.route, received.transaction_id, message);
}

void Receiver::handle(const Received& received, const wire::cm::Request& message) {
  const RemoteKey key{received.route.remote, message.local_ca_guid, message.local_id, false};
  if (Connection* known = connections_.find_by_remote_id(key)) return handle_again(*known);
  if (hold(received, message.service_id, key)) return;
  const auto refuse_it = [&](Reason reason) {
    refuse(received, 0, message.local_id, Subject::request, reason);
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
  connections_.name_by_remote_id(*connection);
  connections_.name_by_remote_qp(*connection);
  events_.add(*connection, Event::Kind::request)->request = request;
}

// Finds a connection by this side's ID, if the message comes from its peer.
Connection* Receiver::find(const Received& received, std::uint32_t local_id) {
  Connection* connection = connections_.find(ConnectionId{local_id});
  const bool is_from_peer =
      connection != nullptr &&
      connection->is_from_peer(received.route.remote, received.transaction_id);
  return is_from_peer ? connection : nullptr;
}

Connection* Receiver::find(const Received& received, std::uint32_t local_id,
                           std::uint32_t remote_id) {
  Connection* connection = find(received, local_id);
  return connection == nullptr || connection->remote_id != remote_id ? nullptr : connection;
}

void Receiver::handle(const Received& received,
                      const wire::cm::MessageReceiptAcknowledgement& message) {
  using Message = wire::cm::MessageReceiptAcknowledgement;
  Connection* connection = find(received, message.remote_id);
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
  connections_.set_deadline(*connection,
                            received.now + exponential_time(patience) + connection->interval);
}

// Finds the connection that a REJ names: by both IDs if both sides know both. A peer that gave up
// before it received anything from this side knows only its own ID, which its GUID completes. If
// this side does not know the peer's ID, its own ID must suffice.
Connection* Receiver::find_rejected(const wire::cm::Reject& message, const Received& received) {
  if (message.remote_id == 0) {
    be64 guid;
    std::memcpy(&guid, message.info.data(), sizeof(guid));
    const RemoteKey key{received.route.remote, guid, message.local_id, false};
    services_.drop(key);
    return connections_.find_by_remote_id(key);
  }
  Connection* connection = find(received, message.remote_id);
  if (connection == nullptr) return nullptr;
  const bool is_named = connection->remote_id == 0 || connection->remote_id == message.local_id;
  return is_named ? connection : nullptr;
}

void Receiver::handle(const Received& received, const wire::cm::Reject& message) {
  Connection* connection = find_rejected(message, received);
  if (connection == nullptr) {
    ++counters_.unknown;
    return;
  }
  switch (connection->state) {
    case State::disconnect_sent:
      events_.add(*connection, Event::Kind::disconnected);
      connection->has_kept = false;
      return transitions_.enter_time_wait(*connection, received.now);
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
  if (Event* event = events_.add(*connection, Event::Kind::rejected)) {
    event->reason = static_cast<Reason>(std::uint16_t{message.reason});
    event->private_data = PrivateData(message.private_data);
  }
  connection->is_released = true;
  if (connection->is_active) return connections_.erase(*connection);
  // A late copy of the request must not look like a new one.
  connection->has_kept = false;
  transitions_.enter_time_wait(*connection, received.now);
}

void Receiver::handle(const Received& received, const wire::cm::Reply& message) {
  Connection* connection = find(received, message.remote_id);
  const bool is_ours =
      connection != nullptr && connection->is_active &&
      (connection->state == State::request_sent || connection->remote_id == message.local_id) &&
      connection->state != State::question_sent;
  if (!is_ours) {
    ++counters_.unknown;
    return refuse(received, message.remote_id, message.local_id, Subject::reply,
                  Reason::invalid_communication_id);
  }
  switch (connection->state) {
    case State::request_sent: {
      connection->remote_id = message.local_id;
      connection->remote_guid = message.local_ca_guid;
      connection->remote_qp = QpNumber{message.local_qp};
      connection->answers_from = received.route.remote;
      outbox_.prove(received.route.remote);
      if (break_stale(connection->remote_qp_key(), received.now)) {
        if (Event* event = events_.add(*connection, Event::Kind::rejected)) {
          event->reason = Reason::stale_connection;
        }
        return transitions_.reject_and_wait(*connection, received.now, Subject::reply,
                                            Reason::stale_connection, {});
      }
      connections_.name_by_remote_qp(*connection);
      connection->state = State::reply_received;
      connection->has_kept = false;
      connections_.set_deadline(*connection, Time::never());
      events_.add(*connection, Event::Kind::reply)->reply = reply_of(message);
      return;
    }
    case State::reply_received:
      ++counters_.duplicates;
      return transitions_.ask_patience(*connection, Subject::reply);
    case State::established:
      ++counters_.duplicates;
      return outbox_.send_kept(*connection);  // RTU
    case State::time_wait:
      ++counters_.duplicates;
      if (connection->keeps_reject()) outbox_.send_kept(*connection);
      return;
    default:
      ++counters_.duplicates;
      return;
  }
}

void Receiver::handle(const Received& received, const wire::cm::ReadyToUse& message) {
  Connection* connection = find(received, message.remote_id, message.local_id);
  if (connection == nullptr) {
    ++counters_.unknown;
    return;
  }
  if (connection->state != State::reply_sent) {
    ++counters_.duplicates;
    return;
  }
  outbox_.prove(received.route.remote);
  connection->state = State::established;
  connection->has_kept = false;
  connections_.set_deadline(*connection, Time::never());
  if (Event* event = events_.add(*connection, Event::Kind::established)) {
    event->private_data = PrivateData(message.private_data);
  }
}

void Receiver::handle(const Received& received, const wire::cm::DisconnectRequest& message) {
  Connection* connection = find(received, message.remote_id, message.local_id);
  // A peer that disconnects a connection that no longer exists must get an answer, or it would
  // repeat its DREQ for a long time.
  if (connection == nullptr) {
    ++counters_.unknown;
    wire::cm::DisconnectReply reply;
    reply.local_id = message.remote_id;
    reply.remote_id = message.local_id;
    return outbox_.send(received.route, received.transaction_id, reply);
  }
  if (connection->local_qp != QpNumber{message.remote_qp}) {
    ++counters_.malformed;
    return;
  }
  switch (connection->state) {
    case State::established:
    case State::reply_sent:  // the RTU is late or was lost
      // The peer is done with its queue pair, whenever this side's program agrees.
      connections_.forget_remote_qp(*connection);
      connection->state = State::disconnect_received;
      connection->transaction_id = received.transaction_id;
      connections_.set_deadline(*connection, Time::never());
      if (Event* event = events_.add(*connection, Event::Kind::disconnect_request)) {
        event->private_data = PrivateData(message.private_data);
      }
      return;
    case State::disconnect_sent:  // both sides disconnect at once
      events_.add(*connection, Event::Kind::disconnected);
      connection->transaction_id = received.transaction_id;
      return transitions_.send_disconnect_reply(*connection, received.now, {});
    case State::time_wait: {
      ++counters_.duplicates;
      wire::cm::DisconnectReply reply;
      reply.local_id = connection->id.value;
      reply.remote_id = connection->remote_id;
      return outbox_.send(connection->route, received.transaction_id, reply);
    }
    default:
      ++counters_.duplicates;
      return;
  }
}

void Receiver::handle(const Received& received, const wire::cm::DisconnectReply& message) {
  Connection* connection = find(received, message.remote_id, message.local_id);
  if (connection == nullptr) {
    ++counters_.unknown;
    return;
  }
  if (connection->state != State::disconnect_sent) {
    ++counters_.duplicates;
    return;
  }
  if (Event* event = events_.add(*connection, Event::Kind::disconnected)) {
    event->private_data = PrivateData(message.private_data);
  }
  connection->has_kept = false;
  transitions_.enter_time_wait(*connection, received.now);
}

void Receiver::handle(const Received& received, const wire::cm::ServiceIdRequest& message) {
  const RemoteKey key{received.route.remote, 0, message.request_id, true};
  if (Connection* known = connections_.find_by_remote_id(key)) return handle_again(*known);
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
    return outbox_.send(received.route, received.transaction_id, reply);
  }
  connection->remote_id = message.request_id;
  connection->service_id = message.service_id;
  connection->transaction_id = received.transaction_id;
  connection->interval = question_interval_;
  connections_.name_by_remote_id(*connection);
  Request& request = events_.add(*connection, Event::Kind::service_question)->request;
  request.route = received.route;
  request.service_id = message.service_id;
  request.pkey = Pkey{message.pkey};
  request.private_data = PrivateData(message.private_data);
}

void Receiver::handle(const Received& received, const wire::cm::ServiceIdReply& message) {
  Connection* connection = find(received, message.request_id);
  const bool is_expected = connection != nullptr && connection->state == State::question_sent;
  if (!is_expected) {
    ++counters_.unknown;
    return;
  }
  if (Event* event = events_.add(*connection, Event::Kind::service_answer)) {
    event->answer.status = static_cast<wire::cm::ServiceStatus>(message.status);
    event->answer.qp = QpNumber{message.qp};
    event->answer.qkey = Qkey{message.qkey};
    event->answer.private_data = PrivateData(message.private_data);
  }
  connections_.erase(*connection);
}

// Two ports have only one path to each other here, so alternate paths are refused.
void Receiver::handle(const Received& received, const wire::cm::LoadAlternatePath& message) {
  const bool is_known = find(received, message.remote_id, message.local_id) != nullptr;
  wire::cm::AlternatePathResponse response;
  response.local_id = message.remote_id;
  response.remote_id = message.local_id;
  response.status =
      static_cast<std::uint8_t>(is_known ? wire::cm::PathStatus::unsupported
                                         : wire::cm::PathStatus::invalid_communication_id);
  outbox_.send(received.route, received.transaction_id, response);
}

}  // namespace tulle::management::cm

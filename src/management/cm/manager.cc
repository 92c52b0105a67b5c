#include "management/cm/manager.h"

#include <algorithm>

#include "management/cm/message_values.h"
#include "rdma/wire/cm.h"

namespace tulle::management::cm {
namespace {

using wire::cm::Reason;
using wire::cm::Subject;
using State = Connection::State;

// An answered request ends after this time, however long its sender wants to be waited for. Linux
// waits about a minute (CMA_CM_RESPONSE_TIMEOUT, CMA_MAX_CM_RETRIES).
constexpr Time reply_time_max = Time::seconds(128);

}  // namespace

Manager::Manager(const Settings& settings)
    : settings_(settings),
      services_({settings.return_window, settings.return_patience, settings.held_max}),
      connections_({settings.random, settings.connections_max, settings.requested_max}) {}

Transitions Manager::transitions() {
  return Transitions({settings_.ca_guid, settings_.retries_max, settings_.service_timeout},
                     connections_, outbox_, events_);
}

Receiver Manager::receiver() {
  return Receiver({connections_, services_, outbox_, events_, counters_, transitions()},
                  exponential_time(settings_.response_timeout));
}

ConnectionId Manager::connect(Time now, const Request& request) {
  Connection* connection = connections_.create_active(request.route, State::request_sent);
  if (connection == nullptr) return {};
  connection->retries_left = settings_.retries_max;
  connection->local_qp = request.qp;
  connection->service_id = request.service_id;
  connection->packet_lifetime = request.packet_lifetime;
  connection->interval =
      exponential_time(settings_.response_timeout) + exponential_time(request.packet_lifetime) * 2;
  using Message = wire::cm::Request;
  Message message = message_of(request);
  message.local_id = connection->id.value;
  message.local_ca_guid = settings_.ca_guid;
  Message::RemoteResponseTimeout::set(message.service_type, settings_.response_timeout);
  Message::LocalResponseTimeout::set(message.retry_count, settings_.response_timeout);
  Message::MaxRetries::set(message.max_retries, settings_.retries_max);
  connection->keep(message);
  transitions().repeat_until_answered(*connection, now);
  return connection->id;
}

bool Manager::accept(Time now, ConnectionId id, const Reply& reply) {
  Connection* connection = connections_.find_owned(id);
  if (connection == nullptr || connection->state != State::request_received) return false;
  connection->local_qp = reply.qp;
  wire::cm::Reply message = message_of(reply);
  message.local_id = connection->id.value;
  message.remote_id = connection->remote_id;
  message.local_ca_guid = settings_.ca_guid;
  connection->state = State::reply_sent;
  connection->gives_up_at = now + reply_time_max;
  connections_.add_unanswered(id);
  connection->keep(message);
  transitions().repeat_until_answered(*connection, now);
  return true;
}

bool Manager::establish(Time, ConnectionId id, std::span<const std::byte> private_data) {
  Connection* connection = connections_.find_owned(id);
  if (connection == nullptr || connection->state != State::reply_received) return false;
  wire::cm::ReadyToUse message;
  message.local_id = connection->id.value;
  message.remote_id = connection->remote_id;
  copy_private_data(private_data, message.private_data);
  connection->state = State::established;
  connection->keep(message);
  outbox_.send_kept(*connection);
  return true;
}

bool Manager::reject(Time now, ConnectionId id, Reason reason,
                     std::span<const std::byte> private_data) {
  Connection* connection = connections_.find_owned(id);
  if (connection == nullptr) return false;
  const bool is_request = connection->state == State::request_received;
  if (!is_request && connection->state != State::reply_received) return false;
  transitions().reject_and_wait(*connection, now, is_request ? Subject::request : Subject::reply,
                                reason, private_data);
  return true;
}

bool Manager::notify_established(Time, ConnectionId id) {
  Connection* connection = connections_.find_owned(id);
  if (connection == nullptr || connection->state != State::reply_sent) return false;
  connection->state = State::established;
  connections_.set_deadline(*connection, Time::never());
  events_.add(*connection, Event::Kind::established);
  return true;
}

bool Manager::disconnect(Time now, ConnectionId id, std::span<const std::byte> private_data) {
  Connection* connection = connections_.find_owned(id);
  if (connection == nullptr) return false;
  if (connection->state == State::established) {
    transitions().send_disconnect_request(*connection, now, private_data);
    return true;
  }
  if (connection->state != State::disconnect_received) return false;
  transitions().send_disconnect_reply(*connection, now, private_data);
  return true;
}

ConnectionId Manager::ask_service(Time now, const ServiceQuestion& question) {
  Connection* connection = connections_.create_active(question.route, State::question_sent);
  if (connection == nullptr) return {};
  connection->retries_left = settings_.retries_max;
  connection->service_id = question.service_id;
  connection->interval = exponential_time(settings_.response_timeout);
  wire::cm::ServiceIdRequest message;
  message.request_id = connection->id.value;
  message.pkey = question.pkey.value;
  message.service_id = question.service_id;
  copy_private_data(question.private_data.span(), message.private_data);
  connection->keep(message);
  transitions().repeat_until_answered(*connection, now);
  return connection->id;
}

bool Manager::answer_service(Time now, ConnectionId id, const ServiceAnswer& answer) {
  Connection* connection = connections_.find_owned(id);
  if (connection == nullptr || connection->state != State::question_received) return false;
  send_answer(*connection, now, answer);
  return true;
}

void Manager::send_answer(Connection& connection, Time now, const ServiceAnswer& answer) {
  wire::cm::ServiceIdReply message;
  message.request_id = connection.remote_id;
  message.status = static_cast<std::uint8_t>(answer.status);
  message.qp = answer.qp.value;
  message.service_id = connection.service_id;
  message.qkey = answer.qkey.value;
  copy_private_data(answer.private_data.span(), message.private_data);
  connection.keep(message);
  outbox_.send_kept(connection);
  connection.state = State::answered;
  connection.is_released = true;
  connections_.set_deadline(connection, now + connection.interval * 2);
}

bool Manager::pass_over(ConnectionId id) {
  Connection* connection = connections_.find_owned(id);
  if (connection == nullptr || connection->state != State::request_received) return false;
  connections_.erase(*connection);
  return true;
}

void Manager::release(Time now, ConnectionId id) {
  Connection* connection = connections_.find_owned(id);
  if (connection == nullptr) return;
  connection->is_released = true;
  connections_.set_deadline(*connection, connection->deadline);  // it may be expendable from now on
  switch (connection->state) {
    case State::request_sent:
      return transitions().cancel_request(*connection);
    case State::request_received:
      return transitions().reject_and_wait(*connection, now, Subject::request, Reason::consumer,
                                           {});
    case State::reply_sent:
    case State::reply_received:
      return transitions().reject_and_wait(*connection, now, Subject::reply, Reason::consumer, {});
    case State::established:
      return transitions().send_disconnect_request(*connection, now, {});
    case State::disconnect_received:
      return transitions().send_disconnect_reply(*connection, now, {});
    case State::question_sent:
      return connections_.erase(*connection);
    case State::question_received: {
      ServiceAnswer answer;
      answer.status = wire::cm::ServiceStatus::rejected;
      return send_answer(*connection, now, answer);
    }
    case State::disconnect_sent:
    case State::time_wait:
    case State::answered:
      return;
  }
}

// Requests that came while there was no listener go first, in order.
void Manager::listen(Time now, std::uint64_t service_id, const Gid& address) {
  for (const auto& held : services_.listen(service_id, address)) receiver().handle_held(now, held);
}

void Manager::advance(Time now) {
  // Requests whose listener did not come back are refused, as if there had never been one. Later
  // requests are refused too.
  for (const auto& held : services_.take_overdue(now)) receiver().handle_held(now, held);
  while (Connection* connection = connections_.first_due(now)) {
    if (connection->is_over()) {
      events_.add(*connection, Event::Kind::time_wait_over);
      connections_.erase(*connection);
    } else if (connection->retries_left == 0 ||
               (connection->state == State::reply_sent && now >= connection->gives_up_at)) {
      transitions().give_up(*connection, now);
    } else {
      --connection->retries_left;
      ++counters_.retransmitted;
      outbox_.send_kept_unasked(*connection, now);
      connections_.set_deadline(*connection, now + connection->interval);
    }
  }
}

Time Manager::next_deadline() const {
  return std::min(connections_.next_deadline(), services_.next_deadline());
}

void Manager::rebase(Time by) {
  outbox_.rebase(by);
  connections_.rebase(by);
  services_.rebase(by);
}

std::size_t Manager::unfinished_count() const {
  return connections_.unfinished_count() + services_.held_count();
}

}  // namespace tulle::management::cm

#include "management/cm/transitions.h"

#include <cstring>

#include "base/check.h"
#include "management/cm/message_values.h"

namespace tulle::management::cm {
namespace {

using wire::cm::Reason;
using wire::cm::Subject;

}  // namespace

void Transitions::repeat_until_answered(Connection& connection, Time now) {
  outbox_.send_kept(connection);
  connections_.set_deadline(connection, now + connection.interval);
}

void Transitions::ask_patience(Connection& connection, Subject subject) {
  connection.has_asked_patience = true;
  using Message = wire::cm::MessageReceiptAcknowledgement;
  Message message;
  message.local_id = connection.id.value;
  message.remote_id = connection.remote_id;
  Message::Message::set(message.message, static_cast<unsigned>(subject));
  Message::ServiceTimeout::set(message.service_timeout, settings_.service_timeout);
  outbox_.send(connection.route, connection.transaction_id, message);
}

void Transitions::send_disconnect_request(Connection& connection, Time now,
                                          std::span<const std::byte> private_data) {
  wire::cm::DisconnectRequest message;
  message.local_id = connection.id.value;
  message.remote_id = connection.remote_id;
  message.remote_qp = connection.remote_qp.value;
  copy_private_data(private_data, message.private_data);
  connection.state = Connection::State::disconnect_sent;
  connection.retries_left = settings_.retries_max;
  connection.keep(message);
  repeat_until_answered(connection, now);
}

void Transitions::send_disconnect_reply(Connection& connection, Time now,
                                        std::span<const std::byte> private_data) {
  wire::cm::DisconnectReply message;
  message.local_id = connection.id.value;
  message.remote_id = connection.remote_id;
  copy_private_data(private_data, message.private_data);
  connection.keep(message);
  outbox_.send_kept(connection);
  enter_time_wait(connection, now);
}

void Transitions::enter_time_wait(Connection& connection, Time now) {
  enter_time_wait(connection, now, connection.time_wait());
}

void Transitions::enter_time_wait(Connection& connection, Time now, Time span) {
  connections_.forget_remote_qp(connection);
  connection.state = Connection::State::time_wait;
  connections_.set_deadline(connection, now + span);
}

void Transitions::reject_and_wait(Connection& connection, Time now, Subject subject, Reason reason,
                                  std::span<const std::byte> private_data) {
  keep_reject(connection, subject, reason, private_data);
  outbox_.send_kept_unasked(connection, now);
  connection.is_released = true;
  const Time interval = connection.interval + exponential_time(connection.lifetime()) * 2;
  const Time patience =
      connection.has_asked_patience ? exponential_time(settings_.service_timeout) : Time::zero();
  enter_time_wait(connection, now, interval * (settings_.retries_max + 1) + patience);
}

void Transitions::cancel_request(Connection& connection) {
  keep_reject(connection, Subject::request, Reason::timeout, {});
  outbox_.send_kept(connection);
  connections_.erase(connection);
}

void Transitions::give_up(Connection& connection, Time now) {
  switch (connection.state) {
    case Connection::State::request_sent:
      events_.add(connection, Event::Kind::unreachable);
      return cancel_request(connection);
    case Connection::State::reply_sent:
      events_.add(connection, Event::Kind::unreachable);
      return reject_and_wait(connection, now, Subject::reply, Reason::timeout, {});
    case Connection::State::disconnect_sent:
      if (Event* event = events_.add(connection, Event::Kind::disconnected)) {
        event->timed_out = true;
      }
      connection.has_kept = false;
      return enter_time_wait(connection, now);
    case Connection::State::question_sent:
      events_.add(connection, Event::Kind::service_unreachable);
      return connections_.erase(connection);
    default:
      TULLE_CHECK(false);
  }
}

// Keeps a REJ in place of what was kept. A side that gives up before it receives anything from its
// peer does not know the peer's ID. The info of the REJ is then the sender's GUID, by which the
// peer finds the connection (IBTA 12.6.7.2, reason 4).
void Transitions::keep_reject(Connection& connection, Subject subject, Reason reason,
                              std::span<const std::byte> private_data) {
  wire::cm::Reject message;
  message.local_id = connection.id.value;
  message.remote_id = connection.remote_id;
  message.reason = static_cast<std::uint16_t>(reason);
  wire::cm::Reject::Message::set(message.message, static_cast<unsigned>(subject));
  if (reason == Reason::timeout) {
    const be64 guid = settings_.ca_guid;
    std::memcpy(message.info.data(), &guid, sizeof(guid));
    wire::cm::Reject::InfoLength::set(message.info_length, sizeof(guid));
  }
  copy_private_data(private_data, message.private_data);
  connection.keep(message);
}

}  // namespace tulle::management::cm

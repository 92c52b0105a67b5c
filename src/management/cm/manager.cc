#include "management/cm/manager.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tulle::management::cm {
namespace {

using wire::cm::Attribute;
using wire::cm::Reason;
using wire::cm::Subject;

template <std::size_t n>
void copy(std::span<const std::byte> from, std::array<std::byte, n>& to) {
  TULLE_CHECK(from.size() <= n);
  std::copy(from.begin(), from.end(), to.begin());
}

wire::cm::Path path_of(const Request& request) {
  wire::cm::Path path;
  path.local_lid = request.lids.local;
  path.remote_lid = request.lids.remote;
  wire::cm::Path::ServiceLevel::set(path.service_level, request.lids.service_level);
  const bool is_subnet_local = request.route.remote_lid != 0;
  wire::cm::Path::SubnetLocal::set(path.service_level, is_subnet_local ? 1 : 0);
  path.local = request.route.local;
  path.remote = request.route.remote;
  path.flow_label_and_rate = request.flow_label << wire::cm::Path::flow_label_shift;
  path.traffic_class = request.route.traffic_class;
  path.hop_limit = request.hop_limit;
  wire::cm::Path::AckTimeout::set(path.ack_timeout, request.ack_timeout);
  return path;
}

wire::cm::Request message_of(const Request& request) {
  using Message = wire::cm::Request;
  Message message;
  message.service_id = request.service_id;
  message.local_qp = request.qp.value;
  message.responder_resources = request.responder_resources;
  message.initiator_depth = request.initiator_depth;
  const unsigned service = request.service == Service::rc   ? Message::service_rc
                           : request.service == Service::uc ? Message::service_uc
                                                            : Message::service_extended;
  Message::ServiceType::set(message.service_type, service);
  Message::FlowControl::set(message.service_type, request.flow_control);
  message.starting_psn = request.starting_psn.value();
  Message::RetryCount::set(message.retry_count, request.retry_count);
  message.pkey = request.pkey.value;
  Message::PathMtu::set(message.mtu, request.path_mtu);
  Message::RnrRetryCount::set(message.mtu, request.rnr_retry_count);
  Message::Srq::set(message.max_retries, request.srq);
  if (request.service == Service::xrc) {
    Message::ExtendedTransportType::set(message.max_retries, Message::extended_xrc);
  }
  message.primary = path_of(request);
  copy(request.private_data.span(), message.private_data);
  return message;
}

wire::cm::Reply message_of(const Reply& reply) {
  using Message = wire::cm::Reply;
  Message message;
  message.local_qp = reply.qp.value;
  message.starting_psn = reply.starting_psn.value();
  message.responder_resources = reply.responder_resources;
  message.initiator_depth = reply.initiator_depth;
  Message::FlowControl::set(message.ack_delay, reply.flow_control);
  Message::FailoverAccepted::set(message.ack_delay, 0);
  Message::TargetAckDelay::set(message.ack_delay, reply.target_ack_delay);
  Message::Srq::set(message.rnr_retry_count, reply.srq);
  Message::RnrRetryCount::set(message.rnr_retry_count, reply.rnr_retry_count);
  copy(reply.private_data.span(), message.private_data);
  return message;
}

}  // namespace

Manager::Manager(const Settings& settings)
    : settings_(settings),
      random_(settings.random),
      services_({settings.return_window, settings.return_patience, settings.held_max}) {}

ConnectionId Manager::connect(Time now, const Request& request) {
  Connection* connection = create(request.route, State::request_sent);
  if (connection == nullptr) return {};
  connection->is_active = true;
  connection->local_qp = request.qp;
  connection->service_id = request.service_id;
  connection->packet_lifetime = request.packet_lifetime;
  connection->interval =
      exponential_time(settings_.response_timeout) + exponential_time(request.packet_lifetime) * 2;
  connection->transaction_id = random_.next() << 32 | connection->id.value;
  using Message = wire::cm::Request;
  Message message = message_of(request);
  message.local_id = connection->id.value;
  message.local_ca_guid = settings_.ca_guid;
  Message::RemoteResponseTimeout::set(message.service_type, settings_.response_timeout);
  Message::LocalResponseTimeout::set(message.retry_count, settings_.response_timeout);
  Message::MaxRetries::set(message.max_retries, settings_.retries_max);
  keep(*connection, message);
  repeat_until_answered(*connection, now);
  return connection->id;
}

bool Manager::accept(Time now, ConnectionId id, const Reply& reply) {
  Connection* connection = find_owned(id);
  if (connection == nullptr || connection->state != State::request_received) return false;
  connection->local_qp = reply.qp;
  wire::cm::Reply message = message_of(reply);
  message.local_id = connection->id.value;
  message.remote_id = connection->remote_id;
  message.local_ca_guid = settings_.ca_guid;
  connection->state = State::reply_sent;
  connection->gives_up_at = now + reply_time_max;
  add_unanswered(id);
  keep(*connection, message);
  repeat_until_answered(*connection, now);
  return true;
}

bool Manager::establish(Time, ConnectionId id, std::span<const std::byte> private_data) {
  Connection* connection = find_owned(id);
  if (connection == nullptr || connection->state != State::reply_received) return false;
  wire::cm::ReadyToUse message;
  message.local_id = connection->id.value;
  message.remote_id = connection->remote_id;
  copy(private_data, message.private_data);
  connection->state = State::established;
  keep(*connection, message);
  send_kept(*connection);
  return true;
}

bool Manager::reject(Time now, ConnectionId id, Reason reason,
                     std::span<const std::byte> private_data) {
  Connection* connection = find_owned(id);
  if (connection == nullptr) return false;
  const bool is_request = connection->state == State::request_received;
  if (!is_request && connection->state != State::reply_received) return false;
  reject_and_wait(*connection, now, is_request ? Subject::request : Subject::reply, reason,
                  private_data);
  return true;
}

bool Manager::notify_established(Time, ConnectionId id) {
  Connection* connection = find_owned(id);
  if (connection == nullptr || connection->state != State::reply_sent) return false;
  connection->state = State::established;
  set_deadline(*connection, Time::never());
  tell(*connection, Event::Kind::established);
  return true;
}

bool Manager::disconnect(Time now, ConnectionId id, std::span<const std::byte> private_data) {
  Connection* connection = find_owned(id);
  if (connection == nullptr) return false;
  if (connection->state == State::established) {
    send_disconnect_request(*connection, now, private_data);
    return true;
  }
  if (connection->state != State::disconnect_received) return false;
  send_disconnect_reply(*connection, now, private_data);
  return true;
}

ConnectionId Manager::ask_service(Time now, const ServiceQuestion& question) {
  Connection* connection = create(question.route, State::question_sent);
  if (connection == nullptr) return {};
  connection->is_active = true;
  connection->service_id = question.service_id;
  connection->interval = exponential_time(settings_.response_timeout);
  connection->transaction_id = random_.next() << 32 | connection->id.value;
  wire::cm::ServiceIdRequest message;
  message.request_id = connection->id.value;
  message.pkey = question.pkey.value;
  message.service_id = question.service_id;
  copy(question.private_data.span(), message.private_data);
  keep(*connection, message);
  repeat_until_answered(*connection, now);
  return connection->id;
}

bool Manager::answer_service(Time now, ConnectionId id, const ServiceAnswer& answer) {
  Connection* connection = find_owned(id);
  if (connection == nullptr || connection->state != State::question_received) return false;
  wire::cm::ServiceIdReply message;
  message.request_id = connection->remote_id;
  message.status = static_cast<std::uint8_t>(answer.status);
  message.qp = answer.qp.value;
  message.service_id = connection->service_id;
  message.qkey = answer.qkey.value;
  copy(answer.private_data.span(), message.private_data);
  keep(*connection, message);
  send_kept(*connection);
  connection->state = State::answered;
  connection->is_released = true;
  set_deadline(*connection, now + connection->interval * 2);
  return true;
}

bool Manager::pass_over(ConnectionId id) {
  Connection* connection = find_owned(id);
  if (connection == nullptr || connection->state != State::request_received) return false;
  erase(*connection);
  return true;
}

void Manager::release(Time now, ConnectionId id) {
  Connection* connection = find_owned(id);
  if (connection == nullptr) return;
  connection->is_released = true;
  set_deadline(*connection, connection->deadline);  // it may be expendable from now on
  switch (connection->state) {
    case State::request_sent:
      keep_reject(*connection, Subject::request, Reason::timeout, {});
      send_kept(*connection);
      return erase(*connection);
    case State::request_received:
      return reject_and_wait(*connection, now, Subject::request, Reason::consumer, {});
    case State::reply_sent:
    case State::reply_received:
      return reject_and_wait(*connection, now, Subject::reply, Reason::consumer, {});
    case State::established:
      return send_disconnect_request(*connection, now, {});
    case State::disconnect_received:
      return send_disconnect_reply(*connection, now, {});
    case State::question_sent:
      return erase(*connection);
    case State::question_received: {
      connection->is_released = false;
      ServiceAnswer answer;
      answer.status = wire::cm::ServiceStatus::rejected;
      answer_service(now, id, answer);
      return;
    }
    case State::disconnect_sent:
    case State::time_wait:
    case State::answered:
      return;
  }
}

void Manager::advance(Time now) {
  refuse_overdue(now);
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Connection* connection = find(ConnectionId{timers_.begin()->second});
    TULLE_CHECK(connection != nullptr);
    if (is_over(*connection)) {
      tell(*connection, Event::Kind::time_wait_over);
      erase(*connection);
    } else if (connection->retries_left == 0 ||
               (connection->state == State::reply_sent && now >= connection->gives_up_at)) {
      give_up(*connection, now);
    } else {
      --connection->retries_left;
      ++counters_.retransmitted;
      send_kept_unasked(*connection, now);
      set_deadline(*connection, now + connection->interval);
    }
  }
}

std::optional<Event> Manager::pull_event() {
  if (events_.empty()) return std::nullopt;
  std::optional<Event> event(events_.front());
  events_.pop_front();
  return event;
}

// Ends a connection whose peer has not answered any repetition. The peer is told, in case it lives
// (IBTA 12.9.8.2).
void Manager::give_up(Connection& connection, Time now) {
  switch (connection.state) {
    case State::request_sent:
      tell(connection, Event::Kind::unreachable);
      keep_reject(connection, Subject::request, Reason::timeout, {});
      send_kept(connection);
      return erase(connection);
    case State::reply_sent:
      tell(connection, Event::Kind::unreachable);
      return reject_and_wait(connection, now, Subject::reply, Reason::timeout, {});
    case State::disconnect_sent:
      if (Event* event = tell(connection, Event::Kind::disconnected)) event->timed_out = true;
      connection.has_kept = false;
      return enter_time_wait(connection, now, time_wait_of(connection));
    case State::question_sent:
      tell(connection, Event::Kind::service_unreachable);
      return erase(connection);
    default:
      TULLE_CHECK(false);
  }
}

Manager::Connection* Manager::find(ConnectionId id) {
  const auto found = connections_.find(id.value);
  return found == connections_.end() ? nullptr : &found->second;
}

Manager::Connection* Manager::find_owned(ConnectionId id) {
  Connection* connection = find(id);
  return connection == nullptr || connection->is_released ? nullptr : connection;
}

Manager::Connection* Manager::find(std::uint32_t local_id, std::uint32_t remote_id) {
  Connection* connection = find(ConnectionId{local_id});
  return connection == nullptr || connection->remote_id != remote_id ? nullptr : connection;
}

Manager::Connection* Manager::create(const Route& route, State state) {
  if (connections_.size() >= settings_.connections_max && !evict(false)) return nullptr;
  ConnectionId id;
  do {
    id = ConnectionId{static_cast<std::uint32_t>(random_.next())};
  } while (id == ConnectionId{} || find(id) != nullptr);
  Connection& connection = connections_[id.value];
  connection.id = id;
  connection.state = state;
  connection.route = route;
  connection.retries_left = settings_.retries_max;
  return &connection;
}

// Creates a connection that a peer asks for. Such connections are limited, and when they are too
// many, one that is over goes, or the one that has waited longest for its peer's RTU. An honest
// peer sends that within a round trip. Returns null if there is no room.
Manager::Connection* Manager::create_requested(const Route& route, State state) {
  if (requested_ >= settings_.requested_max && !evict(true) && !evict_unanswered()) {
    return nullptr;
  }
  Connection* connection = create(route, state);
  if (connection == nullptr) return nullptr;
  connection->is_requested = true;
  ++requested_;
  return connection;
}

// Makes room for a new connection: erases a released record that is over, or else one whose peer
// does not answer. Returns false if there is none.
bool Manager::evict(bool only_requested) {
  if (evict_first(of_peers_.over)) return true;
  if (!only_requested && evict_first(own_.over)) return true;
  if (evict_first(of_peers_.disconnecting)) return true;
  return !only_requested && evict_first(own_.disconnecting);
}

bool Manager::evict_first(Timers& of) {
  if (of.empty()) return false;
  erase(*find(ConnectionId{of.begin()->second}));
  return true;
}

// Returns the list of those that may make room in which the connection belongs, or null.
Manager::Timers* Manager::expendable_with(const Connection& connection) {
  if (!connection.is_released) return nullptr;
  Expendable& of = connection.is_requested ? of_peers_ : own_;
  if (is_over(connection)) return &of.over;
  return connection.state == State::disconnect_sent ? &of.disconnecting : nullptr;
}

// Gives up the connection that has waited longest for the answer to its REP. Returns false if none
// waits.
bool Manager::evict_unanswered() {
  Connection* connection = oldest_unanswered();
  if (connection == nullptr) return false;
  tell(*connection, Event::Kind::unreachable);
  erase(*connection);
  return true;
}

// Most entries before a connection may be dead while one lives on at the front.
void Manager::add_unanswered(ConnectionId id) {
  oldest_unanswered();
  if (unanswered_.size() > 2 * connections_.size() + 64) {
    std::erase_if(unanswered_, [this](ConnectionId each) {
      const Connection* connection = find(each);
      return connection == nullptr || connection->state != State::reply_sent;
    });
  }
  unanswered_.push_back(id);
}

// Returns the connection that has waited longest for the answer to its REP, or null. Drops the
// entries before it, whose connections are answered or gone.
Manager::Connection* Manager::oldest_unanswered() {
  for (; !unanswered_.empty(); unanswered_.pop_front()) {
    Connection* connection = find(unanswered_.front());
    if (connection != nullptr && connection->state == State::reply_sent) return connection;
  }
  return nullptr;
}

bool Manager::is_over(const Connection& connection) {
  return connection.state == State::time_wait || connection.state == State::answered;
}

std::size_t Manager::unfinished_count() const {
  const auto count = std::count_if(connections_.begin(), connections_.end(), [](const auto& entry) {
    return !is_over(entry.second) && !entry.second.deadline.is_never();
  });
  return static_cast<std::size_t>(count) + services_.held_count();
}

void Manager::erase(Connection& connection) {
  set_deadline(connection, Time::never());
  forget_remote_qp(connection);
  const auto named = by_remote_id_.find(remote_key(connection));
  if (named != by_remote_id_.end() && named->second == connection.id) by_remote_id_.erase(named);
  if (connection.is_requested) --requested_;
  connections_.erase(connection.id.value);
}

RemoteKey Manager::remote_key(const Connection& connection) const {
  const bool is_question =
      connection.state == State::question_received || connection.state == State::answered;
  return {connection.route.remote, connection.remote_guid, connection.remote_id, is_question};
}

RemoteKey Manager::remote_qp_key(const Connection& connection) const {
  return {connection.route.remote, connection.remote_guid, connection.remote_qp.value, false};
}

void Manager::forget_remote_qp(const Connection& connection) {
  const auto found = by_remote_qp_.find(remote_qp_key(connection));
  if (found != by_remote_qp_.end() && found->second == connection.id) by_remote_qp_.erase(found);
}

void Manager::set_deadline(Connection& connection, Time deadline) {
  unwatch(connection);
  const bool is_answer = connection.state == State::reply_sent;
  connection.deadline = is_answer ? std::min(deadline, connection.gives_up_at) : deadline;
  watch(connection);
}

void Manager::watch(Connection& connection) {
  if (connection.deadline.is_never()) return;
  const std::pair due(connection.deadline, connection.id.value);
  timers_.insert(due);
  if (Timers* const expendable = expendable_with(connection)) expendable->insert(due);
}

// The state may have changed since watch(), and with it the list.
void Manager::unwatch(Connection& connection) {
  if (connection.deadline.is_never()) return;
  const std::pair due(connection.deadline, connection.id.value);
  timers_.erase(due);
  Expendable& of = connection.is_requested ? of_peers_ : own_;
  of.over.erase(due);
  of.disconnecting.erase(due);
}

void Manager::repeat_until_answered(Connection& connection, Time now) {
  send_kept(connection);
  set_deadline(connection, now + connection.interval);
}

// Returns the time for which packets of the connection may still be under way (IBTA 12.9.8.4).
// Linux takes the ACK timeout for it. The peer chooses the lifetime.
Time Manager::time_wait_of(const Connection& connection) {
  return exponential_time(static_cast<std::uint8_t>(lifetime_of(connection) + 1));
}

std::uint8_t Manager::lifetime_of(const Connection& connection) {
  return std::min(connection.packet_lifetime, packet_lifetime_max);
}

void Manager::enter_time_wait(Connection& connection, Time now, Time span) {
  forget_remote_qp(connection);
  connection.state = State::time_wait;
  set_deadline(connection, now + span);
}

// Rejects and keeps the record for as long as the peer may repeat its message. A repetition then
// gets the same answer, rather than look like a new message to a program.
void Manager::reject_and_wait(Connection& connection, Time now, Subject subject, Reason reason,
                              std::span<const std::byte> private_data) {
  keep_reject(connection, subject, reason, private_data);
  send_kept_unasked(connection, now);
  connection.is_released = true;
  const Time interval = connection.interval + exponential_time(lifetime_of(connection)) * 2;
  const Time patience =
      connection.has_asked_patience ? exponential_time(settings_.service_timeout) : Time::zero();
  enter_time_wait(connection, now, interval * (settings_.retries_max + 1) + patience);
}

Event* Manager::tell(const Connection& connection, Event::Kind kind) {
  if (connection.is_released) return nullptr;
  Event& event = events_.emplace_back();
  event.kind = kind;
  event.id = connection.id;
  return &event;
}

template <typename Message>
void Manager::keep(Connection& connection, const Message& message) {
  const wire::cm::Mad<Message> mad{
      wire::cm::header_of(Message::attribute, connection.transaction_id), message};
  std::memcpy(connection.kept.data(), &mad, sizeof(mad));
  connection.has_kept = true;
}

bool Manager::keeps_reject(const Connection& connection) const {
  std::span<const std::byte> kept = connection.kept;
  return connection.has_kept && wire::take<wire::MadHeader>(kept).attribute_id ==
                                    static_cast<std::uint16_t>(Attribute::reject);
}

void Manager::send_kept(const Connection& connection) {
  const bool is_to_stranger = !connection.is_active && !unasked_.is_proven(connection.route.remote);
  outgoing_.push_back({connection.route, connection.kept, is_to_stranger});
}

// Returns true if the peer has had its answer, and has not shown that it got it.
bool Manager::is_unconfirmed(const Connection& connection) {
  return connection.is_requested && connection.state == State::reply_sent;
}

// Sends the kept message although no message of the peer asks for it now.
void Manager::send_kept_unasked(const Connection& connection, Time now) {
  if (is_unconfirmed(connection) && !unasked_.may_send(now, connection.route.remote)) return;
  send_kept(connection);
}

template <typename Message>
void Manager::send(const Route& route, std::uint64_t transaction_id, const Message& message) {
  Outgoing& out = outgoing_.emplace_back();
  out.route = route;
  out.is_to_stranger = !unasked_.is_proven(route.remote);
  const wire::cm::Mad<Message> mad{wire::cm::header_of(Message::attribute, transaction_id),
                                   message};
  std::memcpy(out.bytes.data(), &mad, sizeof(mad));
}
template void Manager::send(const Route&, std::uint64_t, const wire::cm::DisconnectReply&);
template void Manager::send(const Route&, std::uint64_t, const wire::cm::ServiceIdReply&);
template void Manager::send(const Route&, std::uint64_t, const wire::cm::AlternatePathResponse&);

// Keeps a REJ in place of what was kept. A side that gives up before it receives anything from its
// peer does not know the peer's ID. The info of the REJ is then the sender's GUID, by which the
// peer finds the connection (IBTA 12.6.7.2, reason 4).
void Manager::keep_reject(Connection& connection, Subject subject, Reason reason,
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
  copy(private_data, message.private_data);
  keep(connection, message);
}

void Manager::refuse(const Route& route, std::uint64_t transaction_id, std::uint32_t local_id,
                     std::uint32_t remote_id, Subject subject, Reason reason) {
  wire::cm::Reject message;
  message.local_id = local_id;
  message.remote_id = remote_id;
  message.reason = static_cast<std::uint16_t>(reason);
  wire::cm::Reject::Message::set(message.message, static_cast<unsigned>(subject));
  send(route, transaction_id, message);
}

void Manager::send_disconnect_request(Connection& connection, Time now,
                                      std::span<const std::byte> private_data) {
  wire::cm::DisconnectRequest message;
  message.local_id = connection.id.value;
  message.remote_id = connection.remote_id;
  message.remote_qp = connection.remote_qp.value;
  copy(private_data, message.private_data);
  connection.state = State::disconnect_sent;
  connection.retries_left = settings_.retries_max;
  keep(connection, message);
  repeat_until_answered(connection, now);
}

void Manager::send_disconnect_reply(Connection& connection, Time now,
                                    std::span<const std::byte> private_data) {
  wire::cm::DisconnectReply message;
  message.local_id = connection.id.value;
  message.remote_id = connection.remote_id;
  copy(private_data, message.private_data);
  keep(connection, message);
  send_kept(connection);
  enter_time_wait(connection, now, time_wait_of(connection));
}

void Manager::send_mra(Connection& connection, Subject subject) {
  connection.has_asked_patience = true;
  using Message = wire::cm::MessageReceiptAcknowledgement;
  Message message;
  message.local_id = connection.id.value;
  message.remote_id = connection.remote_id;
  Message::Message::set(message.message, static_cast<unsigned>(subject));
  Message::ServiceTimeout::set(message.service_timeout, settings_.service_timeout);
  send(connection.route, connection.transaction_id, message);
}

}  // namespace tulle::management::cm

#include "management/cm/connection_table.h"

#include <algorithm>

#include "base/check.h"
#include "base/timers.h"

namespace tulle::management::cm {

Connection* ConnectionTable::create_active(const Route& route, Connection::State state) {
  Connection* connection = create(route, state);
  if (connection == nullptr) return nullptr;
  connection->is_active = true;
  connection->transaction_id = settings_.random.next() << 32 | connection->id.value;
  return connection;
}

bool ConnectionTable::make_room_for_request() {
  return requested_ < settings_.requested_max || evict(true);
}

Connection* ConnectionTable::create_requested(const Route& route, Connection::State state) {
  Connection* connection = create(route, state);
  if (connection == nullptr) return nullptr;
  connection->is_requested = true;
  ++requested_;
  return connection;
}

Connection* ConnectionTable::create(const Route& route, Connection::State state) {
  if (connections_.size() >= settings_.connections_max && !evict(false)) return nullptr;
  ConnectionId id;
  do {
    id = ConnectionId{static_cast<std::uint32_t>(settings_.random.next())};
  } while (id == ConnectionId{} || find(id) != nullptr);
  Connection& connection = connections_[id.value];
  connection.id = id;
  connection.state = state;
  connection.route = route;
  return &connection;
}

void ConnectionTable::erase(Connection& connection) {
  unwatch(connection);  // set_deadline() would keep the end of an answered request
  forget_remote_qp(connection);
  const auto named = by_remote_id_.find(connection.remote_key());
  if (named != by_remote_id_.end() && named->second == connection.id) by_remote_id_.erase(named);
  if (connection.is_requested) --requested_;
  connections_.erase(connection.id.value);
}

// Makes room for a new connection: erases a released record that is over, or else one whose peer
// does not answer. Returns false if there is none.
bool ConnectionTable::evict(bool only_requested) {
  if (evict_first(of_peers_.over)) return true;
  if (!only_requested && evict_first(own_.over)) return true;
  if (evict_first(of_peers_.disconnecting)) return true;
  return !only_requested && evict_first(own_.disconnecting);
}

bool ConnectionTable::evict_first(Timers& of) {
  if (of.empty()) return false;
  erase(*find(ConnectionId{of.begin()->second}));
  return true;
}

Connection* ConnectionTable::find(ConnectionId id) {
  const auto found = connections_.find(id.value);
  return found == connections_.end() ? nullptr : &found->second;
}

Connection* ConnectionTable::find_owned(ConnectionId id) {
  Connection* connection = find(id);
  return connection == nullptr || connection->is_released ? nullptr : connection;
}

Connection* ConnectionTable::find_in(const Index& index, const RemoteKey& key) {
  const auto found = index.find(key);
  return found == index.end() ? nullptr : find(found->second);
}

Connection* ConnectionTable::find_by_remote_id(const RemoteKey& key) {
  return find_in(by_remote_id_, key);
}

Connection* ConnectionTable::find_by_remote_qp(const RemoteKey& key) {
  return find_in(by_remote_qp_, key);
}

void ConnectionTable::name_by_remote_id(const Connection& connection) {
  by_remote_id_[connection.remote_key()] = connection.id;
}

void ConnectionTable::name_by_remote_qp(const Connection& connection) {
  if (connection.remote_qp == QpNumber{}) return;
  by_remote_qp_[connection.remote_qp_key()] = connection.id;
}

void ConnectionTable::forget_remote_qp(const Connection& connection) {
  const auto found = by_remote_qp_.find(connection.remote_qp_key());
  if (found != by_remote_qp_.end() && found->second == connection.id) by_remote_qp_.erase(found);
}

void ConnectionTable::set_deadline(Connection& connection, Time deadline) {
  unwatch(connection);
  const bool is_answer = connection.state == Connection::State::reply_sent;
  connection.deadline = is_answer ? std::min(deadline, connection.gives_up_at) : deadline;
  watch(connection);
}

void ConnectionTable::watch(Connection& connection) {
  if (connection.deadline.is_never()) return;
  const std::pair due(connection.deadline, connection.id.value);
  timers_.insert(due);
  if (Timers* const expendable = expendable_with(connection)) expendable->insert(due);
}

// The state may have changed since watch(), and with it the list.
void ConnectionTable::unwatch(Connection& connection) {
  if (connection.deadline.is_never()) return;
  const std::pair due(connection.deadline, connection.id.value);
  timers_.erase(due);
  Expendable& of = expendable_of(connection);
  of.over.erase(due);
  of.disconnecting.erase(due);
}

ConnectionTable::Expendable& ConnectionTable::expendable_of(const Connection& connection) {
  return connection.is_requested ? of_peers_ : own_;
}

// Returns the list of those that may make room in which the connection belongs, or null.
ConnectionTable::Timers* ConnectionTable::expendable_with(const Connection& connection) {
  if (!connection.is_released) return nullptr;
  Expendable& of = expendable_of(connection);
  if (connection.is_over()) return &of.over;
  return connection.state == Connection::State::disconnect_sent ? &of.disconnecting : nullptr;
}

Connection* ConnectionTable::first_due(Time now) {
  if (timers_.empty() || timers_.begin()->first > now) return nullptr;
  Connection* connection = find(ConnectionId{timers_.begin()->second});
  TULLE_CHECK(connection != nullptr);
  return connection;
}

Time ConnectionTable::next_deadline() const {
  return timers_.empty() ? Time::never() : timers_.begin()->first;
}

void ConnectionTable::rebase(Time by) {
  rebase_timers(by, timers_);
  for (Expendable* each : {&own_, &of_peers_}) {
    rebase_timers(by, each->over);
    rebase_timers(by, each->disconnecting);
  }
  for (auto& [id, connection] : connections_) {
    tulle::rebase(by, connection.deadline, connection.gives_up_at);
  }
}

// Most entries before a connection may be dead while one lives on at the front.
void ConnectionTable::add_unanswered(ConnectionId id) {
  oldest_unanswered();
  if (unanswered_.size() > 2 * connections_.size() + 64) {
    std::erase_if(unanswered_, [this](ConnectionId each) {
      const Connection* connection = find(each);
      return connection == nullptr || connection->state != Connection::State::reply_sent;
    });
  }
  unanswered_.push_back(id);
}

// Drops the entries before the one that waits, whose connections are answered or gone.
Connection* ConnectionTable::oldest_unanswered() {
  for (; !unanswered_.empty(); unanswered_.pop_front()) {
    Connection* connection = find(unanswered_.front());
    if (connection != nullptr && connection->state == Connection::State::reply_sent) {
      return connection;
    }
  }
  return nullptr;
}

std::size_t ConnectionTable::unfinished_count() const {
  const auto count = std::count_if(connections_.begin(), connections_.end(), [](const auto& entry) {
    return !entry.second.is_over() && !entry.second.deadline.is_never();
  });
  return static_cast<std::size_t>(count);
}

}  // namespace tulle::management::cm

#pragma once

// The records of a connection manager's connections: their IDs, the peers' IDs and queue pairs that
// name them, their deadlines, and which of them make room for others.
//
// The table is full at two limits: of all records, and of those that peers asked for. Released
// records make room first: those that only remember old messages, and then those whose peer does
// not answer the DREQ. A peer's request may also take the place of the connection that has waited
// longest for its peer's RTU, which an honest peer sends within a round trip.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/random_source.h"
#include "base/time.h"
#include "management/cm/connection.h"
#include "management/cm/remote_key.h"
#include "management/cm/types.h"

namespace tulle::management::cm {

class ConnectionTable {
 public:
  struct Settings {
    RandomSource random;  // source of communication IDs and transaction IDs
    std::size_t connections_max = 0;
    std::size_t requested_max = 0;  // limit of those that peers asked for
  };
  explicit ConnectionTable(const Settings& settings) : settings_(settings) {}

  // Creates a connection that this side asks for, with a transaction ID. Returns null if there is
  // no room.
  Connection* create_active(const Route& route, Connection::State state);
  // Makes room for a connection that a peer asks for, where the limit of those is reached. Returns
  // false if no released record can go. The caller may then erase the oldest unanswered one.
  bool make_room_for_request();
  // Creates a connection that a peer asks for, after make_room_for_request(). Returns null if there
  // is no room.
  Connection* create_requested(const Route& route, Connection::State state);
  void erase(Connection& connection);

  Connection* find(ConnectionId id);
  // Returns null also if the connection's owner has released it.
  Connection* find_owned(ConnectionId id);
  // These find a connection by the sender of its REQ or SIDR_REQ, and by its remote queue pair,
  // once it has been named so. The name of a queue pair is forgotten in time wait. Number 0 is
  // nobody's.
  Connection* find_by_remote_id(const RemoteKey& key);
  Connection* find_by_remote_qp(const RemoteKey& key);
  void name_by_remote_id(const Connection& connection);
  void name_by_remote_qp(const Connection& connection);
  void forget_remote_qp(const Connection& connection);

  // Must follow a change of `state` or `is_released` too: they decide whether a connection with a
  // deadline makes room for others.
  void set_deadline(Connection& connection, Time deadline);
  // Returns the connection whose deadline is the first, or null if none has come.
  Connection* first_due(Time now);
  Time next_deadline() const;
  void rebase(Time by);

  // Adds a connection whose REP waits for an answer.
  void add_unanswered(ConnectionId id);
  // Returns the connection that has waited longest for the answer to its REP, or null.
  Connection* oldest_unanswered();

  std::size_t size() const { return connections_.size(); }
  std::size_t unanswered_size() const { return unanswered_.size(); }
  std::size_t index_size() const { return by_remote_id_.size() + by_remote_qp_.size(); }
  // Returns the number of connections that are not over and have a deadline.
  std::size_t unfinished_count() const;

 private:
  using Index = std::map<RemoteKey, ConnectionId>;
  using Timers = std::set<std::pair<Time, std::uint32_t>>;  // deadlines, and local IDs
  // Released connections that may make room for others, the first due first. They are sought by
  // what they are, and not among all timers, of which anybody's may be due sooner.
  struct Expendable {
    Timers over;           // only remember old messages
    Timers disconnecting;  // whose peer has not answered the DREQ; they go after the others
  };

  Connection* create(const Route& route, Connection::State state);
  bool evict(bool only_requested);
  bool evict_first(Timers& of);
  Expendable& expendable_of(const Connection& connection);
  Timers* expendable_with(const Connection& connection);
  void watch(Connection& connection);
  void unwatch(Connection& connection);
  Connection* find_in(const Index& index, const RemoteKey& key);

  Settings settings_;
  std::unordered_map<std::uint32_t, Connection> connections_;
  std::size_t requested_ = 0;  // connections that peers asked for
  // Connections whose REP waits for an answer, the oldest first; others may be among them.
  std::deque<ConnectionId> unanswered_;
  Index by_remote_id_;  // received REQs and SIDR_REQs
  Index by_remote_qp_;  // remote queue pairs, until time wait
  Timers timers_;
  Expendable own_, of_peers_;
};

}  // namespace tulle::management::cm

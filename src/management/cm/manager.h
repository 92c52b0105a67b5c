#pragma once

// IBTA's connection manager (chapter 12). It sets up and takes down connections by datagrams
// between the QP1s of two ports, and answers which queue pair serves a service (SIDR). It does no
// input or output: the driver tells it the time, hands it MADs and commands, and asks it for
// datagrams to send, for events, and for the time of its next deadline.
//
// Each connection is one record under its local communication ID, from the first message to the end
// of time wait. A message that expects an answer is kept and sent again until the answer comes. A
// message that is an answer (REP, RTU, DREP, REJ) is kept and sent again if the peer repeats
// itself. So every message may be lost, duplicated or late, and is acted on once. A peer that has
// asked for a connection and confirmed nothing is sent only a few messages that its own do not ask
// for (unasked_messages.h).
//
// Law: an event is reported once. After rejected, unreachable, time_wait_over, service_answer and
// service_unreachable an id is no longer valid. A connection that its owner has released reports
// nothing. It ends as its state requires, and the peer is told.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/random_source.h"
#include "base/time.h"
#include "management/cm/connection.h"
#include "management/cm/connection_table.h"
#include "management/cm/event_queue.h"
#include "management/cm/offered_services.h"
#include "management/cm/outbox.h"
#include "management/cm/receiver.h"
#include "management/cm/transitions.h"
#include "management/cm/types.h"
#include "rdma/wire/cm.h"

namespace tulle::management::cm {

class Manager {
 public:
  struct Settings {
    std::uint64_t ca_guid = 0;
    // Source of communication IDs. A live host takes them from the system's generator, so that
    // nobody who sees some can guess others.
    RandomSource random;
    // These are the values that Linux's rdma_cm asks of both sides: 4.3 s to answer, 15 repetitions
    // (cma.c).
    std::uint8_t response_timeout = 20;  // 4.096 us * 2^response_timeout
    std::uint8_t retries_max = 15;
    // Time that a slow program may take, as an MRA tells the peer (68 s; cma.c uses the same).
    std::uint8_t service_timeout = 24;
    std::size_t connections_max = 65'536;
    // Limit of the connections that peers asked for, so that strangers cannot keep this host's
    // programs from connecting.
    std::size_t requested_max = 32'768;
    // For how long a closed listener is expected to return, for how long a request waits for it,
    // and how many may do so (offered_services.h).
    Time return_window = Time::seconds(5);
    Time return_patience = Time::seconds(1);
    std::size_t held_max = 64;
  };
  explicit Manager(const Settings& settings);

  static constexpr Gid any_address = OfferedServices::any_address;

  // Starts and stops offering a service. Requests for other services are refused without an event.
  // The calls may be nested.
  void listen(Time now, std::uint64_t service_id, const Gid& address = any_address);
  void stop_listening(std::uint64_t service_id) { services_.stop_listening(service_id); }
  // Expects a service to be offered again: a request that comes within `return_window` waits for
  // listen(), for `return_patience`. `owner` is a user's number. At one address, as with listen(),
  // or at any: other services have the same ID there.
  void expect_listener(Time now, std::uint64_t service_id, std::uint32_t owner = 0,
                       const Gid& address = any_address) {
    services_.expect(now, service_id, owner, address);
  }

  // Commands return false if the connection is in the wrong state. Private data that is too long is
  // a bug of the caller.
  ConnectionId connect(Time now, const Request& request);  // 0 means too many connections
  bool accept(Time now, ConnectionId id, const Reply& reply);
  bool establish(Time now, ConnectionId id, std::span<const std::byte> private_data);
  bool reject(Time now, ConnectionId id, wire::cm::Reason reason,
              std::span<const std::byte> private_data);
  // Tells that a packet of the connection itself came, which is as good as an RTU.
  bool notify_established(Time now, ConnectionId id);
  // Asks for the disconnection, or agrees to it after disconnect_request.
  bool disconnect(Time now, ConnectionId id, std::span<const std::byte> private_data);
  ConnectionId ask_service(Time now, const ServiceQuestion& question);
  bool answer_service(Time now, ConnectionId id, const ServiceAnswer& answer);
  // Forgets a request, as if it had not come. A repetition by the peer then counts as a new
  // request.
  bool pass_over(ConnectionId id);
  // Releases a connection: its owner gets no more events of it.
  void release(Time now, ConnectionId id);

  // Handles the payload of a UD SEND that came to QP1. Returns false if it is no message of the
  // connection manager.
  bool handle(Time now, const Route& route, std::span<const std::byte> payload) {
    return receiver().handle(now, route, payload);
  }
  void advance(Time now);
  Time next_deadline() const;
  // Tells the manager that the clock's zero has moved (base/time.h).
  void rebase(Time by);

  const Outgoing* next_outgoing() const { return outbox_.next(); }
  void pop_outgoing() { outbox_.pop(); }
  std::optional<Event> pull_event() { return events_.pull(); }

  std::size_t connection_count() const { return connections_.size(); }
  std::size_t unanswered_size() const { return connections_.unanswered_size(); }
  // Returns the number of connections that still have a message to repeat or a peer to wait for,
  // and of requests that wait for a listener. Connections that only remember old messages or wait
  // for their program do not count.
  std::size_t unfinished_count() const;
  std::size_t index_size() const { return connections_.index_size(); }
  const Counters& counters() const { return counters_; }

 private:
  Transitions transitions();
  Receiver receiver();
  void send_answer(Connection& connection, Time now, const ServiceAnswer& answer);

  Settings settings_;
  OfferedServices services_;
  ConnectionTable connections_;
  Outbox outbox_;
  EventQueue events_;
  Counters counters_;
};

}  // namespace tulle::management::cm

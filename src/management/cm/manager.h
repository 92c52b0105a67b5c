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

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/random_source.h"
#include "base/time.h"
#include "management/cm/offered_services.h"
#include "management/cm/remote_key.h"
#include "management/cm/types.h"
#include "management/cm/unasked_messages.h"
#include "rdma/wire/cm.h"

namespace tulle::management::cm {

// Returns 4.096 us * 2^exponent (IBTA's way to write times in 5 bits).
constexpr Time exponential_time(std::uint8_t exponent) {
  return Time::nanoseconds(4'096) * (std::int64_t{1} << (exponent < 31 ? exponent : 31));
}

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
  bool handle(Time now, const Route& route, std::span<const std::byte> payload);
  void advance(Time now);
  Time next_deadline() const;
  // Tells the manager that the clock's zero has moved (base/time.h).
  void rebase(Time by);

  const Outgoing* next_outgoing() const { return outgoing_.empty() ? nullptr : &outgoing_.front(); }
  void pop_outgoing() { outgoing_.pop_front(); }
  std::optional<Event> pull_event();

  std::size_t connection_count() const { return connections_.size(); }
  std::size_t unanswered_size() const { return unanswered_.size(); }
  // Returns the number of connections that still have a message to repeat or a peer to wait for,
  // and of requests that wait for a listener. Connections that only remember old messages or wait
  // for their program do not count.
  std::size_t unfinished_count() const;
  std::size_t index_size() const { return by_remote_id_.size() + by_remote_qp_.size(); }
  const Counters& counters() const { return counters_; }

 private:
  // A longer packet lifetime than 4.3 s would keep records of old connections for hours.
  static constexpr std::uint8_t packet_lifetime_max = 20;

  // States of IBTA 12.9.5 and 12.9.6.
  enum class State : std::uint8_t {
    request_sent,
    request_received,
    reply_sent,
    reply_received,
    established,
    disconnect_sent,
    disconnect_received,
    time_wait,  // `kept` answers the peer's repetitions
    question_sent,
    question_received,
    answered,
  };
  // An answered request ends after this time, however long its sender wants to be waited for. Linux
  // waits about a minute (CMA_CM_RESPONSE_TIMEOUT, CMA_MAX_CM_RETRIES).
  static constexpr Time reply_time_max = Time::seconds(128);

  struct Connection {
    ConnectionId id;
    std::uint32_t remote_id = 0;  // 0 means not known
    State state{};
    bool is_active = false;     // sent the REQ or SIDR_REQ
    bool is_requested = false;  // the peer sent it
    bool is_released = false;   // its owner wants no more events
    std::uint8_t retries_left = 0;
    std::uint8_t packet_lifetime = 0;
    Route route;
    Gid answers_from;  // the peer's address in its REP, if it is another
    std::uint64_t transaction_id = 0;
    std::uint64_t remote_guid = 0;
    QpNumber local_qp;
    QpNumber remote_qp;
    std::uint64_t service_id = 0;
    bool has_kept = false;
    bool has_asked_patience = false;  // sent an MRA
    Time interval;                    // time between repetitions
    Time deadline = Time::never();
    Time gives_up_at = Time::never();  // for an answered request, whatever the peer asks for
    std::array<std::byte, wire::mad_bytes> kept{};
  };
  using ConnectionMap = std::unordered_map<std::uint32_t, Connection>;
  using Timers = std::set<std::pair<Time, std::uint32_t>>;  // deadlines, and local IDs

  // manager.cc: connections, timers, sending
  Connection* find(ConnectionId id);
  Connection* find_owned(ConnectionId id);
  Connection* find(std::uint32_t local_id, std::uint32_t remote_id);
  Connection* create(const Route& route, State state);
  Connection* create_requested(const Route& route, State state);
  bool evict(bool only_requested);
  bool evict_first(Timers& of);
  bool evict_unanswered();
  void add_unanswered(ConnectionId id);
  Connection* oldest_unanswered();
  static bool is_over(const Connection& connection);
  Timers* expendable_with(const Connection& connection);
  void watch(Connection& connection);
  void unwatch(Connection& connection);
  void erase(Connection& connection);
  RemoteKey remote_key(const Connection& connection) const;
  RemoteKey remote_qp_key(const Connection& connection) const;
  void note_remote_qp(const Connection& connection);
  void forget_remote_qp(const Connection& connection);
  void set_deadline(Connection& connection, Time deadline);
  void repeat_until_answered(Connection& connection, Time now);
  void enter_time_wait(Connection& connection, Time now, Time span);
  void give_up(Connection& connection, Time now);
  static std::uint8_t lifetime_of(const Connection& connection);
  static Time time_wait_of(const Connection& connection);
  Event* tell(const Connection& connection, Event::Kind kind);
  template <typename Message>
  void keep(Connection& connection, const Message& message);
  void send_kept(const Connection& connection);
  void send_kept_unasked(const Connection& connection, Time now);
  static bool is_unconfirmed(const Connection& connection);
  bool keeps_reject(const Connection& connection) const;
  template <typename Message>
  void send(const Route& route, std::uint64_t transaction_id, const Message& message);
  void keep_reject(Connection& connection, wire::cm::Subject subject, wire::cm::Reason reason,
                   std::span<const std::byte> private_data);
  void reject_and_wait(Connection& connection, Time now, wire::cm::Subject subject,
                       wire::cm::Reason reason, std::span<const std::byte> private_data);
  void refuse(const Route& route, std::uint64_t transaction_id, std::uint32_t local_id,
              std::uint32_t remote_id, wire::cm::Subject subject, wire::cm::Reason reason);
  void send_disconnect_request(Connection& connection, Time now,
                               std::span<const std::byte> private_data);
  void send_disconnect_reply(Connection& connection, Time now,
                             std::span<const std::byte> private_data);
  void send_mra(Connection& connection, wire::cm::Subject subject);

  // manager_messages.cc: one for each message
  struct Received {
    Time now;
    const Route& route;
    std::uint64_t transaction_id = 0;
    std::span<const std::byte> mad;
  };
  void dispatch(const Received& received, std::uint16_t attribute,
                std::span<const std::byte> message);
  void handle(const Received& received, const wire::cm::Request& message);
  void handle(const Received& received, const wire::cm::MessageReceiptAcknowledgement& message);
  void handle(const Received& received, const wire::cm::Reject& message);
  void handle(const Received& received, const wire::cm::Reply& message);
  void handle(const Received& received, const wire::cm::ReadyToUse& message);
  void handle(const Received& received, const wire::cm::DisconnectRequest& message);
  void handle(const Received& received, const wire::cm::DisconnectReply& message);
  void handle(const Received& received, const wire::cm::ServiceIdRequest& message);
  void handle(const Received& received, const wire::cm::ServiceIdReply& message);
  void handle(const Received& received, const wire::cm::LoadAlternatePath& message);
  void handle_again(Connection& connection);
  static bool is_from_peer(const Connection& connection, const Received& received);
  Connection* find(const Received& received, std::uint32_t local_id, std::uint32_t remote_id);
  Connection* find_rejected(const wire::cm::Reject& message, const Received& received);
  std::optional<wire::cm::Reason> objection_to(const wire::cm::Request& message) const;
  bool break_stale(const RemoteKey& remote_qp, Time now);

  // manager_services.cc: requests that wait for a listener
  bool hold(const Received& received, std::uint64_t service_id, const RemoteKey& from);
  void handle_held(Time now, const OfferedServices::Held& held);
  void refuse_overdue(Time now);

  Settings settings_;
  RandomSource random_;
  ConnectionMap connections_;
  std::size_t requested_ = 0;  // connections that peers asked for
  // Connections whose REP waits for an answer, the oldest first; others may be among them.
  std::deque<ConnectionId> unanswered_;
  std::map<RemoteKey, ConnectionId> by_remote_id_;  // received REQs and SIDR_REQs
  std::map<RemoteKey, ConnectionId> by_remote_qp_;  // remote queue pairs, until time wait
  OfferedServices services_;
  UnaskedMessages unasked_;
  Timers timers_;
  // Released connections that may make room for others, the first due first. They are sought by
  // what they are, and not among all timers, of which anybody's may be due sooner.
  struct Expendable {
    Timers over;           // only remember old messages
    Timers disconnecting;  // whose peer has not answered the DREQ; they go after the others
  };
  Expendable own_, of_peers_;
  std::deque<Outgoing> outgoing_;
  std::deque<Event> events_;
  Counters counters_;
};

}  // namespace tulle::management::cm

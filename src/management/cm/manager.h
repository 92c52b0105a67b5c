#pragma once

// IBTA's connection manager (chapter 12): sets up and takes down connections by datagrams between
// the QP1s of two ports, and answers which queue pair serves a service (SIDR). Without input and
// output: it is told the time, handed MADs and commands, and asked what to send, what to tell and
// when to be woken.
//
// Each connection is one record under its local communication ID, from the first message to the end
// of time wait. The message that the other side's next one answers is kept and sent again until it
// comes; one that answers (REP, RTU, DREP, REJ) is kept to be sent again where the other side
// repeats itself. So every message may be lost, doubled or late, and is acted on once.
//
// Law: an event is told once; after rejected, unreachable, time_wait_over, service_answer and
// service_unreachable an id means nothing any more. A connection that its owner lets go of tells
// nothing, and ends as its state asks for: whoever is at the other end is told.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/random.h"
#include "base/time.h"
#include "management/cm/types.h"
#include "wire/cm.h"

namespace tulle::management::cm {

// 4.096 us * 2^exponent (IBTA's way to write times of 5 bits).
constexpr Time exponential_time(std::uint8_t exponent) {
  return Time::nanoseconds(4'096) * (std::int64_t{1} << (exponent < 31 ? exponent : 31));
}

class Manager {
 public:
  struct Settings {
    std::uint64_t ca_guid = 0;
    std::uint64_t seed =
        0;  // of communication IDs, which should not repeat those of an earlier run
    // What Linux's rdma_cm asks of both sides: 4.3 s to answer, 15 repetitions (cma.c).
    std::uint8_t response_timeout = 20;  // 4.096 us * 2^it
    std::uint8_t retries_max = 15;
    // How long a slow program may take, as we tell the other side (68 s; cma.c says the same).
    std::uint8_t service_timeout = 24;
    std::size_t connections_max = 65'536;
    // Some servers agree with their client over a first connection, take the listener down, and put
    // up the next (perftest's -R, one second later in part). The client, told so over the first
    // connection, asks at the same time; over a network it is as a rule a moment later, on one host
    // as often too early. For how long a listener is expected that went, and for how long a request
    // waits for it: long enough for a server that waits for its turn on a busy machine, and little
    // of the 4.3 s for which the other side waits.
    Time return_window = Time::seconds(5);
    Time return_patience = Time::seconds(1);
    std::size_t held_max = 64;  // requests that wait, and services that are expected
  };
  explicit Manager(const Settings& settings);

  // Services: requests for others are refused without a word to anybody. May be nested.
  void listen(Time now, std::uint64_t service_id);
  void stop_listening(std::uint64_t service_id);
  // A request that comes within `return_window` waits for listen(), for `return_patience`.
  void expect_listener(Time now, std::uint64_t service_id);

  // Commands: false where the connection is in no state for it. Private data that is too long is a
  // bug of the caller's.
  ConnectionId connect(Time now, const Request& request);  // 0: too many connections
  bool accept(Time now, ConnectionId id, const Reply& reply);
  bool establish(Time now, ConnectionId id, std::span<const std::byte> private_data);
  bool reject(Time now, ConnectionId id, wire::cm::Reason reason,
              std::span<const std::byte> private_data);
  // A packet of the connection itself came: as good as an RTU.
  bool notify_established(Time now, ConnectionId id);
  // Asks for it, or agrees to it after disconnect_request.
  bool disconnect(Time now, ConnectionId id, std::span<const std::byte> private_data);
  ConnectionId ask_service(Time now, const ServiceQuestion& question);
  bool answer_service(Time now, ConnectionId id, const ServiceAnswer& answer);
  // After request: as if it had not come. The other side asks again, as a new one.
  bool pass_over(ConnectionId id);
  // Its owner wants to hear nothing of it any more.
  void release(Time now, ConnectionId id);

  // What came to QP1: the payload of a UD SEND. False: no message of the connection manager's.
  bool handle(Time now, const Route& route, std::span<const std::byte> payload);
  void advance(Time now);
  Time next_deadline() const;

  const Outgoing* next_outgoing() const { return outgoing_.empty() ? nullptr : &outgoing_.front(); }
  void pop_outgoing() { outgoing_.pop_front(); }
  std::optional<Event> pull_event();

  std::size_t connection_count() const { return connections_.size(); }
  // Those that still have something to say or to wait for by themselves: not those that only
  // remember what was said, nor those that wait for their program.
  std::size_t unfinished_count() const;
  std::size_t index_size() const { return by_remote_id_.size() + by_remote_qp_.size(); }
  const Counters& counters() const { return counters_; }

 private:
  // IBTA 12.9.5, 12.9.6.
  enum class State : std::uint8_t {
    request_sent,
    request_received,
    reply_sent,
    reply_received,
    established,
    disconnect_sent,
    disconnect_received,
    time_wait,  // `kept` answers what the other side repeats
    question_sent,
    question_received,
    answered,
  };
  struct Connection {
    ConnectionId id;
    std::uint32_t remote_id = 0;  // 0: not known
    State state{};
    bool is_active = false;    // sent the REQ
    bool is_released = false;  // nobody wants to hear of it
    std::uint8_t retries_left = 0;
    std::uint8_t packet_lifetime = 0;
    Route route;
    std::uint64_t transaction_id = 0;
    std::uint64_t remote_guid = 0;
    QpNumber local_qp;
    QpNumber remote_qp;
    std::uint64_t service_id = 0;
    bool has_kept = false;
    bool has_asked_patience = false;  // sent an MRA
    Time interval;                    // between repetitions
    Time deadline = Time::never();
    std::array<std::byte, wire::mad_bytes> kept{};
  };
  // Who a message is from: the CA's GUID alone would not do where namespaces share a machine.
  // The last says whether it is of a SIDR_REQ, whose numbers are others.
  using RemoteKey = std::tuple<Gid, std::uint64_t, std::uint32_t, bool>;
  using ConnectionMap = std::unordered_map<std::uint32_t, Connection>;

  // manager.cc: connections, timers, sending
  Connection* find(ConnectionId id);
  Connection* find_owned(ConnectionId id);
  Connection* find(std::uint32_t local_id, std::uint32_t remote_id);
  Connection* create(const Route& route, State state);
  bool evict();
  static bool is_over(const Connection& connection);
  void erase(Connection& connection);
  RemoteKey remote_key(const Connection& connection) const;
  RemoteKey remote_qp_key(const Connection& connection) const;
  void forget_remote_qp(const Connection& connection);
  void set_deadline(Connection& connection, Time deadline);
  void repeat_until_answered(Connection& connection, Time now);
  void enter_time_wait(Connection& connection, Time now, Time span);
  void give_up(Connection& connection, Time now);
  Time time_wait_of(const Connection& connection) const;
  Event* tell(const Connection& connection, Event::Kind kind);
  template <typename Message>
  void keep(Connection& connection, const Message& message);
  void send_kept(const Connection& connection);
  bool keeps_reject(const Connection& connection) const;
  template <typename Message>
  void send(const Route& route, std::uint64_t transaction_id, const Message& message);
  void send_reject(Connection& connection, wire::cm::Subject subject, wire::cm::Reason reason,
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
  Connection* find_rejected(const wire::cm::Reject& message, const Route& route);
  std::optional<wire::cm::Reason> objection_to(const wire::cm::Request& message) const;
  bool break_stale(const RemoteKey& remote_qp, Time now);

  // manager_services.cc: requests that wait for a listener
  struct Held {
    Time deadline;
    std::uint64_t service_id = 0;
    RemoteKey from;
    Route route;
    std::array<std::byte, wire::mad_bytes> mad{};
  };
  bool hold(const Received& received, std::uint64_t service_id, const RemoteKey& from);
  void drop_held(const RemoteKey& from);
  void handle_held(Time now, const Held& held);
  void refuse_overdue(Time now);

  Settings settings_;
  Random random_;
  std::uint32_t next_id_ = 0;
  std::uint32_t id_mask_ = 0;
  ConnectionMap connections_;
  std::map<RemoteKey, ConnectionId> by_remote_id_;  // REQs and SIDR_REQs that came
  std::map<RemoteKey, ConnectionId> by_remote_qp_;  // while connected
  std::map<std::uint64_t, unsigned> services_;
  std::map<std::uint64_t, Time> expected_;  // services that may return, and until when
  std::vector<Held> held_;
  std::set<std::pair<Time, std::uint32_t>> timers_;
  std::deque<Outgoing> outgoing_;
  std::deque<Event> events_;
  Counters counters_;
};

}  // namespace tulle::management::cm

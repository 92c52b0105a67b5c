#pragma once

// The record of a connection, or of a question for a service, from the first message to the end of
// time wait. A connection manager keeps one under each local communication ID.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/ids.h"
#include "base/time.h"
#include "management/cm/remote_key.h"
#include "management/cm/types.h"
#include "rdma/wire/cm.h"

namespace tulle::management::cm {

// Returns 4.096 us * 2^exponent (IBTA's way to write times in 5 bits).
constexpr Time exponential_time(std::uint8_t exponent) {
  return Time::nanoseconds(4'096) * (std::int64_t{1} << (exponent < 31 ? exponent : 31));
}

struct Connection {
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
  // A longer packet lifetime than 4.3 s would keep records of old connections for hours.
  static constexpr std::uint8_t packet_lifetime_max = 20;

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

  // Returns true if the record only remembers old messages.
  bool is_over() const { return state == State::time_wait || state == State::answered; }
  // Returns true if the peer has had its answer, and has not shown that it got it.
  bool is_unconfirmed() const { return is_requested && state == State::reply_sent; }
  bool keeps_reject() const;
  bool is_from_peer(const Gid& from, std::uint64_t transaction) const;
  // Returns the packet lifetime, bounded, as an exponent. The peer chooses it.
  std::uint8_t lifetime() const;
  Time time_wait() const;
  // Names of the peer's side: by its ID, and by its queue pair.
  RemoteKey remote_key() const;
  RemoteKey remote_qp_key() const;

  // Keeps a message, in place of what was kept.
  template <typename Message>
  void keep(const Message& message) {
    const wire::cm::Mad<Message> mad{wire::cm::header_of(Message::attribute, transaction_id),
                                     message};
    std::memcpy(kept.data(), &mad, sizeof(mad));
    has_kept = true;
  }
};

}  // namespace tulle::management::cm

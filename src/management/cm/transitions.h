#pragma once

// The transitions between a connection's states (IBTA 12.9.5 and 12.9.6) that commands, received
// messages and deadlines have in common: repetition, rejection, disconnection and time wait. Each
// sends the message that belongs to it, and sets the next deadline. All state is in the table, the
// outbox and the events that it refers to.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/time.h"
#include "management/cm/connection.h"
#include "management/cm/connection_table.h"
#include "management/cm/event_queue.h"
#include "management/cm/outbox.h"
#include "rdma/wire/cm.h"

namespace tulle::management::cm {

class Transitions {
 public:
  struct Settings {
    std::uint64_t ca_guid = 0;
    std::uint8_t retries_max = 0;
    std::uint8_t service_timeout = 0;  // 4.096 us * 2^service_timeout
  };
  Transitions(const Settings& settings, ConnectionTable& connections, Outbox& outbox,
              EventQueue& events)
      : settings_(settings), connections_(connections), outbox_(outbox), events_(events) {}

  // Sends the kept message, and again after each interval.
  void repeat_until_answered(Connection& connection, Time now);
  // Asks the peer, which repeats itself, to wait for this side's program.
  void ask_patience(Connection& connection, wire::cm::Subject subject);

  void send_disconnect_request(Connection& connection, Time now,
                               std::span<const std::byte> private_data);
  void send_disconnect_reply(Connection& connection, Time now,
                             std::span<const std::byte> private_data);
  void enter_time_wait(Connection& connection, Time now);

  // Rejects and keeps the record for as long as the peer may repeat its message. A repetition then
  // gets the same answer, rather than look like a new message to a program.
  void reject_and_wait(Connection& connection, Time now, wire::cm::Subject subject,
                       wire::cm::Reason reason, std::span<const std::byte> private_data);
  // Takes back a REQ that has no answer. The connection no longer exists.
  void cancel_request(Connection& connection);
  // Ends a connection whose peer has not answered any repetition. The peer is told, in case it
  // lives (IBTA 12.9.8.2). The connection may no longer exist.
  void give_up(Connection& connection, Time now);

 private:
  void enter_time_wait(Connection& connection, Time now, Time span);
  void keep_reject(Connection& connection, wire::cm::Subject subject, wire::cm::Reason reason,
                   std::span<const std::byte> private_data);

  Settings settings_;
  ConnectionTable& connections_;
  Outbox& outbox_;
  EventQueue& events_;
};

}  // namespace tulle::management::cm

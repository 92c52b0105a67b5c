#pragma once

// Handles the messages that a connection manager receives: finds the connection of each, advances
// it, and answers. Requests for a service whose listener has just gone wait for its return
// (offered_services.h). A receiver keeps nothing between messages: all state is in the parts that
// it refers to.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/time.h"
#include "management/cm/connection.h"
#include "management/cm/connection_table.h"
#include "management/cm/event_queue.h"
#include "management/cm/offered_services.h"
#include "management/cm/outbox.h"
#include "management/cm/remote_key.h"
#include "management/cm/transitions.h"
#include "management/cm/types.h"
#include "rdma/wire/cm.h"

namespace tulle::management::cm {

class Receiver {
 public:
  // The parts of a manager that messages change.
  struct Parts {
    ConnectionTable& connections;
    OfferedServices& services;
    Outbox& outbox;
    EventQueue& events;
    Counters& counters;
    Transitions transitions;
  };
  // The record of an answered question for a service is kept for two of these intervals.
  Receiver(const Parts& parts, Time question_interval);

  // Handles the payload of a UD SEND that came to QP1. Returns false if it is no message of the
  // connection manager.
  bool handle(Time now, const Route& route, std::span<const std::byte> payload);
  // Handles a request that has waited, as if it came now.
  void handle_held(Time now, const OfferedServices::Held& held);

 private:
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
  Connection* find(const Received& received, std::uint32_t local_id);
  Connection* find(const Received& received, std::uint32_t local_id, std::uint32_t remote_id);
  Connection* find_rejected(const wire::cm::Reject& message, const Received& received);
  Connection* create_requested(const Route& route, Connection::State state);
  void handle_again(Connection& connection);
  bool hold(const Received& received, std::uint64_t service_id, const RemoteKey& from);
  std::optional<wire::cm::Reason> objection_to(const wire::cm::Request& message) const;
  bool break_stale(const RemoteKey& remote_qp, Time now);
  void refuse(const Received& received, std::uint32_t local_id, std::uint32_t remote_id,
              wire::cm::Subject subject, wire::cm::Reason reason);

  ConnectionTable& connections_;
  OfferedServices& services_;
  Outbox& outbox_;
  EventQueue& events_;
  Counters& counters_;
  Transitions transitions_;
  Time question_interval_;
};

}  // namespace tulle::management::cm

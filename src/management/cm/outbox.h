#pragma once

// The datagrams of a connection manager that its driver has not sent yet. The outbox knows which
// addresses have proven that they are their sender's: others are marked, and get only a few
// messages that they have not asked for (unasked_messages.h).

#include <cstdint>
#include <cstring>
#include <deque>

#include "base/ids.h"
#include "base/time.h"
#include "management/cm/connection.h"
#include "management/cm/types.h"
#include "management/cm/unasked_messages.h"
#include "rdma/wire/cm.h"

namespace tulle::management::cm {

class Outbox {
 public:
  template <typename Message>
  void send(const Route& route, std::uint64_t transaction_id, const Message& message) {
    Outgoing& out = outgoing_.emplace_back();
    out.route = route;
    out.is_to_stranger = !unasked_.is_proven(route.remote);
    const wire::cm::Mad<Message> mad{wire::cm::header_of(Message::attribute, transaction_id),
                                     message};
    std::memcpy(out.bytes.data(), &mad, sizeof(mad));
  }
  // Sends the message that the connection keeps.
  void send_kept(const Connection& connection);
  // Sends the kept message although no message of the peer asks for it now.
  void send_kept_unasked(const Connection& connection, Time now);

  // The address has named a random ID that was sent there.
  void prove(const Gid& address) { unasked_.prove(address); }

  const Outgoing* next() const { return outgoing_.empty() ? nullptr : &outgoing_.front(); }
  void pop() { outgoing_.pop_front(); }
  void rebase(Time by) { unasked_.rebase(by); }

 private:
  UnaskedMessages unasked_;
  std::deque<Outgoing> outgoing_;
};

}  // namespace tulle::management::cm

#include "management/cm/connection.h"

#include <algorithm>
#include <span>

#include "rdma/wire/mad.h"

namespace tulle::management::cm {

bool Connection::keeps_reject() const {
  std::span<const std::byte> rest = kept;
  return has_kept && wire::take<wire::MadHeader>(rest).attribute_id ==
                         static_cast<std::uint16_t>(wire::cm::Attribute::reject);
}

// A host may answer from another of its addresses than the one that was asked. It proves by the
// transaction ID of its REP that it has seen the REQ.
bool Connection::is_from_peer(const Gid& from, std::uint64_t transaction) const {
  return from == route.remote || from == answers_from || transaction == transaction_id;
}

std::uint8_t Connection::lifetime() const { return std::min(packet_lifetime, packet_lifetime_max); }

// Returns the time for which packets of the connection may still be under way (IBTA 12.9.8.4).
// Linux takes the ACK timeout for it.
Time Connection::time_wait() const {
  return exponential_time(static_cast<std::uint8_t>(lifetime() + 1));
}

RemoteKey Connection::remote_key() const {
  const bool is_question = state == State::question_received || state == State::answered;
  return {route.remote, remote_guid, remote_id, is_question};
}

RemoteKey Connection::remote_qp_key() const {
  return {route.remote, remote_guid, remote_qp.value, false};
}

}  // namespace tulle::management::cm

#include "management/cm/outbox.h"

namespace tulle::management::cm {

void Outbox::send_kept(const Connection& connection) {
  const bool is_to_stranger = !connection.is_active && !unasked_.is_proven(connection.route.remote);
  outgoing_.push_back({connection.route, connection.kept, is_to_stranger});
}

void Outbox::send_kept_unasked(const Connection& connection, Time now) {
  if (connection.is_unconfirmed() && !unasked_.may_send(now, connection.route.remote)) return;
  send_kept(connection);
}

}  // namespace tulle::management::cm

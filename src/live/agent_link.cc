#include "live/agent_link.h"

#include <fcntl.h>

#include <array>
#include <cerrno>

#include "live/agent_client.h"
#include "live/protocol.h"

namespace tulle::live {

AgentLink::AgentLink(const Settings& settings, UniqueFd connection, Rights rights)
    : settings_(settings), connection_(std::move(connection)), rights_(std::move(rights)) {}

void AgentLink::expose(int table_fd) {
  if (table_fd >= 0 && !rights_.table) rights_.table.reset(fcntl(table_fd, F_DUPFD_CLOEXEC, 0));
  const int table = rights_.table.get();
  if (table < 0) return;
  static_cast<void>(send_message(connection_.get(), encode(Expose{}), {&table, 1}));
}

Result<ReceivedMessage> AgentLink::receive() {
  auto message = receive_message(connection_.get());
  if (!message && message.error().error_number != EAGAIN) connection_.reset();
  return message;
}

bool AgentLink::reconnect() {
  auto connection = connect_to_agent(settings_);
  if (!connection) return false;
  const std::array<int, 2> fds = {rights_.vault.get(), rights_.counters.get()};
  const Rejoin rejoin{rights_.slot, program_name(), rights_.device};
  if (!send_message(connection->get(), encode(rejoin), fds)) return false;
  connection_ = std::move(*connection);
  expose(-1);
  return true;
}

}  // namespace tulle::live

#include "live/process/agent_link.h"

#include <fcntl.h>

#include <array>
#include <cerrno>

#include "live/message/protocol.h"
#include "live/process/agent_client.h"
#include "live/process/seal_choice.h"

namespace tulle::live {

AgentLink::AgentLink(const Settings& settings, UniqueFd connection, Rights rights)
    : settings_(settings), connection_(std::move(connection)), rights_(std::move(rights)) {}

void AgentLink::expose(int table_fd, int doorbell_fd) {
  rights_.doorbell.reset(fcntl(doorbell_fd, F_DUPFD_CLOEXEC, 0));
  rights_.table.reset(fcntl(table_fd, F_DUPFD_CLOEXEC, 0));
  tell_exposed();
}

void AgentLink::tell_exposed() {
  if (!rights_.table || !rights_.doorbell) return;
  const std::array<int, 2> fds = {rights_.table.get(), rights_.doorbell.get()};
  static_cast<void>(send_message(connection_.get(), encode(Expose{}), fds));
}

Result<ReceivedMessage> AgentLink::receive() { return receive_message(connection_.get()); }

void AgentLink::close() { connection_.reset(); }

void AgentLink::tell_held(std::uint32_t version, const std::bitset<gids_max>& held) {
  GidsHeld message;
  message.version = version;
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (held[i]) message.indices[i / 64] |= std::uint64_t{1} << i % 64;
  }
  if (connection_) static_cast<void>(send_message(connection_.get(), encode(message)));
}

bool AgentLink::reconnect(const DeviceInfo& device) {
  auto connection = connect_to_agent(settings_);
  if (!connection) return false;
  const std::array<int, 2> fds = {rights_.vault.get(), rights_.counters.get()};
  DeviceChoice choice = settings_.device;
  choice.name = device.name;
  // An agent that seals otherwise must not get at the host's sockets.
  auto key = own_key(settings_);
  if (!key) return false;
  const Rejoin rejoin{rights_.slot, program_name(), choice, device, key->proof};
  if (!send_message(connection->get(), encode(rejoin), fds)) return false;
  connection_ = std::move(*connection);
  tell_exposed();
  return true;
}

}  // namespace tulle::live

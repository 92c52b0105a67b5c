#pragma once

// A process's connection to the agent, once it has a slot: the agent may ask something of it, may
// die, and a new one may appear. Used by the device's thread alone.

#include <bitset>
#include <cstdint>

#include "live/agent/gid_table.h"
#include "live/message/socket.h"
#include "live/settings.h"
#include "live/unique_fd.h"

namespace tulle::live {

class AgentLink {
 public:
  struct Rights {
    std::uint32_t slot = 0;
    UniqueFd lock;   // says to any agent that the slot is in use
    UniqueFd vault;  // keeps all sockets of the host open; none where the agent is another user's
    UniqueFd counters;
    UniqueFd table;  // what peers of this host may reach; none: nothing
  };
  AgentLink() = default;
  AgentLink(const Settings& settings, UniqueFd connection, Rights rights);

  // Whether a new agent would have us.
  bool may_reconnect() const { return static_cast<bool>(rights_.vault); }
  // -1: none.
  int vault() const { return rights_.vault.get(); }
  // -1 while there is no agent.
  int socket() const { return connection_.get(); }
  // Tells the agent what peers may reach.
  void expose(int table_fd);
  // The next message; the error_number is EAGAIN where there is none. Where the agent is gone,
  // ECONNRESET, and the connection is closed.
  Result<ReceivedMessage> receive();
  // Which of a changed device's addresses that went away are still in use.
  void tell_held(std::uint32_t version, const std::bitset<gids_max>& held);
  // Connects to a new agent if there is one, and hands it what it must know. Only tries: call again
  // later.
  bool reconnect(const DeviceInfo& device);

 private:
  Settings settings_;
  UniqueFd connection_;
  Rights rights_;
};

}  // namespace tulle::live

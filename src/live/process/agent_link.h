#pragma once

// A process's connection to the host agent, once the process has a slot. The agent may ask the
// process for something, may die, and a new agent may appear. Only the device's thread uses this
// class.

#include <bitset>
#include <cstdint>

#include "live/message/device_info.h"
#include "live/message/socket.h"
#include "live/settings.h"
#include "os/unique_fd.h"

namespace tulle::live {

class AgentLink {
 public:
  struct Rights {
    std::uint32_t slot = 0;
    UniqueFd lock;   // tells any agent that the slot is in use
    UniqueFd vault;  // keeps the host's sockets open; empty if the agent is another user's
    UniqueFd counters;
    // Peers of this host map the table, and wake this process by the doorbell. Both are empty if
    // the device exposes nothing.
    UniqueFd table;
    UniqueFd doorbell;
  };
  AgentLink() = default;
  AgentLink(const Settings& settings, UniqueFd connection, Rights rights);

  // Returns true if a new agent would accept this process.
  bool may_reconnect() const { return static_cast<bool>(rights_.vault); }
  // Returns the descriptor of the descriptor store, or -1 if there is none.
  int vault() const { return rights_.vault.get(); }
  // Returns the connection's descriptor, or -1 while there is no agent.
  int socket() const { return connection_.get(); }
  // Hands the agent what peers get. The caller keeps its descriptors.
  void expose(int table_fd, int doorbell_fd);
  // Returns the next message. The error_number is EAGAIN if there is none, and EMFILE if this
  // process had no room for its descriptors: the message is lost, and nothing else. Any other means
  // that the agent is gone, and the caller must call close().
  Result<ReceivedMessage> receive();
  void close();
  // Tells the agent which withdrawn addresses of a changed device are still in use.
  void tell_held(std::uint32_t version, const std::bitset<gids_max>& held);
  // Connects to a new agent if there is one, and hands over what that agent must know. Returns
  // false if this fails; the caller must try again later.
  bool reconnect(const DeviceInfo& device);

 private:
  void tell_exposed();

  Settings settings_;
  UniqueFd connection_;
  Rights rights_;
};

}  // namespace tulle::live

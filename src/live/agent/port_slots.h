#pragma once

// The host's UDP port, and its slots, of which each process with a device has one.

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "live/agent/session.h"
#include "live/message/protocol.h"
#include "live/path/packets/socket_group.h"
#include "live/slots.h"
#include "os/unique_fd.h"

namespace tulle::live {

class PortSlots {
 public:
  // The first slot varies with `seed`, so that the queue pair numbers of an earlier run are not
  // reused at once.
  PortSlots(std::uint16_t port, std::uint64_t seed)
      : port_(port), next_slot_(agent_slot + 1 + static_cast<std::uint32_t>(seed % (slots - 1))) {}

  // Binds the port. If the port is taken, the agent recovers: it waits for a process that survived
  // an earlier agent to bring the descriptor store. It also tries again now and then, because an
  // agent that exits, or was killed, releases its address a moment before its port.
  Result<void> open();
  bool is_open() const { return group_.has_value(); }
  bool is_recovering() const { return recovering_until_.has_value(); }
  // Returns when open() is called again while it recovers.
  Clock::time_point retry_at() const { return retry_at_; }
  // Takes the group of an earlier agent, from a descriptor store that a process kept.
  Result<void> recover(UniqueFd vault);

  // Closes this process's sockets of the port.
  void close() { group_.reset(); }

  // The port must be open.
  SocketGroup& group() { return *group_; }
  // Gives a session a slot, and returns the slot's lock.
  Result<UniqueFd> take(Session& session);
  // Returns the state of a session's process, or of the one that had the slot last.
  ProcessStatus status_of(const Session& session);

 private:
  std::uint16_t port_;
  std::optional<SocketGroup> group_;
  std::optional<Clock::time_point> recovering_until_;
  Clock::time_point retry_at_;
  std::uint32_t next_slot_;
};

}  // namespace tulle::live

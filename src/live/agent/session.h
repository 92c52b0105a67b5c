#pragma once

// A connection to the host agent.

#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "live/connections/connection_service.h"
#include "live/message/counters_page.h"
#include "live/message/device_info.h"
#include "live/message/protocol.h"
#include "live/message/socket.h"
#include "live/path/packets/relay.h"
#include "live/slots.h"
#include "os/unique_fd.h"

namespace tulle::live {

using Clock = std::chrono::steady_clock;

struct Session {
  enum class State : std::uint8_t {
    greeting,  // no message received yet
    held,      // said hello before the agent could serve it
    process,   // owns a slot
    status,    // answered a moment after the processes were asked to publish
    capture,
    channel,  // a program's channel to the connection manager
    closing,
  };
  State state = State::greeting;
  UniqueFd connection;
  std::size_t descriptors_unread = 0;  // at most, of those sent to a user who is limited
  UniqueFd process;                    // pidfd, since a forked child may keep the connection open
  Peer peer;
  Hello hello;
  // Set in the state `process`.
  std::uint32_t slot = agent_slot;
  CountersPage counters;
  // A process of another user than the agent's has a relay, and the agent holds its slot's lock.
  std::optional<Relay> relay;
  UniqueFd lock;
  const Session* captured_by = nullptr;  // state `process`: the capture that gets its frames
  ConnectionService::ChannelNumber channel = 0;
  // State `process`: what it exposes to peers on this host (live/path/memory).
  UniqueFd table;
  UniqueFd doorbell;
  // State `process`: the version of its device that the process was told of, the version that it
  // has taken note of, and the withdrawn addresses that it still used then.
  std::uint32_t version_told = 0;
  std::uint32_t version_noted = 0;
  std::bitset<gids_max> gids_held;
  // State `greeting`: the latest time for a hello. State `status`: the time to answer.
  Clock::time_point due;
};

}  // namespace tulle::live

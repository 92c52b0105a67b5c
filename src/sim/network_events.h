#pragma once

// These structs say what happens in a simulated network, to the application and to observers.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/time.h"
#include "rdma/port/frame.h"
#include "rdma/port/port.h"

namespace tulle::sim {

// An event that may concern the application.
struct NetworkEvent {
  enum class Kind : std::uint8_t { nothing, host, alarm };
  Kind kind = Kind::nothing;  // nothing: no event is left
  std::uint32_t host = 0;     // host: has new completions; alarm: host of the alarm
  std::uint32_t token = 0;    // token of an alarm
};

// A frame or message that a port begins to send, and the time at which the other end acts on it.
struct Sending {
  Time now;
  Time arrives;
  std::uint32_t node = 0;
  std::uint16_t port = 0;
  const port::Frame* frame = nullptr;  // null: a control message
  port::Control control;
  const std::byte* payload = nullptr;  // payload of the frame; null: a ghost
  std::uint32_t ghost_bytes = 0;       // bytes at the end of the payload that are ghosts
  bool lost = false;                   // the link goes down before the frame arrives
};

// A frame that a switch drops, as it comes in or because its link is gone. The frame's `in_port` is
// the port by which it came.
struct Loss {
  Time now;
  std::uint32_t node = 0;
  const port::Frame* frame = nullptr;
};

// The link of a port goes down or comes up, seen at this end.
struct LinkChange {
  Time now;
  std::uint32_t node = 0;
  std::uint16_t port = 0;
  bool is_up = false;
};

// All that happens in a network may be watched in the order of time.
struct Observers {
  std::function<void(const Sending&)> on_send;
  std::function<void(const Loss&)> on_loss;
  std::function<void(const LinkChange&)> on_link_change;
};

// Totals of the frames lost to faults.
struct FaultTotals {
  std::uint64_t frames = 0;    // lost frames
  std::uint64_t bytes = 0;     // bytes of lost frames, as they take room
  std::uint64_t unrouted = 0;  // lost frames that had no route left
  Time last_loss;
};

}  // namespace tulle::sim

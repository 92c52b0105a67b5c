#pragma once

// A crossing holds what one part of a network sends to another one in a round: everything that an
// event needs where it happens, since the parts share no frames.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "fabric/endpoint_monitor.h"
#include "port/frame.h"
#include "sim/event.h"

namespace tulle::sim {

struct Crossing {
  struct FrameArrival {
    Event event;
    port::Frame frame;
  };
  struct NoticeArrival {
    Event event;
    fabric::EndpointNotice notice;
  };
  // A request of the application, which is met before the next round.
  struct Request {
    std::uint32_t host = 0;
    std::uint32_t token = 0;
    std::uint32_t note = 0;
  };

  std::vector<FrameArrival> frames;
  std::vector<std::byte> payloads;  // of the frames, one after the other, where they have bytes
  std::vector<NoticeArrival> notices;
  std::vector<Event> events;  // those that need nothing else
  std::vector<Request> requests;
  std::int64_t earliest = std::numeric_limits<std::int64_t>::max();  // ps, of all its events

  bool is_empty() const {
    return frames.empty() && notices.empty() && events.empty() && requests.empty();
  }
  void note(const Event& event) { earliest = std::min(earliest, event.at); }
  void clear() {
    frames.clear();
    payloads.clear();
    notices.clear();
    events.clear();
    requests.clear();
    earliest = std::numeric_limits<std::int64_t>::max();
  }
};

}  // namespace tulle::sim

#pragma once

// A crossing holds what one part of a network sends to another one in a round: everything that an
// event needs where it happens, since the parts share no frames.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/prefetch.h"
#include "fabric/endpoint_monitor.h"
#include "rdma/port/frame.h"
#include "sim/event.h"

namespace tulle::sim {

// Two threads write and read a crossing alternately, so no cache line has two crossings.
struct alignas(64) Crossing {
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

  std::vector<port::Frame> frames;
  std::vector<Event> arrivals;      // of the frames, one each
  std::vector<std::byte> payloads;  // of the frames, one after the other, where they have bytes
  std::vector<NoticeArrival> notices;
  std::vector<Event> events;  // those that need nothing else
  std::vector<Request> requests;
  std::int64_t earliest = std::numeric_limits<std::int64_t>::max();  // ps, of all its events

  bool is_empty() const {
    return arrivals.empty() && notices.empty() && events.empty() && requests.empty();
  }
  void note(Event event) { earliest = std::min(earliest, event.at); }
  void add(Event arrival, const port::Frame& frame) {
    const std::size_t ahead = frames.size() + fetched;
    // The thread that reads has had these lines since they were last written.
    if (ahead < frames.capacity()) prefetch_to_write(frames.data() + ahead);
    frames.push_back(frame);
    arrivals.push_back(arrival);
  }
  void clear() {
    frames.clear();
    arrivals.clear();
    payloads.clear();
    notices.clear();
    events.clear();
    requests.clear();
    earliest = std::numeric_limits<std::int64_t>::max();
  }

  static constexpr std::size_t fetched = 12;  // frames ahead
};

// The same, as it is stored in a Crossing, or in a message of another process.
struct CrossingView {
  CrossingView() = default;
  explicit CrossingView(const Crossing& crossing)
      : frames(crossing.frames),
        arrivals(crossing.arrivals),
        payloads(crossing.payloads),
        notices(crossing.notices),
        events(crossing.events),
        requests(crossing.requests) {}

  std::span<const port::Frame> frames;
  std::span<const Event> arrivals;  // as many
  std::span<const std::byte> payloads;
  std::span<const Crossing::NoticeArrival> notices;
  std::span<const Event> events;
  std::span<const Crossing::Request> requests;

  // Prefetches what is to be read some frames after the one of that index.
  void fetch_after(std::size_t index) const {
    if (index + Crossing::fetched >= frames.size()) return;
    prefetch(&frames[index + Crossing::fetched]);
    prefetch(&arrivals[index + Crossing::fetched]);
  }
};

}  // namespace tulle::sim

#pragma once

// Decides whether what another process has sent may come to a part of a network. A process of
// another build, or a damaged message, must do no harm here.

#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "rdma/port/frame.h"
#include "sim/application.h"
#include "sim/crossing.h"
#include "sim/event.h"
#include "sim/event_kind.h"
#include "sim/nodes.h"

namespace tulle::sim {

class Admission {
 public:
  // The nodes must outlive it. Each frame has so many bytes of memory for its payload, 0 without
  // bytes.
  Admission(const Nodes& nodes, std::uint32_t part, std::size_t payload_room)
      : nodes_(nodes), part_(part), payload_room_(payload_room) {}

  // Returns true if all of it may come to this part from that time on. Frames, notices and flow
  // control come over a link from one of that process's nodes.
  bool accepts(std::uint32_t process, const CrossingView& box, Time earliest,
               const Application& application) const;

 private:
  using enum EventKind;
  // What an event is compared with.
  struct Origin {
    std::uint32_t process = 0;
    Time earliest;
  };
  bool accepts_frames(const Origin& from, const CrossingView& box) const;
  bool accepts_notices(const Origin& from, const CrossingView& box) const;
  bool accepts_event(const Origin& from, const Event& event, const Application& application) const;
  bool accepts(const Event& event, Time earliest) const;
  bool accepts(const port::Frame& frame) const;
  bool is_control(std::uint32_t datum) const;
  bool comes_from(const Origin& from, const Event& event) const;

  const Nodes& nodes_;
  std::uint32_t part_;
  std::size_t payload_room_;
};

}  // namespace tulle::sim

#pragma once

// The two sides of a job's messages: a schedule says when they start, and a carrier takes them to
// their receivers, packet by packet (study/workload/player.h) or otherwise.

#include <cstdint>

#include "base/time.h"

namespace tulle::workload {

// Is notified of the fate of flows, and may start others then (Carrier::start).
class Schedule {
 public:
  virtual ~Schedule() = default;
  // A flow's receiver was told of its arrival. Called at the destination.
  virtual void arrived(Time now, std::uint32_t flow) = 0;
  // A flow's sender was told that it is done, and may use its memory again. Called at the source.
  virtual void sent(Time now, std::uint32_t flow) = 0;
};

class Carrier {
 public:
  virtual ~Carrier() = default;
  // Starts a flow at that time, which is not before now. Called at the flow's source.
  virtual void start(Time at, std::uint32_t flow) = 0;
};

}  // namespace tulle::workload

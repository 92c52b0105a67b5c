#pragma once

// The settings of a port that all ports of a fabric share.

#include <array>
#include <cstdint>

#include "base/time.h"
#include "rdma/port/congestion.h"
#include "rdma/port/flow_control/pause.h"
#include "rdma/port/frame.h"
#include "rdma/port/vl_arbiter.h"

namespace tulle::port {

// The ways in which a port makes its neighbour stop.
enum class FlowControl : std::uint8_t {
  none,
  pfc,      // a class is asked to stop, and to resume (IEEE 802.1Qbb)
  credits,  // a lane sends only as much as it was told fits (IBTA 7.9)
};

// Random early detection on a queue's bytes (Floyd and Jacobson 1993), as DCQCN's congestion point
// uses it. Frames are never marked up to least_bytes, with a probability that rises to
// `probability` at most_bytes, and always beyond.
struct EcnSettings {
  bool enabled = false;
  std::uint32_t least_bytes = 0;  // Kmin
  std::uint32_t most_bytes = 0;   // Kmax
  double probability = 0;         // Pmax
};

struct Settings {
  FlowControl flow_control = FlowControl::pfc;
  std::uint8_t lossless_classes = 0xFF;           // classes that PFC protects
  std::uint32_t pause_quanta = pause_quanta_max;  // pause time of a request to stop, until renewed
  // If a neighbour keeps a class stopped for this long, the frames that wait for it and those that
  // arrive are dropped until the class may resume: one stuck adapter must not stop a fabric. Zero
  // means no watchdog.
  Time watchdog;
  // Credits: a lane that discards this many frames in a row discards all arriving frames for eight
  // lifetimes of a head (VLStallCount). 0 means never.
  std::uint32_t stall_count = 0;
  std::uint32_t lane_buffer_bytes = 131'008;  // credits: for each port and lane; 2,047 blocks
  EcnSettings ecn;
  CongestionSettings congestion;  // credits only
  VlArbitration arbitration;      // credits: a lane's share of a link
  // pfc, none: a class's share of a link in bytes a round (deficit round robin, Shreedhar and
  // Varghese 1995). A class with 0 comes before all classes that have a share, the highest class
  // first.
  std::array<std::uint32_t, classes> quantum_bytes = {4'200, 4'200, 4'200, 4'200,
                                                      4'200, 4'200, 0,     0};
};

}  // namespace tulle::port

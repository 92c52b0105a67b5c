#pragma once

#include <cstdint>

#include "base/time.h"
#include "transport/congestion/dcqcn.h"
#include "transport/congestion/infiniband.h"
#include "transport/congestion/window.h"

namespace tulle::transport::congestion {

// How the queue pairs of one adapter share the network with others.
struct Settings {
  WindowSettings window;
  DcqcnSettings dcqcn;
  InfinibandSettings infiniband;  // of this and the two others at most one
  bool endpoint_limits = false;   // switches tell what may be sent to a host (endpoint_limit.h)
  // An acknowledgement is asked for at least this often within a message, so that the window keeps
  // moving; 1 is what hardware's packets ask for.
  std::uint32_t packets_per_ack_request = 16;
  // The notification point: on a packet marked "congestion experienced" (RFC 3168), a congestion
  // notification to the sender (IBTA A17.9.3), for one queue pair at most this often. Never: none.
  Time notification_interval = Time::never();
  std::uint8_t notification_service_level = 0;
};

}  // namespace tulle::transport::congestion

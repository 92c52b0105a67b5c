#pragma once

#include <cstdint>

#include "base/time.h"
#include "rdma/transport/congestion/dcqcn.h"
#include "rdma/transport/congestion/infiniband.h"
#include "rdma/transport/congestion/window.h"

namespace tulle::transport::congestion {

// The settings by which the queue pairs of one adapter share the network with others.
struct Settings {
  WindowSettings window;
  DcqcnSettings dcqcn;
  InfinibandSettings infiniband;
  // Switches say at which rate a host may be sent to (endpoint_limit.h). At most one of dcqcn,
  // infiniband and endpoint_limits may be enabled.
  bool endpoint_limits = false;
  // Within a message, at least every n-th packet asks for an acknowledgement, so that the window
  // keeps moving. Hardware asks with every packet (1).
  std::uint32_t packets_per_ack_request = 16;
  // The notification point answers a packet that is marked "congestion experienced" (RFC 3168) with
  // a congestion notification to the sender (IBTA A17.9.3). This is the least time between two of
  // them from one queue pair. Never means that none are sent.
  Time notification_interval = Time::never();
  std::uint8_t notification_service_level = 0;
};

}  // namespace tulle::transport::congestion

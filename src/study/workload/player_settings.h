#pragma once

#include <cstdint>

#include "base/time.h"
#include "rdma/verbs/types.h"

namespace tulle::workload {

struct PlayerSettings {
  // The transport of the flows: RDMA WRITEs on reliable connections (rc, iwarp) or on SRD, or
  // writes to and reads from TCP sockets (stream). TCP does not use path_mtu, timeout and
  // retry_count.
  verbs::QpType transport = verbs::QpType::rc;
  verbs::Mtu path_mtu = verbs::Mtu::b4096;
  std::uint8_t service_level = 0;
  std::uint8_t service_levels = 1;  // flows alternate between this many levels from service_level;
                                    // they are QoS levels if the stage knows paths
  std::uint8_t traffic_class = 0;   // DSCP << 2 | ECN
  std::uint8_t paths = 1;           // 2^LMC: a host's connections alternate between the paths
  std::uint8_t timeout = 14;        // IBTA's code: 4.096 us * 2^n; the usual default of adapters
  std::uint8_t retry_count = 7;
  std::uint64_t seed = 1;
  // The time between an application and its adapter. post_delay runs from the call until the
  // adapter has the request and its first bytes, completion_delay from the adapter's action until
  // the application sees it.
  Time post_delay;
  Time completion_delay;
  // Hosts from this number on are ports of switches, which have no application and thus neither of
  // these delays.
  std::uint32_t adapters = 0xFFFF'FFFF;
  Time post_delay_of(std::uint32_t host) const {
    return host < adapters ? post_delay : Time::zero();
  }
  Time completion_delay_of(std::uint32_t host) const {
    return host < adapters ? completion_delay : Time::zero();
  }
  bool notify = false;  // tell every receiver, so that arrivals are known
  // If true, flows have memory at both ends. It is filled from the seed at the source and checked
  // at the destination. Otherwise they are ghosts, lengths without bytes.
  bool carries_bytes = false;
};

}  // namespace tulle::workload

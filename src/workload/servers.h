#pragma once

// Servers of several GPUs and adapters. The GPUs of a server reach each other by a scale-up network
// (NVLink with NVSwitch, UALink), and GPUs of other servers by their server's adapters.

#include <cstdint>

#include "base/time.h"

namespace tulle::workload {

struct Servers {
  std::uint32_t servers = 1;
  std::uint32_t gpus = 1;      // of a server
  std::uint32_t adapters = 1;  // of a server; divides the GPUs
  // The scale-up network has one port for each GPU. It never blocks otherwise.
  std::int64_t scale_up_bits_per_second = 0;  // of a GPU, in each direction; payload
  Time scale_up_latency;  // from the sending GPU's store until the receiving one sees it
  // From the end of what a message waits for until an adapter is asked to send it: the GPU tells
  // the processor, or the adapter.
  Time message_delay;
  // How fast a GPU adds a message that it received to what it has; 0: at once. It begins when the
  // message has come.
  std::int64_t reduce_bits_per_second = 0;
  // Servers whose ranks are processes (`tulle calibrate`) have so many cores, which do all that
  // ranks do for messages within the server: a core sends at the rate of the scale-up network, and
  // adds what came at the rate above. Such a server has one adapter. 0: GPUs do not share.
  std::uint32_t cores = 0;
  Time message_work;  // with cores: what each end of a message takes besides its bytes

  std::uint32_t ranks() const { return servers * gpus; }
  std::uint32_t server_of(std::uint32_t rank) const { return rank / gpus; }
  std::uint32_t gpu_of(std::uint32_t rank) const { return rank % gpus; }
  std::uint32_t rank(std::uint32_t server, std::uint32_t gpu) const { return server * gpus + gpu; }
  bool is_scale_up(std::uint32_t a, std::uint32_t b) const { return server_of(a) == server_of(b); }
  // Returns the host, an adapter of the network, by which a GPU sends and receives. Neighbouring
  // GPUs share one. The adapters of a server have consecutive numbers (fabric/topology.h).
  std::uint32_t host_of(std::uint32_t rank) const {
    return server_of(rank) * adapters + gpu_of(rank) * adapters / gpus;
  }
};

}  // namespace tulle::workload

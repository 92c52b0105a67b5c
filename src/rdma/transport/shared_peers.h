#pragma once

// A transport may have its connections below the queue pairs, as SRD has. The queue pairs of an
// adapter then share a context for each peer, and queue pairs of the adapter itself through which
// packets leave.

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/time.h"
#include "rdma/transport/packet_io.h"
#include "rdma/wire/path.h"

namespace tulle::transport {

class QueuePair;

class SharedPeers {
 public:
  static constexpr std::uint32_t levels = 8;  // service levels

  SharedPeers() = default;
  SharedPeers(const SharedPeers&) = delete;
  SharedPeers& operator=(const SharedPeers&) = delete;
  virtual ~SharedPeers() = default;

  // A packet came for a queue pair that does not exist. Returns false if the packet is of another
  // transport.
  virtual bool handle_unknown(Time now, const wire::Packet& packet, Payload payload,
                              const wire::Path& path) = 0;
  // Returns the service levels, as bits, at which something has happened since the last call.
  virtual std::uint32_t take_attention() = 0;
  // Makes a queue pair for the adapter itself, through which the packets of one service level
  // leave.
  virtual std::unique_ptr<QueuePair> make_carrier(QpNumber number, std::uint8_t service_level) = 0;
  virtual void rebase(Time by) = 0;
};

}  // namespace tulle::transport

#pragma once

// A way by which packets come through rings in shared memory, as the driver sees it. A process that
// polls looks at its rings. One that sleeps is told by its doorbell.

#include <cstdint>

#include "base/time.h"
#include "device/adapter.h"

namespace tulle::live {

class RingPath {
 public:
  virtual ~RingPath() = default;

  // Hands the packets that have come to the adapter, but a bounded number in one call. Returns how
  // many records it took.
  virtual int receive(device::Adapter& adapter, Time now) = 0;
  // Returns true if the last call of receive() left packets, perhaps.
  virtual bool is_unfinished() const = 0;
  // Returns true if something may come by a ring.
  virtual bool has_peers() const = 0;
  // Must be called when the doorbell was rung, before receive(). The packets that it told of may
  // have been read already, and the next ones must ring again.
  virtual void note_ring() = 0;
  // Says whether somebody calls receive() all the time, so that no peer needs to ring. The caller
  // must call receive() after it has said `false`.
  virtual void set_polled(bool is_polled) = 0;
  // Returns the number of packets that came and that went. It never falls.
  virtual std::uint64_t packets() const = 0;
  virtual void rebase(Time by) = 0;
};

}  // namespace tulle::live

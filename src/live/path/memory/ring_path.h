#pragma once

// A way by which packets come through rings in shared memory, as the driver sees it. A process that
// polls looks at its rings. One that sleeps is told by its doorbell.

#include <cstdint>
#include <utility>

#include "base/time.h"
#include "live/link.h"
#include "rdma/device/adapter.h"

namespace tulle::live {

class RingPath : public Link {
 public:
  // Takes at most packets_max records in one call. Returns how many it took.
  int receive(device::Adapter& adapter, Time now) override;
  bool is_by_memory() const override { return true; }
  bool is_unfinished() const override { return is_unfinished_; }
  // The packets that the doorbell told of may have been read already, and the next ones must ring
  // again.
  void note_ring() override { was_rung_ = true; }

 protected:
  static constexpr int packets_max = 256;  // in one call of receive()

  bool is_polled_ = false;

 private:
  // Returns true if something may come by a ring.
  virtual bool has_peers() const { return true; }
  // Takes that many packets at most. Returns how many it took.
  virtual int take_all(device::Adapter& adapter, Time now, int packets) = 0;
  // Makes senders ring from now on.
  virtual void ask_to_be_rung() = 0;

  bool is_unfinished_ = false;
  bool was_rung_ = false;
};

inline int RingPath::receive(device::Adapter& adapter, Time now) {
  if (!has_peers()) return 0;
  int taken = 0;
  bool must_tell = is_unfinished_ || std::exchange(was_rung_, false);
  for (;;) {
    const int before = taken;
    taken += take_all(adapter, now, packets_max - taken);
    must_tell |= taken != before;
    if (is_polled_ || !must_tell || taken >= packets_max) break;
    // Senders ring again from now on. What was sent before is read now.
    ask_to_be_rung();
    must_tell = false;
  }
  is_unfinished_ = taken >= packets_max;
  return taken;
}

}  // namespace tulle::live

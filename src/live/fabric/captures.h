#pragma once

// Captures of a software fabric: every packet with data that a port sends over a link goes into a
// ring of each capture (live/path/packets/capture_ring.h), with the checks that it has on a cable.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "fabric/subnet_traffic.h"
#include "live/path/packets/capture_ring.h"

namespace tulle::live {

// Stands in front of a packet in the ring.
struct CapturedAt {
  std::uint32_t node = 0;
  std::uint32_t port = 0;  // from 1 on
};

class Captures {
 public:
  static constexpr std::size_t captures_max = 8;

  // Makes a client's ring and returns its descriptor, which stays this object's.
  Result<int> add(std::uint32_t client, std::uint32_t ring_bytes, std::uint32_t snap_length);
  void remove(std::uint32_t client);
  bool empty() const { return captures_.empty(); }
  void record(const fabric::SubnetTraffic::Sent& sent);

 private:
  struct Capture {
    std::uint32_t client = 0;
    std::uint32_t snap_length = 0;  // 0: whole packets
    CaptureRing ring;
  };
  std::vector<Capture> captures_;
};

}  // namespace tulle::live

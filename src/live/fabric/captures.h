#pragma once

// Captures of a software fabric: every packet with data that a port sends over a link, and every
// flow control packet, goes into a ring of each capture (live/path/packets/capture_ring.h), with
// the checks that it has on a cable.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "fabric/subnet_traffic.h"
#include "live/path/packets/capture_ring.h"

namespace tulle::live {

// Precedes a packet in the ring. A packet of wire::flow_control_bytes is a flow control packet. All
// others are longer.
struct CapturedAt {
  std::uint32_t node = 0;
  std::uint32_t port = 0;  // from 1 on
};

class Captures {
 public:
  static constexpr std::size_t captures_max = 8;
  static constexpr std::size_t captures_of_process_max = 2;
  // Of all processes that the system does not tell apart.
  static constexpr std::size_t captures_of_unknown_max = 4;

  // The traffic must outlive this object. It is observed while there are captures.
  explicit Captures(fabric::SubnetTraffic& traffic) : traffic_(traffic) {}
  Captures(const Captures&) = delete;
  Captures& operator=(const Captures&) = delete;

  // Makes a client's ring and returns its descriptor, which stays this object's. `process` is the
  // client's, or 0 if the system does not say.
  struct Wanted {
    std::uint32_t ring_bytes = 0;
    std::uint32_t snap_length = 0;  // 0: whole packets
    bool has_flow_control = false;
  };
  Result<int> add(std::uint32_t client, pid_t process, const Wanted& wanted);
  void remove(std::uint32_t client);

 private:
  void record(const fabric::SubnetTraffic::Sent& sent);
  void record(const fabric::SubnetTraffic::Told& told);
  void write(bool is_flow_control, const CapturedAt& at, std::span<const std::byte> packet,
             std::span<const std::byte> checks);

  struct Capture {
    std::uint32_t client = 0;
    pid_t process = 0;
    Wanted wanted;
    CaptureRing ring;
  };
  fabric::SubnetTraffic& traffic_;
  std::vector<Capture> captures_;
};

}  // namespace tulle::live

#pragma once

// A program's packets on a host of a software fabric: native InfiniBand packets, from the LRH to
// the pad, in rings to and from the fabric's process (live/path/fabric/rings.h).

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "live/path/fabric/rings.h"
#include "live/path/memory/ring_path.h"
#include "rdma/device/adapter.h"

namespace tulle::live {

class FabricPath final : public RingPath {
 public:
  // The adapter must outlive this object. Its port is that of port_settings().
  FabricPath(FabricRings rings, device::Adapter& adapter);

  // The port of an adapter that sends by this path: a lane whose ring is full is stopped.
  static const port::Settings& port_settings();

  // The adapter gives no datagram for a lane without room. The program's memory may go meanwhile: a
  // packet whose payload is gone is lost.
  Offer offer(device::Datagram& datagram, Time now) override;
  Flushed flush(Time now) override;
  [[nodiscard]] bool resume(Time now) override;
  // Returns when it must be checked again whether there is room, should nobody ring.
  Time next_deadline() const override { return full_lanes_ != 0 ? look_again_ : Time::never(); }

  void set_polled(bool is_polled) override;
  std::uint64_t packets_by_memory() const override { return counters_.sent + counters_.received; }
  void rebase(Time by) override;

  void count(DriverCounters& counters) override;
  void lose_network(DeviceInfo& device, int other) override;
  // The rings are the parent's.
  void forget_in_child(int) override { rings_.forget_button(); }

  struct Counters {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t delayed = 0;  // times a lane's ring was full
    std::uint64_t dropped =
        0;  // packets whose payload was gone, or whose lane was full for too long
    std::uint64_t refused = 0;  // records that came and are no packet
  };
  const Counters& counters() const { return counters_; }

 private:
  // A lane of which the fabric takes nothing for so long loses what does not fit, as a network
  // would.
  static constexpr Time patience = Time::milliseconds(1'000);
  static constexpr Time look_again_after = Time::milliseconds(1);
  static constexpr std::size_t early_ring_bytes = std::size_t{16} << 10;
  // A reader tells the writer how far it has read after so many bytes, and when it has read all.
  static constexpr std::size_t told_bytes = std::size_t{32} << 10;

  struct Lane {
    Time full_since;
    bool is_stalled = false;  // the fabric has taken nothing for `patience`
  };
  static bool encode(const device::Datagram& datagram, std::byte* room);
  void publish(std::size_t bytes, std::uint32_t lane);
  bool has_room(std::uint32_t lane);
  void stop_full(Time now, std::uint32_t lane);
  bool resume_lanes(Time now);
  int take_all(device::Adapter& adapter, Time now, int packets) override;
  void ask_to_be_rung() override;
  void handle(std::span<const std::byte> packet, device::Adapter& adapter, Time now);

  FabricRings rings_;
  device::Adapter& adapter_;
  std::size_t unrung_bytes_ = 0;
  std::uint32_t full_lanes_ = 0;  // as bits
  std::array<Lane, FabricRings::lanes> lanes_;
  Time look_again_;
  Counters counters_;
};

}  // namespace tulle::live

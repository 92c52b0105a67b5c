#pragma once

// Mirrors a process's frames while a capture runs. A device uses it under the device's lock.

#include <cstdint>
#include <optional>
#include <span>

#include "device/adapter.h"
#include "live/path/packets/capture_ring.h"
#include "wire/ip_udp.h"

namespace tulle::live {

class CaptureTap {
 public:
  bool is_open() const { return ring_.has_value(); }
  void open(CaptureRing ring, std::uint32_t snap_length);
  void close() { ring_.reset(); }

  void received(const wire::IpUdp& ip, std::span<const std::byte> udp_payload);
  // The datagram must be framed, with its ICRC.
  void sent(const device::Datagram& datagram);
  void sent(const wire::IpUdp& ip, std::span<const std::byte> udp_payload);

 private:
  void mirror(bool outbound, const wire::IpUdp& ip,
              std::span<const std::span<const std::byte>> udp_payload);

  std::optional<CaptureRing> ring_;
  std::uint32_t snap_length_ = 0;
  bool reads_ = true;  // the reader made room for the last frame
};

}  // namespace tulle::live

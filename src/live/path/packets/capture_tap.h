#pragma once

// Mirrors a process's frames while a capture runs. A device uses it under the device's lock.

#include <cstdint>
#include <optional>
#include <span>

#include "live/path/packets/capture_ring.h"
#include "rdma/device/adapter.h"
#include "rdma/wire/ip_udp.h"

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
  // Whole frames of Ethernet.
  void received_frame(std::span<const std::byte> frame) { mirror_frame(false, frame); }
  void sent_frame(std::span<const std::byte> frame) { mirror_frame(true, frame); }

 private:
  void mirror(bool outbound, const wire::IpUdp& ip,
              std::span<const std::span<const std::byte>> udp_payload);
  void mirror_frame(bool outbound, std::span<const std::byte> frame);
  void write(const CapturedFrame& frame, std::span<const std::span<const std::byte>> pieces);

  std::optional<CaptureRing> ring_;
  std::uint32_t snap_length_ = 0;
  bool reads_ = true;  // the reader made room for the last frame
};

}  // namespace tulle::live

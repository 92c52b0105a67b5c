#include "live/path/packets/capture_tap.h"

#include <time.h>

#include <array>

namespace tulle::live {
namespace {

constexpr std::size_t pieces_max = verbs::sges_max + 5;  // headers, head, payload, slack and tail

// A frame waits for a reader that is a little behind. A reader that made no room in that time may
// have been stopped: it loses frames until it has made some, and nothing waits for it.
constexpr int waits_max = 20;
constexpr timespec wait{0, 100'000};

}  // namespace

void CaptureTap::open(CaptureRing ring, std::uint32_t snap_length) {
  ring_.emplace(std::move(ring));
  reads_ = true;
  snap_length_ = snap_length;
}

void CaptureTap::received(const wire::IpUdp& ip, std::span<const std::byte> udp_payload) {
  mirror(false, ip, {&udp_payload, 1});
}

void CaptureTap::sent(const wire::IpUdp& ip, std::span<const std::byte> udp_payload) {
  mirror(true, ip, {&udp_payload, 1});
}

void CaptureTap::sent(const device::Datagram& datagram) {
  std::array<std::span<const std::byte>, pieces_max> pieces;
  std::size_t count = 0;
  pieces[count++] = std::span(datagram.frame.head).first(datagram.frame.head_bytes);
  for (std::size_t i = 0; i < datagram.piece_count; ++i) pieces[count++] = datagram.pieces[i];
  pieces[count++] = std::span(datagram.frame.tail).first(datagram.frame.tail_bytes);
  mirror(true, datagram.ip(), std::span(pieces).first(count));
}

void CaptureTap::mirror(bool outbound, const wire::IpUdp& ip,
                        std::span<const std::span<const std::byte>> udp_payload) {
  std::size_t payload_bytes = 0;
  for (const auto& piece : udp_payload) payload_bytes += piece.size();
  std::array<std::byte, wire::ipv6_header_bytes + wire::udp_header_bytes> headers;
  const std::size_t headers_bytes = wire::encode(ip, payload_bytes, headers);
  std::array<std::span<const std::byte>, pieces_max> pieces;
  std::size_t count = 0;
  pieces[count++] = std::span(headers).first(headers_bytes);
  for (const auto& piece : udp_payload) pieces[count++] = piece;

  const CapturedFrame frame{unix_nanoseconds(),
                            static_cast<std::uint32_t>(headers_bytes + payload_bytes), outbound};
  write(frame, std::span<const std::span<const std::byte>>(pieces).first(count));
}

void CaptureTap::mirror_frame(bool outbound, std::span<const std::byte> frame) {
  write({unix_nanoseconds(), static_cast<std::uint32_t>(frame.size()), outbound, true},
        {&frame, 1});
}

void CaptureTap::write(const CapturedFrame& frame,
                       std::span<const std::span<const std::byte>> pieces) {
  const std::size_t bytes = frame.original_bytes;
  bool has_room = ring_->has_room(bytes);
  for (int i = 0; i < waits_max && !has_room && reads_; ++i) {
    nanosleep(&wait, nullptr);
    has_room = ring_->has_room(bytes);
  }
  reads_ = has_room;
  ring_->write(frame, pieces, snap_length_);
}

}  // namespace tulle::live

#include "sim/frame_store.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "rdma/wire/tcp.h"
#include "sim/addresses.h"

namespace tulle::sim {

using port::Frame;
using port::FrameRef;

FrameStore::FrameStore(const Nodes& nodes)
    : settings_(nodes.settings), carries_fronts_(nodes.carries_fronts) {
  pool_.give(pool_.take());  // from now on, there is a first frame to prefetch
  if (nodes.payload_bytes > 0) payloads_ = std::make_unique<port::Payloads>(nodes.payload_bytes);
}

FrameRef FrameStore::make(std::uint32_t host, const device::Datagram& datagram) {
  const FrameRef ref = pool_.take();
  Frame& frame = pool_[ref];
  label(frame, host, datagram);
  if (datagram.headers == device::Datagram::Headers::tcp) [[unlikely]] {
    hold_segment(ref, datagram);
    return ref;
  }
  frame.headers = static_cast<std::uint8_t>(port::FrameHeaders::bth);
  measure(frame, overhead(settings_), datagram.udp_payload_bytes(), datagram.payload_bytes);
  TULLE_CHECK(wire::header_bytes(datagram.packet.opcode) <= Frame::header_bytes_max);
  frame.header_bytes = wire::encode(datagram.packet, frame.header) & 0x3F;
  if (payloads_ != nullptr) [[unlikely]]
    carry_payload(ref, datagram);
  return ref;
}

void FrameStore::hold_segment(FrameRef ref, const device::Datagram& datagram) {
  Frame& frame = pool_[ref];
  frame.headers = static_cast<std::uint8_t>(port::FrameHeaders::tcp);
  measure(frame, port::tcp_overhead, datagram.segment_bytes(), datagram.payload_bytes);
  TULLE_CHECK(wire::header_bytes(datagram.tcp) <= Frame::header_bytes_max);
  frame.header_bytes = wire::encode(datagram.tcp, frame.header) & 0x3F;
  if (carries_fronts_) {
    carry_front(ref, datagram);
  } else if (payloads_ != nullptr) {
    carry_payload(ref, datagram);
  }
}

// Carries the bytes in front of ghosts, preceded by their number. The bytes that do not fit are
// inline data, which are ghosts here like all other data.
void FrameStore::carry_front(FrameRef ref, const device::Datagram& datagram) {
  std::byte* to = payloads_->of(ref) + sizeof(std::uint32_t);
  std::uint32_t bytes = 0;
  for (const auto& piece : std::span(datagram.pieces).first(datagram.piece_count)) {
    const std::size_t room = payloads_->bytes_each() - sizeof bytes - bytes;
    const auto part = piece.first(std::min(piece.size(), room));
    std::copy(part.begin(), part.end(), to + bytes);
    bytes += static_cast<std::uint32_t>(part.size());
  }
  std::memcpy(payloads_->of(ref), &bytes, sizeof bytes);
}

transport::Payload FrameStore::payload_of(FrameRef ref) {
  const std::uint32_t bytes = pool_[ref].payload_bytes;
  if (!carries_fronts_) return {payload_memory(ref).data(), bytes};
  std::uint32_t there = 0;
  std::memcpy(&there, payloads_->of(ref), sizeof there);
  return {payloads_->of(ref) + sizeof there, bytes, bytes - there};
}

// Writes a frame's source, destination and service.
inline void FrameStore::label(Frame& frame, std::uint32_t host,
                              const device::Datagram& datagram) const {
  const std::uint32_t path_bits = datagram.to->path_bits;
  const std::uint32_t destination = host_at(settings_, wire::destination_of(datagram.path));
  frame.source = host & 0xFF'FFFF;
  frame.path = path_bits & 0x7F;
  frame.damaged = 0;
  frame.destination = destination & 0xFF'FFFF;
  frame.via = 0;
  // Switches spread flows by what they read: RoCE v1 has no ports.
  frame.source_port = settings_.is_roce_v1 ? std::uint16_t{0} : datagram.flow_entropy;
  const std::uint32_t level = datagram.service_level % port::service_levels;
  const std::uint32_t lane = settings_.lanes.hosts[level];
  frame.service_class = lane & port::vl15;
  frame.service_level = level & 0xF;
  frame.traffic_class = wire::traffic_class_of(datagram.path);
}

inline void FrameStore::measure(Frame& frame, const port::Overhead& around,
                                std::uint32_t inner_bytes, std::uint32_t payload_bytes) const {
  frame.buffer_bytes = static_cast<std::uint16_t>(around.stored_bytes(inner_bytes) +
                                                  train_header_bytes(settings_, payload_bytes));
  frame.gap_bytes = around.gap_bytes & 0x1F;
  frame.payload_bytes = static_cast<std::uint16_t>(payload_bytes);
}

// Copies the payload when it is sent, as an adapter fetches it. Later changes of the application's
// memory do not travel.
void FrameStore::carry_payload(FrameRef ref, const device::Datagram& datagram) {
  TULLE_CHECK(datagram.payload_bytes <= payloads_->bytes_each());
  std::byte* to = payloads_->of(ref);
  std::size_t bytes = 0;
  for (const auto& piece : std::span(datagram.pieces).first(datagram.piece_count)) {
    std::copy(piece.begin(), piece.end(), to + bytes);
    bytes += piece.size();
  }
  TULLE_CHECK(bytes == datagram.payload_bytes);  // there are no ghosts among them
}

void FrameStore::hand_over(Time now, device::Adapter& adapter, FrameRef ref) {
  const Frame& frame = pool_[ref];
  if (frame.is_tcp()) [[unlikely]]
    return hand_over_segment(now, adapter, ref);
  const wire::Decoded decoded =
      wire::decode(std::span(frame.header).first(frame.header_bytes), handed_over_);
  TULLE_CHECK(decoded.status == wire::DecodeStatus::ok);
  adapter.handle_packet(now, handed_over_, {payload_memory(ref).data(), frame.payload_bytes},
                        path_of(frame));
}

void FrameStore::hand_over_segment(Time now, device::Adapter& adapter, FrameRef ref) {
  const Frame& frame = pool_[ref];
  wire::Tcp header;
  const wire::DecodedTcp decoded =
      wire::decode(std::span(frame.header).first(frame.header_bytes), header);
  TULLE_CHECK(decoded.ok);
  adapter.handle_segment(now, header, payload_of(ref), ip_of(frame));
}

QpNumber FrameStore::receiver_of(const Frame& frame) const {
  if (!frame.is_tcp()) return wire::peek_destination_qp(frame.header);
  wire::Tcp header;
  const wire::DecodedTcp decoded =
      wire::decode(std::span(frame.header).first(frame.header_bytes), header);
  TULLE_CHECK(decoded.ok);
  return QpNumber{header.destination_port};
}

inline wire::Path FrameStore::path_of(const Frame& frame) const {
  wire::Path path;
  if (settings_.link_layer != LinkLayer::ethernet) {
    path.emplace<wire::LocalPath>().local = local_route_of(frame, settings_.lmc);
  } else if (settings_.is_roce_v1) [[unlikely]] {
    path = ethernet_path_of(frame);
  } else {
    set_ip(frame, *std::get_if<wire::IpUdp>(&path));
  }
  return path;
}

}  // namespace tulle::sim

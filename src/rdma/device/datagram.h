#pragma once

#include <cstdint>
#include <variant>

#include "rdma/port/framing/framing.h"
#include "rdma/port/framing/roce_v2.h"
#include "rdma/transport/packet_io.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/path.h"

namespace tulle::device {

// A packet to send: all but the headers in front of BTH, which `path` describes. The pieces point
// into the application's memory. They are valid until the next call into the adapter other than
// pull_datagram.
struct Datagram : transport::OutgoingPacket {
  wire::Path path;
  // RoCE v2, and TCP.
  wire::IpUdp& ip() { return std::get<wire::IpUdp>(path); }
  const wire::IpUdp& ip() const { return std::get<wire::IpUdp>(path); }
  // The packets of a flow have one value: RoCE v2's UDP source port (IBTA A17.9.2).
  std::uint16_t flow_entropy = 0;
  std::uint8_t service_level = 0;
  const port::Framing* framing = &port::roce_v2;
  port::FrameBytes frame;  // filled in by finish_frame

  // Frames the datagram and computes the ICRC, once the driver knows the source port and the
  // `identification` that the kernel will write into the IPv4 header (k for the k-th segment of one
  // call).
  void finish_frame(std::uint16_t identification);

  // Returns the bytes of TCP's header and payload. The datagram must hold a segment.
  std::uint32_t segment_bytes() const {
    return static_cast<std::uint32_t>(wire::header_bytes(tcp)) + payload_bytes;
  }
  // Returns the bytes of BTH … ICRC.
  std::uint32_t udp_payload_bytes() const {
    return static_cast<std::uint32_t>(wire::header_bytes(packet.opcode) + payload_bytes +
                                      packet.pad_count + wire::icrc_bytes);
  }
};

}  // namespace tulle::device

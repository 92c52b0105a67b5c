#pragma once

// The packets of a reliable connection's requests. put_request() fills in one packet. The other
// functions fill in the part of it that depends on the operation.

#include <algorithm>
#include <cstdint>

#include "rdma/transport/local_memory.h"
#include "rdma/transport/packet_io.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/transport/rc/extended.h"
#include "rdma/transport/send_queue.h"
#include "rdma/wire/packet.h"

namespace tulle::transport::rc {

// The operations of a message's packets.
struct Operations {
  wire::Operation first, middle, last, only;
};
Operations operations_of(verbs::SendOpcode opcode);

// SEND and WRITE: fills in the packet of that index. Returns false if the memory may not be read.
[[nodiscard]] inline bool put_data(const QueuePair& qp, const SendWqe& wqe, std::uint32_t index,
                                   bool ack_request, OutgoingPacket& out) {
  const std::uint32_t mtu = qp.mtu_bytes();
  const std::uint32_t offset = index * mtu;
  const std::uint32_t bytes = std::min(wqe.length - offset, mtu);
  const bool first = index == 0;
  const bool last = index + 1 == wqe.packets;
  const Operations operations = operations_of(wqe.opcode);
  const wire::Operation operation = first ? (last ? operations.only : operations.first)
                                          : (last ? operations.last : operations.middle);
  wire::Packet& packet = out.packet;
  packet.opcode = wire::opcode(wire::TransportClass::rc, operation);
  packet.pad_count = static_cast<std::uint8_t>(-bytes & 3);
  if (first && wqe.is_write()) {
    packet.virtual_address = wqe.remote_address;
    packet.rkey = wqe.rkey;
    packet.dma_length = wqe.length;
  }
  if (last) {
    const wire::OpcodeInfo& info = wire::info(packet.opcode);
    if (info.immediate) packet.immediate = wqe.immediate;
    if (info.invalidate) packet.invalidate_rkey = wqe.invalidate_rkey;
    packet.solicited_event = wqe.flags.has(verbs::SendFlag::solicited);
  }
  packet.ack_request = ack_request;
  if (!gather(qp, wqe, offset, bytes, out)) return false;
  // Only these queue pairs tell the driver before their requests are flushed.
  if (!wqe.flags.has(verbs::SendFlag::inline_data) && qp.transport.has_direct_path) {
    out.lasting_bytes = wqe.length;
    out.lasting_for = qp.number;
  }
  return true;
}
// READ: asks for so many packets from that index on, or as many as are left.
void put_read(const QueuePair& qp, const SendWqe& wqe, std::uint32_t index, std::uint32_t packets,
              OutgoingPacket& out);
void put_atomic(const SendWqe& wqe, OutgoingPacket& out);
// Returns false if the memory may not be read.
[[nodiscard]] bool put_atomic_write(const QueuePair& qp, const SendWqe& wqe, OutgoingPacket& out);

// Fills in the packet of that index, for a READ the request for so many packets. Returns the number
// of PSNs that it takes, or 0 if the memory may not be read.
[[nodiscard]] inline std::uint32_t put_request(const QueuePair& qp, const SendWqe& wqe,
                                               std::uint32_t index, std::uint32_t read_packets,
                                               bool ack_request, OutgoingPacket& out) {
  out.packet = {};
  out.clear_payload();
  out.packet.destination_qp = qp.attributes().destination_qp;
  out.packet.psn = wqe.first_psn + index;
  out.to = &qp.attributes().address;
  std::uint32_t psns = 1;
  if (wqe.opcode == verbs::SendOpcode::read) {
    put_read(qp, wqe, index, read_packets, out);
    psns = std::max((out.packet.dma_length + qp.mtu_bytes() - 1) / qp.mtu_bytes(), 1u);
  } else if (wqe.is_atomic()) {
    put_atomic(wqe, out);
  } else if (wqe.opcode == verbs::SendOpcode::atomic_write
                 ? !put_atomic_write(qp, wqe, out)
                 : !put_data(qp, wqe, index, ack_request, out)) {
    return 0;
  }
  if (qp.transport.receives == Receives::nothing) [[unlikely]]
    extended::mark_request(qp, wqe, out.packet);
  return psns;
}

}  // namespace tulle::transport::rc

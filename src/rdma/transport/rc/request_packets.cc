#include "rdma/transport/rc/request_packets.h"

namespace tulle::transport::rc {

using verbs::SendOpcode;
using wire::Operation;
using wire::TransportClass;

Operations operations_of(SendOpcode opcode) {
  using enum Operation;
  switch (opcode) {
    case SendOpcode::send_with_immediate:
      return {send_first, send_middle, send_last_with_immediate, send_only_with_immediate};
    case SendOpcode::send_with_invalidate:
      return {send_first, send_middle, send_last_with_invalidate, send_only_with_invalidate};
    case SendOpcode::write:
      return {write_first, write_middle, write_last, write_only};
    case SendOpcode::write_with_immediate:
      return {write_first, write_middle, write_last_with_immediate, write_only_with_immediate};
    default:
      return {send_first, send_middle, send_last, send_only};
  }
}

void put_read(const QueuePair& qp, const SendWqe& wqe, std::uint32_t index, std::uint32_t packets,
              OutgoingPacket& out) {
  const std::uint32_t offset = index * qp.mtu_bytes();
  out.packet.opcode = wire::opcode(TransportClass::rc, Operation::read_request);
  out.packet.virtual_address = wqe.remote_address + offset;
  out.packet.rkey = wqe.rkey;
  const std::uint64_t bytes = std::uint64_t{packets} * qp.mtu_bytes();
  out.packet.dma_length =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(wqe.length - offset, bytes));
  out.packet.ack_request = true;
}

void put_atomic(const SendWqe& wqe, OutgoingPacket& out) {
  const bool swaps = wqe.opcode == SendOpcode::compare_swap;
  out.packet.opcode =
      wire::opcode(TransportClass::rc, swaps ? Operation::compare_swap : Operation::fetch_add);
  out.packet.virtual_address = wqe.remote_address;
  out.packet.rkey = wqe.rkey;
  // IBTA 9.3.5: the operand of fetch-and-add is in the swap field. The compare field is not used.
  out.packet.swap_or_add = swaps ? wqe.swap : wqe.compare_add;
  out.packet.compare = swaps ? wqe.compare_add : 0;
  out.packet.ack_request = true;
}

// IBTA A19: one packet with RETH and 8 bytes.
bool put_atomic_write(const QueuePair& qp, const SendWqe& wqe, OutgoingPacket& out) {
  out.packet.opcode = wire::opcode(TransportClass::rc, Operation::atomic_write);
  out.packet.virtual_address = wqe.remote_address;
  out.packet.rkey = wqe.rkey;
  out.packet.dma_length = wqe.length;
  out.packet.ack_request = true;
  if (!wqe.holds_value()) return gather(qp, wqe, 0, wqe.length, out);
  out.payload_bytes = wqe.length;
  out.pieces[out.piece_count++] = {reinterpret_cast<const std::byte*>(&wqe.compare_add),
                                   wqe.length};
  return true;
}

}  // namespace tulle::transport::rc

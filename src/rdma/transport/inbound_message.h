#pragma once

// A SEND or WRITE message that is arriving packet by packet: the part of a responder that RC and UC
// share.

#include <cstdint>

#include "rdma/transport/packet_io.h"
#include "rdma/wire/packet.h"

namespace tulle::transport {

class QueuePair;
class Withheld;

// The errors that a responder finds in a request, in the terms of IBTA 9.7.4.1 and 9.9.3.
enum class RequestVerdict : std::uint8_t {
  ok,
  invalid_opcode_sequence,  // MIDDLE without FIRST, or another message in between
  unsupported,              // this queue pair does not allow the operation
  no_receive,               // the queue has no receive request
  bad_length,               // payload or DMA length does not fit the position or the path MTU
  receive_too_short,        // the receive request is shorter than the message
  access_denied,            // the R_Key does not allow the access
  local_protection,         // the memory of the receive request does not allow the access
  invalid_invalidate,       // SEND with invalidate of a key that cannot be invalidated
};

// The kinds of SEND that a shared receive queue with tag matching distinguishes.
enum class Tagging : std::uint8_t {
  none,        // the queue has no tag matching
  no_tag,      // the message carries no tag to match
  unexpected,  // no tagged request matches the tag of the message
  eager,       // the message matches a tagged request and carries the data
  rendezvous,  // the message matches a tagged request and says where the data is
};

class InboundMessage {
 public:
  bool in_progress() const { return kind_ != wire::Kind::none; }
  bool holds_receive() const { return has_receive_; }
  const verbs::Receive& receive() const { return receive_; }
  // Packets of the message that have arrived. All packets but the last are full.
  std::uint32_t packets(std::uint32_t mtu_bytes) const {
    return in_progress() ? static_cast<std::uint32_t>(received_ / mtu_bytes) : 0;
  }

  // Runs the ordered checks. The first check that fails is the verdict. A failed check changes
  // nothing, except that a receive request may have been taken; it stays taken for the retry.
  [[nodiscard]] RequestVerdict check(QueuePair& qp, const wire::Packet& packet, Payload payload);
  // Places the payload and, with the last packet, completes the message.
  [[nodiscard]] RequestVerdict accept(QueuePair& qp, const wire::Packet& packet, Payload payload);

  // Finds where accept() would write this packet's payload and the bytes that follow it in the
  // message, `bytes` at most. Returns false if the packet does not fit here, or if the place of its
  // payload depends on the payload.
  [[nodiscard]] bool find_placement(const QueuePair& qp, const wire::Packet& packet,
                                    std::uint32_t bytes, Placement& out) const;

  // Drops the message but keeps its receive request: for the next message with UC
  // (IBTA 9.8.2.2.1), for the same message from its start with go-back-0.
  void abandon() { kind_ = wire::Kind::none; }
  // Gives back the receive request, if one was taken, for the queue pair to flush.
  bool release_receive(std::uint64_t& wr_id) {
    if (!has_receive_) return false;
    wr_id = receive_.wr_id;
    forget_receive();
    return true;
  }
  // The receive request, if one was taken, is no longer held: it has completed or been flushed.
  void forget_receive() {
    has_receive_ = false;
    tagging_ = Tagging::none;
  }
  void reset() { *this = {}; }

 private:
  RequestVerdict check_sequence(const wire::OpcodeInfo& info) const;
  RequestVerdict check_allowed(const QueuePair& qp, const wire::OpcodeInfo& info) const;
  RequestVerdict check_length(const QueuePair& qp, const wire::OpcodeInfo& info,
                              const wire::Packet& packet, Payload payload) const;
  RequestVerdict check_receive(QueuePair& qp, const wire::OpcodeInfo& info, Payload payload);
  RequestVerdict take_receive(QueuePair& qp, const wire::OpcodeInfo& info, Payload payload);
  bool place(QueuePair& qp, Payload payload, const wire::OpcodeInfo& info);
  bool write(QueuePair& qp, std::byte* memory, Payload payload, const wire::OpcodeInfo& info);
  static bool write_first_packet(QueuePair& qp, Withheld& withheld);
  RequestVerdict check_key(const QueuePair& qp, const wire::OpcodeInfo& info,
                           const wire::Packet& packet) const;
  void complete(QueuePair& qp, const wire::Packet& packet, const wire::OpcodeInfo& info);

  wire::Kind kind_ = wire::Kind::none;
  bool has_receive_ = false;
  Tagging tagging_ = Tagging::none;  // tagging of the message that holds the receive request
  std::uint64_t received_ = 0;       // bytes of the message so far
  std::uint64_t write_address_ = 0;  // address of the WRITE's next byte
  std::uint32_t write_remaining_ = 0;
  RemoteKey write_key_;
  verbs::Receive receive_;
};

}  // namespace tulle::transport

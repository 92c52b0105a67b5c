#pragma once

// A SEND or WRITE message that is arriving packet by packet:
// the part of a responder that RC and UC share.

#include <cstdint>

#include "transport/packet_io.h"
#include "wire/packet.h"

namespace tulle::transport {

class QueuePair;

// What a responder finds wrong with a request, in the terms of IBTA 9.7.4.1 and 9.9.3.
enum class RequestVerdict : std::uint8_t {
  ok,
  invalid_opcode_sequence,  // MIDDLE without FIRST, or another message in between
  unsupported,              // an operation that this queue pair does not allow
  no_receive,               // no receive request waits
  bad_length,               // payload or DMA length do not fit the position or the path MTU
  receive_too_short,        // the receive request is shorter than the message
  access_denied,            // the R_Key does not allow it
  local_protection,         // the receive request's own memory does not allow it
  invalid_invalidate,       // SEND with invalidate of a key that cannot be invalidated
};

// What a SEND is to a shared receive queue of tag matching.
enum class Tagging : std::uint8_t {
  none,        // the queue is not of that kind
  no_tag,      // it has no tag to be matched
  unexpected,  // no tagged request waits for its tag
  eager,       // it is for a tagged request, and brings the data
  rendezvous,  // it is for a tagged request, and says where the data is
};

class InboundMessage {
 public:
  bool in_progress() const { return kind_ != wire::Kind::none; }
  bool holds_receive() const { return has_receive_; }
  const verbs::Receive& receive() const { return receive_; }
  // Of the message so far: all but a last one are full.
  std::uint32_t packets(std::uint32_t mtu_bytes) const {
    return in_progress() ? static_cast<std::uint32_t>(received_ / mtu_bytes) : 0;
  }

  // The ordered checks; the first that fails is the verdict. Nothing has changed then but a receive
  // request taken, which stays for the retry.
  [[nodiscard]] RequestVerdict check(QueuePair& qp, const wire::Packet& packet, Payload payload);
  // Places the payload and, with the last packet, completes the message.
  [[nodiscard]] RequestVerdict accept(QueuePair& qp, const wire::Packet& packet, Payload payload);

  // The message is dropped, its receive request kept: for the next one with UC (IBTA 9.8.2.2.1),
  // for the same one anew with go-back-0.
  void abandon() { kind_ = wire::Kind::none; }
  // The queue pair failed: the receive request, if one was taken, is no longer held.
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
  bool place(QueuePair& qp, Payload payload);
  RequestVerdict check_key(const QueuePair& qp, const wire::OpcodeInfo& info,
                           const wire::Packet& packet) const;
  void complete(QueuePair& qp, const wire::Packet& packet, const wire::OpcodeInfo& info);

  wire::Kind kind_ = wire::Kind::none;
  bool has_receive_ = false;
  Tagging tagging_ = Tagging::none;  // of the message that holds the receive request
  std::uint64_t received_ = 0;       // bytes of the message so far
  std::uint64_t write_address_ = 0;  // where its next byte goes
  std::uint32_t write_remaining_ = 0;
  RemoteKey write_key_;
  verbs::Receive receive_;
};

}  // namespace tulle::transport

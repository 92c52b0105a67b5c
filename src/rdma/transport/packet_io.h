#pragma once

// The input and output of transports: decoded headers, and a payload that is a reference.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "rdma/verbs/receive_queue.h"
#include "rdma/verbs/types.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/tcp.h"

namespace tulle::transport {

// IBTA 9.7.7.1.2: the longest message, in bytes. It also keeps every message within the half of the
// PSN space that can be ordered.
inline constexpr std::uint32_t dma_length_max = 1u << 31;

// A payload as it arrived. If `data` is null it is a ghost: a length whose bytes the simulation
// does not carry.
struct Payload {
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t ghost_bytes = 0;  // iWARP: bytes at the end of the payload that `data` lacks
};

// Pieces of this side's memory in order, where a payload will be written.
struct Placement {
  std::array<std::span<std::byte>, verbs::sges_max> pieces;
  std::size_t count = 0;

  void add(std::byte* memory, std::size_t bytes) { pieces[count++] = {memory, bytes}; }
};

// A packet to send. Its pieces point into registered memory or the send queue, and stay valid until
// the next call to the queue pair. A ghost payload has a length and no pieces.
struct OutgoingPacket {
  // The headers between the IP header and the payload.
  enum class Headers : std::uint8_t { bth, tcp };

  wire::Packet packet;
  // The SGEs of one request and two more, for the header and the trailer of an iWARP record.
  std::array<std::span<const std::byte>, verbs::sges_max + 2> pieces;
  std::uint8_t piece_count = 0;
  std::uint32_t payload_bytes = 0;
  // The payload is a part of a request with this many bytes of data. The program leaves them as
  // they are until the request completes, or until DirectPath::withdraw() was called for the queue
  // pair. 0: the payload may change once the packet has been sent.
  std::uint32_t lasting_bytes = 0;
  QpNumber lasting_for;  // the queue pair whose request it is
  const verbs::AddressVector* to = nullptr;
  Headers headers = Headers::bth;
  bool ecn_capable = false;       // tcp
  std::uint32_t ghost_bytes = 0;  // tcp: bytes of the payload that follow the pieces, as a ghost
  wire::Tcp tcp;                  // tcp: the header; of `packet` only destination_qp is set then

  // Bytes from BTH to the end of the payload, without pad and check sequence.
  std::uint32_t bth_and_payload_bytes() const {
    return static_cast<std::uint32_t>(wire::header_bytes(packet.opcode)) + payload_bytes;
  }
  void clear_payload() {
    piece_count = 0;
    payload_bytes = 0;
    lasting_bytes = 0;
    ghost_bytes = 0;
  }
};

}  // namespace tulle::transport

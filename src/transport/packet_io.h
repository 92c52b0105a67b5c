#pragma once

// What transports take in and give out: decoded headers, and a payload that is a reference.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs/receive_queue.h"
#include "verbs/types.h"
#include "wire/packet.h"
#include "wire/tcp.h"

namespace tulle::transport {

// IBTA 9.7.7.1.2: the longest message. Also what keeps every message within the half of the PSN
// space that can be ordered.
inline constexpr std::uint32_t dma_length_max = 1u << 31;

// A payload as it arrived. Without `data` it is a ghost:
// a length whose bytes a simulation does not carry.
struct Payload {
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t ghost_bytes = 0;  // iWARP: of these, the last so many are not in `data`
};

// A packet to send. Pieces point into registered memory or the send queue, and stay good until the
// queue pair is given something else to do. A ghost payload has a length and no pieces.
struct OutgoingPacket {
  // What stands between the IP header and the payload.
  enum class Headers : std::uint8_t { bth, tcp };

  wire::Packet packet;
  // SGEs of one request, and one of slack.
  std::array<std::span<const std::byte>, verbs::sges_max + 2> pieces;
  std::uint8_t piece_count = 0;
  std::uint32_t payload_bytes = 0;
  const verbs::AddressVector* to = nullptr;
  Headers headers = Headers::bth;
  bool ecn_capable = false;       // tcp
  std::uint32_t ghost_bytes = 0;  // tcp: of the payload, behind the pieces, if there are any
  wire::Tcp tcp;                  // instead of `packet`, of which only the destination is set then

  // Bytes from BTH to the end of the payload, without pad and check sequence.
  std::uint32_t bth_and_payload_bytes() const {
    return static_cast<std::uint32_t>(wire::header_bytes(packet.opcode)) + payload_bytes;
  }
  void clear_payload() {
    piece_count = 0;
    payload_bytes = 0;
    ghost_bytes = 0;
  }
};

}  // namespace tulle::transport

#pragma once

// A packet as bytes in shared memory: its transport headers, its payload and its pad. There are no
// checks, since memory does not damage it.

#include <atomic>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/guarded_access.h"
#include "rdma/device/adapter.h"

namespace tulle::live {

inline MemoryPieces payload_of(const device::Datagram& datagram) {
  return {datagram.pieces.data(), datagram.piece_count};
}

// Returns the bytes from BTH to the pad.
inline std::size_t transport_bytes(const device::Datagram& datagram) {
  return std::size_t{datagram.bth_and_payload_bytes()} + datagram.packet.pad_count;
}

// Writes BTH to the pad. Returns false if the payload is gone.
inline bool encode_transport(const device::Datagram& datagram, std::byte* room) {
  return attempt(payload_of(datagram), [&] {
    std::byte* at = room + wire::encode(datagram.packet, {room, wire::header_bytes_max});
    for (const std::span<const std::byte> piece : payload_of(datagram)) {
      std::memcpy(at, piece.data(), piece.size());
      at += piece.size();
    }
    std::memset(at, 0, datagram.packet.pad_count);
  });
}

// Others see all earlier writes before this process reads what follows. ThreadSanitizer does not
// know fences, and warns. It watches one process, and this orders what two see.
inline void full_fence() {
#pragma GCC diagnostic push
#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
#pragma GCC diagnostic pop
}

}  // namespace tulle::live

#pragma once

// A shorter way between queue pairs of one host: the initiator of a WRITE or READ moves the data
// itself, without packets and without the peer's processor. Only the live driver has one.
// A driver exposes regions and queue pairs to the peers, and withdraws them before they go away.
//
// A transfer is submitted, moves on in bounded steps, and is complete when all its bytes have
// moved. Between two steps nothing refers to it but the initiator's own ticket, so both ends may
// change or go away: the next step looks at everything again.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "rdma/verbs/memory.h"

namespace tulle::transport {

class QueuePair;

class DirectPath {
 public:
  virtual ~DirectPath() = default;

  // From now on peers may reach the region, or the queue pair accepts requests from its peer.
  // Another call for the same object replaces the earlier one.
  virtual void expose(const verbs::MemoryRegion& region) = 0;
  virtual void expose(const QueuePair& qp) = 0;
  // Ends the exposure. Returns when every access that began earlier has finished; or false after a
  // while, if a peer's access may not have. The memory must then stay as it is, and the caller may
  // try again.
  [[nodiscard]] virtual bool withdraw(const verbs::MemoryRegion& region) = 0;
  virtual void withdraw(const QueuePair& qp) = 0;

  // The queue pair has just been connected. Returns a token for its transfers, or 0 if its peer
  // cannot be reached by the direct path.
  virtual std::uint32_t connect(const QueuePair& qp) = 0;

  struct Transfer {
    bool read = false;  // false: WRITE
    std::uint64_t remote_address = 0;
    RemoteKey rkey;
    std::uint32_t length = 0;
    std::span<const std::span<std::byte>> pieces;  // local, in order; the sum is `length`
  };
  // A ticket says how far a transfer has come. The bytes that have moved are visible to the peer.
  struct Ticket {
    std::uint32_t moved = 0;       // bytes
    std::uint64_t generation = 0;  // of the peer's region, which a later step must find again
  };
  // Checks a new transfer, takes note of what it refers to, and moves its first bytes. Returns
  // false if the peer does not allow it. This decides nothing about the request: the caller sends
  // packets for the whole of it, and the peer's answer decides.
  [[nodiscard]] virtual bool submit(const QueuePair& qp, std::uint32_t token,
                                    const Transfer& transfer, Ticket& ticket) = 0;
  // Moves the next bytes of the same transfer, or none if the driver has other things to do first.
  // Returns false as submit() does, if the peer no longer allows it.
  [[nodiscard]] virtual bool step(const QueuePair& qp, std::uint32_t token,
                                  const Transfer& transfer, Ticket& ticket) = 0;
};

}  // namespace tulle::transport

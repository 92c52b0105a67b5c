#pragma once

// A shorter way between queue pairs of one host: the initiator of a WRITE or READ moves the data
// itself, without packets and without the peer's processor. Only the live driver has one.
// A driver exposes regions and queue pairs to the peers, and withdraws them before they go away.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "verbs/memory.h"

namespace tulle::transport {

class QueuePair;

class DirectPath {
 public:
  virtual ~DirectPath() = default;

  // From now on peers may reach the region, or the queue pair accepts requests from its peer.
  // Another call for the same object replaces the earlier one.
  virtual void expose(const verbs::MemoryRegion& region) = 0;
  virtual void expose(const QueuePair& qp) = 0;
  // Ends the exposure. Returns when every access that began earlier has finished.
  virtual void withdraw(const verbs::MemoryRegion& region) = 0;
  virtual void withdraw(const QueuePair& qp) = 0;

  // The queue pair has just been connected. Returns a token for `execute`, or 0 if its peer cannot
  // be reached by the direct path.
  virtual std::uint32_t connect(const QueuePair& qp) = 0;

  struct Transfer {
    bool read = false;  // false: WRITE
    std::uint64_t remote_address = 0;
    RemoteKey rkey;
    std::uint32_t length = 0;
    std::span<const std::span<std::byte>> pieces;  // local, in order; the sum is `length`
  };
  // Returns true if the transfer is done and visible to the peer. False decides nothing about the
  // request: the caller sends packets, and the peer's answer decides.
  [[nodiscard]] virtual bool execute(const QueuePair& qp, std::uint32_t token,
                                     const Transfer& transfer) = 0;
};

}  // namespace tulle::transport

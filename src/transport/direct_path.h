#pragma once

// A shorter way between queue pairs of one host: the initiator of a WRITE or READ moves the data
// itself, without packets and without the peer's processor (live only; a simulated host has none).
// What peers may touch is exposed to them, and withdrawn before it goes away.

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

  // Peers may reach the region; a queue pair accepts its peer's requests.
  // Calling again replaces what was said.
  virtual void expose(const verbs::MemoryRegion& region) = 0;
  virtual void expose(const QueuePair& qp) = 0;
  // No longer: returns when no access that began before is under way.
  virtual void withdraw(const verbs::MemoryRegion& region) = 0;
  virtual void withdraw(const QueuePair& qp) = 0;

  // Whether the peer of a queue pair that has just been connected can be reached so; a token for
  // `execute`, or 0.
  virtual std::uint32_t connect(const QueuePair& qp) = 0;

  struct Transfer {
    bool read = false;  // else write
    std::uint64_t remote_address = 0;
    RemoteKey rkey;
    std::uint32_t length = 0;
    std::span<const std::span<std::byte>> pieces;  // local, in order; the sum is `length`
  };
  // True: done, and visible to the peer. False: nothing was decided; packets will find out.
  [[nodiscard]] virtual bool execute(const QueuePair& qp, std::uint32_t token,
                                     const Transfer& transfer) = 0;
};

}  // namespace tulle::transport

#pragma once

// How much the receive buffers of this host's processes still hold. UC and UD have no window: where
// a link between real adapters would hold the sender back (credits, or PFC), a socket buffer that
// is full loses datagrams, and a program that trusts its network waits for them for ever. All
// sockets of the host lie in the vault, so the sender can ask the kernel
// how full the receiver's is.
//
// A receiver that takes nothing for long (it was stopped, say) must not hold up the datagrams to
// others: after some patience what is for it is sent all the same, as a switch's pause watchdog
// would, until there is room again.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/time.h"
#include "live/port/socket_group.h"
#include "live/unique_fd.h"

namespace tulle::live {

class Backlog {
 public:
  static constexpr Time patience = Time::milliseconds(100);

  // Without a vault nothing is ever held back.
  explicit Backlog(UniqueFd vault) : vault_(std::move(vault)) {}

  // Whether a message of so many bytes (all its datagrams) may go to a slot of this host now. Asks
  // the kernel only when what it said last is used up.
  bool admits(std::uint32_t slot, std::size_t bytes, Time now);

 private:
  struct Receiver {
    bool is_known = false;
    UniqueFd socket;
    std::size_t room_bytes = 0;  // that may be sent before the kernel is asked again
    Time full_since = Time::never();
  };
  Receiver& receiver_at(std::uint32_t slot);
  static std::size_t room_of(int socket);

  UniqueFd vault_;
  std::array<Receiver, slots> receivers_;
};

}  // namespace tulle::live

#pragma once

// Tracks how much room the receive buffers of this host's processes have. UC and UD have no window.
// A link between real adapters would hold the sender back (with credits or PFC), but a full socket
// buffer loses datagrams, and a program that trusts its network waits for them indefinitely. All
// sockets of the host are in the descriptor store, so the sender can ask the kernel how full the
// receiver's is.
//
// A receiver that takes nothing for long (because it was stopped, say) must not hold up datagrams
// to other processes. When the patience time is over, its datagrams are sent all the same until
// there is room again, as under a switch's pause watchdog. On a busy machine a receiver may wait
// for a processor for some tenths of a second, so the patience is longer than that.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/time.h"
#include "live/path/packets/socket_group.h"
#include "os/unique_fd.h"

namespace tulle::live {

class Backlog {
 public:
  static constexpr Time patience = Time::milliseconds(1'000);

  // Nothing is ever delayed if there is no descriptor store.
  explicit Backlog(UniqueFd vault) : vault_(std::move(vault)) {}

  // Returns true if a message of `bytes` (all its datagrams) may go to a slot of this host now.
  // Asks the kernel only when the room that it reported last is used up.
  bool admits(std::uint32_t slot, std::size_t bytes, Time now);
  // Closes all descriptors. From then on nothing is delayed.
  void forget() {
    vault_.reset();
    for (Receiver& receiver : receivers_) receiver = {.is_known = true, .socket = {}};
  }
  void rebase(Time by) {
    for (Receiver& receiver : receivers_) tulle::rebase(by, receiver.full_since);
  }

 private:
  struct Receiver {
    bool is_known = false;
    UniqueFd socket;
    std::size_t room_bytes = 0;  // bytes that may be sent before the kernel is asked again
    Time full_since = Time::never();
  };
  Receiver& receiver_at(std::uint32_t slot);
  static std::size_t room_of(int socket);

  UniqueFd vault_;
  std::array<Receiver, slots> receivers_;
};

}  // namespace tulle::live

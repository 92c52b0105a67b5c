#pragma once

// Closes descriptors that came from others.
//
// Closing may take as long as the descriptor's owner likes: a TCP socket with SO_LINGER waits for
// its peer, and a file of a user's own file system for that user's program. The same holds for a
// connection in which such descriptors are still unread. A process that serves many must not wait,
// so each sender has a thread that closes what came from that sender.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "os/unique_fd.h"

namespace tulle::live {

class Closer {
 public:
  // The sender of a descriptor: a user for the agent, and a process for a fabric.
  using Sender = std::uint32_t;

  Closer();

  // Closes the descriptor soon, and after all that came from that sender before.
  void close(Sender sender, UniqueFd fd);
  // Returns how many of that sender's descriptors are not yet closed.
  std::size_t waiting(Sender sender) const;

 private:
  struct State;
  // The threads share the state, since one that waits may outlive this object.
  std::shared_ptr<State> state_;
};

}  // namespace tulle::live

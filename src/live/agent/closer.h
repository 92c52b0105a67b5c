#pragma once

// Closes descriptors that came from other users.
//
// Closing may take as long as the descriptor's owner likes: a TCP socket with SO_LINGER waits for
// its peer, and a file of a user's own file system for that user's program. The same holds for a
// connection in which such descriptors are still unread. The agent must not wait, so each user has
// a thread that closes what came from that user.

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "os/unique_fd.h"

namespace tulle::live {

class Closer {
 public:
  Closer();

  // Closes the descriptor soon, and after all that came from that user before.
  void close(uid_t user, UniqueFd fd);
  // Returns how many of that user's descriptors are not yet closed.
  std::size_t waiting(uid_t user) const;

 private:
  struct State;
  // The threads share the state, since one that waits may outlive this object.
  std::shared_ptr<State> state_;
};

}  // namespace tulle::live

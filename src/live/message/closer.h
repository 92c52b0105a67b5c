#pragma once

// Closes descriptors that came from others.
//
// Closing may take as long as the descriptor's owner likes: a TCP socket with SO_LINGER waits for
// its peer, and a file of a user's own file system for that user's program. The same holds for a
// connection in which such descriptors are still unread. A process that serves many must not wait,
// so threads close what came: one descriptor of a sender, then one of the next. A sender never
// keeps more than one thread waiting. Many senders may keep all waiting, since nobody can tell
// beforehand what closes slowly; owners therefore take no more descriptors once many wait.
//
// Anybody can connect, though, leave messages with such descriptors unread, and go. For connections
// an owner therefore has a second closer, whose threads have others close them that exit
// (exiting_threads.h), for which no peer can keep a closer waiting.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "os/unique_fd.h"

namespace tulle::live {

class Closer {
 public:
  // The sender of a descriptor: a user for the agent, and a process for a fabric, or a connection
  // of an unknown process.
  using Sender = std::uint32_t;

  enum class Way : std::uint8_t {
    usual,
    by_exiting,  // for sockets; as usual where that is impossible
  };
  explicit Closer(std::size_t threads_max, Way way = Way::usual);

  // Closes the descriptor soon, and after all that came from that sender before.
  void close(Sender sender, UniqueFd fd);
  // Tries once more to get threads that could not be had. To be called now and then.
  void retry();
  // Returns how many of that sender's descriptors are not yet closed.
  std::size_t waiting(Sender sender) const;
  // Returns the same for all senders.
  std::size_t waiting() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct State;
  void start_threads();

  std::size_t threads_max_;
  bool lacks_threads_ = false;
  Clock::time_point tried_;
  // The threads share the state, since one that waits may outlive this object.
  std::shared_ptr<State> state_;
};

}  // namespace tulle::live

#pragma once

// Closes descriptors that came from others, or that others have too.
//
// Closing may take as long as the descriptor's owner likes: a TCP socket with SO_LINGER waits for
// its peer, a file of a user's own file system for that user's program, and any file for a user who
// has it in an epoll instance (exiting_threads.h). The same holds for a connection in which such
// descriptors are still unread. A process that serves many must not wait, so threads that exit
// close them. A sender has a few such threads at once; the more of them wait, the more descriptors
// the next one takes along.
//
// Where a thread cannot have its own descriptors, usual threads close: one descriptor of a sender,
// then one of the next. A sender never keeps more than one thread waiting. Many senders may keep
// all waiting, since nobody can tell beforehand what closes slowly; owners therefore take no more
// descriptors once many wait.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "live/message/exiting_threads.h"
#include "os/unique_fd.h"

namespace tulle::live {

class Closer {
 public:
  // The sender of a descriptor: a user for the agent, and a process for a fabric, or a connection
  // of an unknown process.
  using Sender = std::uint32_t;

  // A sender's threads that each take whatever there is; later ones take many descriptors, or what
  // has waited long.
  static constexpr std::size_t threads_at_once = 4;
  static constexpr std::size_t threads_for_few = 64;
  static constexpr std::chrono::seconds patience{10};
  // Once this process has so many descriptors of all senders, a sender's next thread takes whatever
  // there is, until the sender has many threads.
  static constexpr std::size_t many = 256;
  static constexpr std::size_t threads_for_any = 128;

  // Usual threads, if needed, are so many at most. Closers may share `exiting`.
  Closer(std::size_t threads_max, std::shared_ptr<ExitingThreads> exiting);
  ~Closer();
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  // Closes the descriptor soon. Without memory it stays open.
  void close(Sender sender, UniqueFd fd) noexcept;
  // Counts descriptors that a thread which exits has already.
  void add(Sender sender, pid_t thread, std::size_t files);
  // Tries once more to get threads that could not be had. To be called now and then.
  void retry();
  // Returns how many of that sender's descriptors are not yet closed, those of threads that wait
  // included.
  std::size_t waiting(Sender sender) const;
  // Returns how many of all senders' this process still has.
  std::size_t waiting() const;
  // Hands all over at once, and waits for that no longer than told. To be called before the process
  // ends: the kernel would close what is left with all else.
  void finish(std::chrono::milliseconds patience_then);

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

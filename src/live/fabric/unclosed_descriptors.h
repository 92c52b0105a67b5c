#pragma once

// Descriptors that came from programs, and sockets of programs that have gone, that are not closed
// yet. Some may close slowly, and the fabric does not wait for them.

#include <cstddef>
#include <utility>
#include <vector>

#include "live/fabric/session.h"
#include "live/message/closer.h"
#include "live/message/sender_closers.h"
#include "os/unique_fd.h"

namespace tulle::live {

class UnclosedDescriptors {
 public:
  static constexpr std::size_t of_sender_max = 1'024;

  // Programs together have a quarter of the descriptors that this process may have. To be made
  // before descriptors of others come (exiting_threads.h).
  UnclosedDescriptors();
  explicit UnclosedDescriptors(std::size_t all_max) : all_max_(all_max) {}

  // Closes what came from a session's program.
  void close(const FabricSession& session, UniqueFd fd) {
    closers_.close(session.sender(), std::move(fd));
  }
  void close(const FabricSession& session, std::vector<UniqueFd> fds) {
    closers_.close(session.sender(), std::move(fds));
  }
  // Closes a socket that a program has the other end of. Its messages may carry descriptors.
  void close_socket(Closer::Sender sender, UniqueFd socket) {
    closers_.close_socket(sender, std::move(socket));
  }
  // The same, of one that is shut down: without anything unread it closes at once, however much
  // waits.
  void close_shut(Closer::Sender sender, UniqueFd socket) {
    closers_.close_shut(sender, std::move(socket));
  }
  // Receives the next message of a session's program, with harmless descriptors only.
  Result<ReceivedMessage> receive(const FabricSession& session, int socket,
                                  std::vector<UniqueFd>& of_no_message) {
    return closers_.receive(session.sender(), socket, &of_no_message);
  }
  // Keeps a descriptor that a session's program gets.
  GivenDescriptor given(const FabricSession& session, UniqueFd fd) {
    return {&closers_, session.sender(), std::move(fd)};
  }
  // To be called before the fabric ends, with its listener, whose queue may have connections with
  // descriptors too.
  void finish(UniqueFd listener) {
    closers_.close_socket(0, std::move(listener));
    closers_.finish();
  }
  // Returns true if too many sockets are not closed yet: there are no threads, or Linux is older
  // than 5.9.
  bool has_many_sockets() const { return closers_.sockets().waiting() >= all_max_; }
  // Returns why no message of a session's socket is read, and null if it may be. A message may
  // bring many descriptors. One without any is read, too, while there are too many of all programs
  // together.
  const char* objection_to_reading(const FabricSession& session, int socket) const;
  // To be called now and then.
  void retry() { closers_.retry(); }

 private:
  static constexpr std::size_t threads_max = 64;

  SenderClosers closers_{threads_max};
  std::size_t all_max_;
};

}  // namespace tulle::live

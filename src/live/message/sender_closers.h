#pragma once

// Closes what other users' programs, or the programs of a fabric, have sent or left: descriptors
// that came with messages, and sockets whose other end a program has. Each may close slowly.

#include <cstddef>
#include <utility>
#include <vector>

#include "live/message/closer.h"
#include "live/message/socket.h"
#include "os/unique_fd.h"

namespace tulle::live {

class SenderClosers {
 public:
  using Sender = Closer::Sender;

  // Either kind has at most so many threads. To be made before descriptors of others come
  // (exiting_threads.h).
  explicit SenderClosers(std::size_t threads_max)
      : sockets_(threads_max, Closer::Way::by_exiting), received_(threads_max) {}

  // Closes what came with messages.
  void close(Sender sender, UniqueFd fd) { received_.close(sender, std::move(fd)); }
  void close(Sender sender, std::vector<UniqueFd> fds) {
    for (UniqueFd& fd : fds) close(sender, std::move(fd));
  }
  // Closes a socket, whose messages may carry descriptors.
  void close_socket(Sender sender, UniqueFd socket) { sockets_.close(sender, std::move(socket)); }
  // The same, of one that is shut down: without anything unread it closes at once, however much
  // waits.
  void close_shut(Sender sender, UniqueFd socket) {
    if (socket && holds_messages(socket.get())) close_socket(sender, std::move(socket));
  }
  // To be called now and then.
  void retry() {
    received_.retry();
    sockets_.retry();
  }

  // These have the numbers of descriptors that are not closed yet.
  const Closer& received() const { return received_; }
  const Closer& sockets() const { return sockets_; }

 private:
  Closer sockets_;
  Closer received_;
};

}  // namespace tulle::live

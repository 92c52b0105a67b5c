#pragma once

// Closes what other users' programs, or the programs of a fabric, have sent, hold or left:
// descriptors that came with messages or were sent to them, and sockets whose other end a program
// has. Each may close slowly.

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "live/message/closer.h"
#include "live/message/exiting_threads.h"
#include "live/message/socket.h"
#include "os/unique_fd.h"

namespace tulle::live {

class SenderClosers {
 public:
  using Sender = Closer::Sender;

  // Either kind has at most so many threads where threads cannot have their own descriptors. To be
  // made before descriptors of others come (exiting_threads.h).
  explicit SenderClosers(std::size_t threads_max)
      : exiting_(std::make_shared<ExitingThreads>()),
        sockets_(threads_max, exiting_),
        files_(threads_max, exiting_) {}

  // False if the threads that close cannot have their own descriptors here.
  bool is_possible() const { return exiting_->is_possible(); }
  // Receives a message of a program that is not trusted. Descriptors come only if all are shared
  // memory or local sockets, which nothing but a last close keeps waiting. Others end the
  // conversation: the error_number is EPROTO. `of_no_message` is as in receive_message().
  Result<ReceivedMessage> receive(Sender sender, int socket, std::vector<UniqueFd>* of_no_message);
  // Closes what came with messages, or a program has too.
  void close(Sender sender, UniqueFd fd) { files_.close(sender, std::move(fd)); }
  void close(Sender sender, std::vector<UniqueFd> fds) {
    for (UniqueFd& fd : fds) close(sender, std::move(fd));
  }
  // Closes a socket, whose messages may carry descriptors.
  void close_socket(Sender sender, UniqueFd socket) { sockets_.close(sender, std::move(socket)); }
  // The same, of one that is shut down: it closes at once, however much waits, unless a message
  // carries a descriptor. So a sender that makes this process keep sockets has as many descriptors
  // under way, which Linux limits.
  void close_shut(Sender sender, UniqueFd socket) {
    if (socket && !drop_messages(socket.get())) close_socket(sender, std::move(socket));
  }
  // To be called now and then.
  void retry() {
    files_.retry();
    sockets_.retry();
  }
  // To be called before the process ends, once it needs no other descriptor.
  void finish() {
    constexpr std::chrono::milliseconds patience{500};
    files_.finish(patience);
    sockets_.finish(patience);
  }

  // These have the numbers of descriptors that are not closed yet.
  const Closer& files() const { return files_; }
  const Closer& sockets() const { return sockets_; }

 private:
  std::shared_ptr<ExitingThreads> exiting_;
  Closer sockets_;
  Closer files_;
};

// A descriptor that is sent to a program, which has the same file from then on. The last close of a
// file may be this process's, and waits for the program then.
class GivenDescriptor {
 public:
  // Without closers, the program is trusted.
  GivenDescriptor(SenderClosers* closers, Closer::Sender sender, UniqueFd fd)
      : closers_(closers), sender_(sender), fd_(std::move(fd)) {}
  ~GivenDescriptor() {
    if (closers_ != nullptr) closers_->close(sender_, std::move(fd_));
  }
  GivenDescriptor(GivenDescriptor&&) = default;
  GivenDescriptor& operator=(GivenDescriptor&&) = delete;

  int get() const { return fd_.get(); }

 private:
  SenderClosers* closers_;
  Closer::Sender sender_;
  UniqueFd fd_;
};

}  // namespace tulle::live

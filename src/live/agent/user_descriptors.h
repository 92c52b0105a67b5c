#pragma once

// Descriptors of users who are limited: what came from their programs, and connections of programs
// that have gone, that the agent has not closed yet; and what they were sent and have not read. The
// agent's own user is not limited.

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "live/agent/session.h"
#include "live/agent/session_table.h"
#include "live/message/sender_closers.h"
#include "os/unique_fd.h"

namespace tulle::live {

class UserDescriptors {
 public:
  // Those in messages that a user's program has not read. A program that reads has a few; a capture
  // gets one of each process at once.
  static constexpr std::size_t unread_of_connection_max = 8;
  static constexpr std::size_t unread_of_user_max = 512;

  // The sessions must outlive this object, but it uses none of them before it is called. To be made
  // before descriptors of others come (exiting_threads.h).
  explicit UserDescriptors(const SessionTable& sessions) : sessions_(sessions) {}

  // Closes what came from a session's process. The agent does not wait for another user's.
  void close(const Session& session, UniqueFd fd);
  void close(const Session& session, std::vector<UniqueFd> fds);
  // Closes the connection of a session that ends. What another user's program has not read stays in
  // the kernel, and counts as one of the user's connections until it is read.
  void close_connection(Session& session);
  // Closes such connections whose programs have read all.
  void close_read();
  // Receives a session's next message. Another user's brings only harmless descriptors.
  Result<ReceivedMessage> receive(const Session& session, std::vector<UniqueFd>& of_no_message);
  // Keeps a descriptor that a session's program gets.
  GivenDescriptor given(const Session& session, UniqueFd fd);
  // Closes what sessions still have, and the listener, whose queue may have connections with
  // descriptors too, before the agent ends.
  void finish(UniqueFd listener);
  // To be called now and then.
  void retry() { closers_.retry(); }

  // Returns how many of what came from a user's programs, or went to them, are not closed yet.
  std::size_t waiting(uid_t user) const { return closers_.files().waiting(user); }
  // Returns the same, and the user's connections that are not closed yet.
  std::size_t unclosed(uid_t user) const;
  // Returns true if too many connections of all users are not closed yet: there are no threads, or
  // Linux is older than 5.9.
  bool has_many_connections() const;

  // Returns false if so many descriptors more would be too many of the session, of its user, or of
  // all users. Linux counts the descriptors in unread messages for their sender, and lets the agent
  // send none once there are more than it may have open. All users who are limited get a quarter of
  // that.
  bool has_room(const Session& session, std::size_t count) const;
  // Sends a session's program a message with descriptors. The error_number is EAGAIN if there is no
  // room.
  Result<void> send(Session& session, std::span<const std::byte> bytes,
                    std::span<const int> fds) const;

 private:
  // Connections of sessions that have ended, whose programs have not read all descriptors.
  struct LeftUnread {
    uid_t user = 0;
    std::size_t descriptors = 0;
    UniqueFd connection;
  };

  // More users than these come only from somebody who has many numbers.
  static constexpr std::size_t threads_max = 512;

  const SessionTable& sessions_;
  SenderClosers closers_{threads_max};
  std::vector<LeftUnread> left_unread_;
};

}  // namespace tulle::live

#pragma once

// The connections of programs to a software fabric, and the bounds on them.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "live/fabric/host_clients.h"
#include "live/fabric/session.h"
#include "live/message/closer.h"
#include "live/message/socket.h"
#include "os/unique_fd.h"

namespace tulle::live {

class SessionList {
 public:
  static constexpr std::size_t sessions_max = 1'024;
  // Beyond those of programs, for the commands of the fabric's owner: status, cut, down.
  static constexpr std::size_t commands_max = 32;
  static constexpr std::size_t sessions_of_process_max = sessions_max / 4;
  // Of all processes that the system does not tell apart.
  static constexpr std::size_t sessions_of_unknown_max = sessions_max / 2;
  // Connections that have said nothing yet.
  static constexpr std::size_t silent_max = 64;

  auto begin() const { return sessions_.begin(); }
  auto end() const { return sessions_.end(); }
  FabricSession* find(std::uint32_t id) const;

  // Returns the number for the next session.
  std::uint32_t unused_id();
  void add(std::unique_ptr<FabricSession> session) { sessions_.push_back(std::move(session)); }
  // Removes those whose connection is closed.
  void remove_closed() {
    std::erase_if(sessions_, [](const auto& session) { return !session->connection; });
  }
  // Marks the oldest of the connections that have said nothing as over, if there are too many. One
  // whose first message has not been read has said something.
  void end_silent();
  // Returns why a session that has said something is one too many, and nothing if it is not.
  std::string no_place_for(const FabricSession& session, bool is_command) const;
  // Returns whether a session's program may be sent so many bytes in a file: its socket bounds how
  // many datagrams wait in it, but not the bytes of their files. Processes that the system does not
  // tell apart count as one.
  bool has_room_for_file(const FabricSession& session, std::size_t bytes);

  // Keeps the session's end of the socket for datagrams. The files in it that its program has not
  // read count although the session has ended, and so does the connection.
  void leave_unread(FabricSession& session);
  // Gives `close`, with their senders, the sockets of such sessions whose programs have read all.
  template <typename Close>
  void take_read(Close close) {
    for (LeftUnread& each : left_unread_) {
      if (is_all_read(each.datagrams.get())) close(each.sender, std::move(each.datagrams));
    }
    std::erase_if(left_unread_, [](const LeftUnread& each) { return !each.datagrams; });
  }

 private:
  struct LeftUnread {
    Closer::Sender sender = 0;
    pid_t process = 0;
    std::size_t file_bytes = 0;
    UniqueFd datagrams;
  };

  std::vector<std::unique_ptr<FabricSession>> sessions_;
  std::vector<LeftUnread> left_unread_;
  std::uint32_t next_id_ = 0;  // of the last session
};

}  // namespace tulle::live

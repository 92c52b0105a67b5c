#pragma once

// Datagrams between a program and the fabric. A long one is in a sealed memory file that travels
// with its message.

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "live/fabric/messages.h"
#include "live/message/socket.h"
#include "os/unique_fd.h"

namespace tulle::live {

// Longer datagrams go in a file.
inline constexpr std::size_t datagram_bytes_in_message = 64 << 10;
// The longest datagram. A subnet manager's table of all paths among 512 ports has 17 MiB.
inline constexpr std::size_t datagram_bytes_max = 64 << 20;

// Returns whether a process may have so many bytes in files of datagrams that it has not read,
// while all have so many. A little is each one's.
bool has_room_for_files(std::size_t bytes_of_process, std::size_t bytes_of_all);
// Sends a datagram. Never blocks: the error_number is EAGAIN if the other end has not read the last
// ones, and EMSGSIZE if the datagram is too long.
Result<void> send_datagram(int socket, Datagram datagram);
// Takes a datagram that has come. The error_number is EAGAIN if there is none, ECONNRESET if the
// other end is gone, and EPROTO if it is none.
Result<Datagram> receive_datagram(int socket);
// A datagram that has come. Of one in a file, only the first bytes have been read, which say
// whether anybody wants the others.
struct ArrivedDatagram {
  static constexpr std::size_t first_bytes = 256;  // a packet's

  Datagram datagram;
  UniqueFd file;          // none: the bytes came in the message
  std::size_t bytes = 0;  // that the whole datagram has

  bool is_whole() const { return datagram.bytes.size() == bytes; }
};
// Takes a datagram as receive_datagram() does, without the rest of its file. Descriptors that are
// of no use go to `unused`, for callers who must not wait until they are closed.
Result<ArrivedDatagram> receive_first_bytes(int socket, std::vector<UniqueFd>& unused);
// The same, of a message that has been received.
Result<ArrivedDatagram> first_bytes_of(Result<ReceivedMessage> message,
                                       std::vector<UniqueFd>& unused);
// Reads at most so many of the bytes that are left. The error_number is ENOMEM if there is no
// memory for them.
Result<void> read_more(ArrivedDatagram& arrived, std::size_t bytes_max);
// Returns the size of the next datagram, and leaves it there.
Result<std::size_t> next_datagram_bytes(int socket);

}  // namespace tulle::live

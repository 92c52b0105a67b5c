#pragma once

// Datagrams between a program and the fabric. A long one is in a sealed memory file that travels
// with its message.

#include <cstddef>

#include "base/result.h"
#include "live/fabric/messages.h"

namespace tulle::live {

// Longer datagrams go in a file.
inline constexpr std::size_t datagram_bytes_in_message = 64 << 10;
// The longest datagram. A subnet manager's table of all paths among 512 ports has 17 MiB.
inline constexpr std::size_t datagram_bytes_max = 64 << 20;

// Sends a datagram. Never blocks: the error_number is EAGAIN if the other end has not read the last
// ones, and EMSGSIZE if the datagram is too long.
Result<void> send_datagram(int socket, Datagram datagram);
// Takes a datagram that has come. The error_number is EAGAIN if there is none, ECONNRESET if the
// other end is gone, and EPROTO if it is none.
Result<Datagram> receive_datagram(int socket);
// Returns the size of the next datagram, and leaves it there.
Result<std::size_t> next_datagram_bytes(int socket);

}  // namespace tulle::live

#pragma once

// The flags of calls that send and receive. A flag that cannot hold over RDMA is refused: what it
// asks for would otherwise be done to other bytes.

#include <sys/socket.h>

#include <cerrno>

namespace tulle::rsockets {

// These have a meaning here, or none that the data shows.
inline constexpr int receive_flags = MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT | MSG_TRUNC |
                                     MSG_CMSG_CLOEXEC | MSG_NOSIGNAL | MSG_MORE | MSG_EOR |
                                     MSG_WAITFORONE;
inline constexpr int send_flags =
    MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_EOR | MSG_WAITALL | MSG_CONFIRM | MSG_ZEROCOPY;

// Return 0 or an errno, as Linux does for TCP where it knows the flag.
constexpr int check_receive_flags(int flags) {
  if ((flags & MSG_ERRQUEUE) != 0) return EAGAIN;  // no error waits there
  if ((flags & MSG_OOB) != 0) return EINVAL;       // nor do urgent data
  return (flags & ~receive_flags) != 0 ? EOPNOTSUPP : 0;
}

constexpr int check_send_flags(int flags) { return (flags & ~send_flags) != 0 ? EOPNOTSUPP : 0; }

}  // namespace tulle::rsockets

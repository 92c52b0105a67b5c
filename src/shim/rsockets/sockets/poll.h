#pragma once

#include <poll.h>

#include <span>

namespace tulle::rsockets {

// Works like poll() for sockets over RDMA and descriptors of any other kind. It waits on the
// descriptors behind the sockets, and on all others directly. Returns 0 or an errno; `count` is the
// number of descriptors for which something happened.
int poll_sockets(std::span<pollfd> fds, int timeout_milliseconds, int& count);

}  // namespace tulle::rsockets

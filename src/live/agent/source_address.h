#pragma once

#include "live/message/connection_values.h"

namespace tulle::live {

// Finds the address of this host from which datagrams to the destination come, as the kernel's
// routes say. `source` may hold an address of this host already, from which they are to come.
// Returns 0 or an errno.
//
// A UDP socket's connect(2) would tell the same, but the agent has given up connect(2), by which a
// process reaches other services of its user.
int find_source_address(SocketAddress& source, const SocketAddress& destination);

}  // namespace tulle::live

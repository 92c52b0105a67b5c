#pragma once

// The transports that IBTA does not define: SRD, TCP sockets and iWARP. No live device has one yet,
// so the programs that start none need not load them.

#include "rdma/transport/transport.h"

namespace tulle::transport {

// Returns the standard transports and these.
const TransportTable& all_transports();

}  // namespace tulle::transport

#pragma once

// MAC addresses of neighbours, from the kernel's table (ARP and neighbour discovery).

#include <cstdint>

#include "base/ids.h"
#include "base/result.h"
#include "wire/ethernet.h"

namespace tulle::live {

// Returns the MAC address of a neighbour on an interface's link. A neighbour that the kernel does
// not know is sent an empty datagram from the address `source`, so that the kernel asks for it. Waits
// a second at most, as Linux's RDMA core does (drivers/infiniband/core/addr.c). The errors are
// EHOSTUNREACH if nobody answers, which is so behind a router too, and those of the kernel.
Result<wire::MacAddress> resolve_neighbour(std::uint32_t interface_index, const Gid& source,
                                           const Gid& neighbour);

}  // namespace tulle::live

#pragma once

#include <linux/rtnetlink.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "live/message/connection_values.h"

namespace tulle::live {

// Finds the address of this host from which datagrams to the destination come, as the kernel's
// routes say. `source` may hold an address of this host already, from which they are to come.
// Returns 0 or an errno.
//
// A UDP socket's connect(2) would tell the same, but the agent has given up connect(2), by which a
// process reaches other services of its user.
int find_source_address(SocketAddress& source, const SocketAddress& destination);

// What the kernel answers about a route.
struct KernelRoute {
  int error = ENETUNREACH;  // an errno; 0: there is one
  std::uint8_t type = RTN_UNSPEC;
  std::optional<std::array<std::byte, 16>> source;
  std::uint32_t interface_index = 0;  // 0: none is named
};

// Reads the messages of an answer (rtnetlink(7)), which may hold anything.
KernelRoute read_route(std::span<const std::byte> messages);

}  // namespace tulle::live

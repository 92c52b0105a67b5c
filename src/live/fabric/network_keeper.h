#pragma once

// The process that makes the namespaces of a fabric's hosts (host_networks.h).

#include <cstdint>
#include <string>
#include <string_view>

namespace tulle::live {

// The keeper's first message if the bridge is there, with a descriptor of its namespace, which
// would otherwise go with the keeper. Any other message says why there is none.
inline constexpr std::string_view bridge_ready = "ready";

// Runs in the keeper's process, which has one thread, until the other end of `socket` is closed.
//
// After the first message, each message that comes is a host's number in decimal digits. It is
// answered by a message with that number and the descriptors of the host's namespaces, or by the
// number, a space, and the reason why there are none. `file` has the names and addresses of all
// hosts, as in /etc/hosts.
void keep_networks(int socket, const std::string& file, std::uint32_t hosts);

}  // namespace tulle::live

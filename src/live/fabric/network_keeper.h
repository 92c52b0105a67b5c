#pragma once

// The process that makes the namespaces of a fabric's hosts (host_networks.h).

#include <cstdint>
#include <string>
#include <string_view>

namespace tulle::live {

// The keeper's first message if the bridge is there, with a descriptor of its namespace, which
// would otherwise go with the keeper. A space and the reason follow if there can be no interfaces
// of IP over InfiniBand. Any other message says why there is no bridge.
inline constexpr std::string_view bridge_ready = "ready";

// Runs in the keeper's process, which has one thread, until the other end of `socket` is closed.
//
// After the first message, each message that comes is a request, whose words a space separates. Its
// descriptors are those of the host's namespaces, if these have been made:
//
//     host NUMBER                               makes the namespaces of a host
//     interface NUMBER NAME MTU ADDRESS ...     makes an interface of a host that has packets from
//                                               and to this process
//     mtu NUMBER NAME MTU                       changes the longest packet of an interface
//
// The answer begins with the first word, the number and, for interfaces, the name. Descriptors come
// with it: of the namespaces, or of the interface and a socket that tells of its addresses, behind
// the interface's index as one more word. An answer without descriptors says, as its last words,
// why there are none. Changes of the MTU are not answered.
//
// `file` has the names and addresses of all hosts, as in /etc/hosts.
void keep_networks(int socket, const std::string& file, std::uint32_t hosts);

}  // namespace tulle::live

#pragma once

// The longest IP packets that network interfaces take.

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tulle {

// Returns the MTU of an interface in bytes; nothing if there is no such interface.
std::optional<std::uint32_t> interface_mtu(const std::string& name);

// Returns the MTU in bytes of the interface that has an IPv4 or IPv6 address; nothing if none does.
std::optional<std::uint32_t> interface_mtu(const sockaddr_storage& address);

}  // namespace tulle

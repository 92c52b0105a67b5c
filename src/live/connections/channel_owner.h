#pragma once

// A channel's number, and the program that has the channel.

#include <sys/types.h>

#include <cstdint>

namespace tulle::live {

using ChannelNumber = std::uint32_t;

// A program that has a channel. One user is limited to half of what the host has of ports and
// connections, unless all trust that user.
struct ChannelOwner {
  pid_t pid = 0;
  uid_t user = 0;
  bool is_limited = false;
  bool operator==(const ChannelOwner&) const = default;
};

}  // namespace tulle::live

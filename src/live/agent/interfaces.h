#pragma once

// The network interfaces of the host, as devices see them.

#include <cstdint>

#include "base/result.h"
#include "live/device_choice.h"
#include "live/message/device_info.h"

namespace tulle::live {

// Returns the largest path MTU (IBTA: 256 to 4096) whose packets fit an interface's MTU.
std::uint32_t path_mtu_bytes(std::uint32_t interface_mtu_bytes);

// Describes the chosen device. If no interfaces are given, it uses all interfaces that are up and
// have an address, except loopback; if there are none, loopback. Its path MTU leaves this many
// bytes of each datagram free.
Result<DeviceInfo> describe_device(const DeviceChoice& choice, std::uint32_t free_bytes = 0);

// Describes a device in use as it is now: the interfaces that it has, up or down, and if none were
// given, also those that have come up since. Lists all addresses without assigning GID indices.
DeviceInfo redescribe_device(const DeviceInfo& before, const DeviceChoice& choice,
                             std::uint32_t free_bytes = 0);

}  // namespace tulle::live

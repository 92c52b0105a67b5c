#pragma once

// The host's network interfaces, as devices see them.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "live/device.h"

namespace tulle::live {

// The largest path MTU (IBTA: 256 to 4096) whose packets fit an interface's MTU.
std::uint32_t path_mtu_bytes(std::uint32_t interface_mtu_bytes);

// A device called `name` over these interfaces (names with commas between). With none given: over
// all that are up and have an address, save loopback; over loopback where there is no other.
Result<DeviceInfo> describe_device(const std::string& name, const std::string& interfaces);

// What there is now of a device that is in use: the interfaces that it has, up or down, and where
// none were given, those that have come up since. All addresses; which index each has is not said.
DeviceInfo redescribe_device(const DeviceInfo& before, const std::string& interfaces);

}  // namespace tulle::live

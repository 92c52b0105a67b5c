#pragma once

// The devices that programs find, as the host agent describes them.

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "live/message/device_info.h"
#include "live/settings.h"

namespace tulle::live {

// Asks the host agent, which is started if there is none. `command` names the caller to it.
Result<std::vector<DeviceInfo>> ask_devices(const Settings& settings, const std::string& command);

// Returns lines for people: each device, and its GIDs by their indices.
std::string devices_text(std::span<const DeviceInfo> devices);
// Returns the same as a list in JSON. A GID index that is not in use is null.
std::string devices_json(std::span<const DeviceInfo> devices);

}  // namespace tulle::live

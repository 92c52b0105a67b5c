#pragma once

// The attributes of a port that change while its device is in use, as a kernel's files show them.

#include <optional>
#include <string>
#include <string_view>

#include "live/message/device_info.h"

namespace tulle::live {

// Returns the text of a file below /sys/class/infiniband/NAME/ports/1 without its end of line:
// state, phys_state, gids/N, gid_attrs/types/N or gid_attrs/ndevs/N. Returns nothing for other
// files, and where a kernel fails to read the file (an entry that is not in use has no type).
std::optional<std::string> port_attribute(const DeviceInfo& device, std::string_view file);

}  // namespace tulle::live

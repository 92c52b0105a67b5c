#pragma once

// What changes of a port while its device is in use, as a kernel's files show it.

#include <optional>
#include <string>
#include <string_view>

#include "live/device.h"

namespace tulle::live {

// Of a file below /sys/class/infiniband/NAME/ports/1: state, phys_state, gids/N, gid_attrs/types/N
// or gid_attrs/ndevs/N, without the line's end. None where a kernel fails to read it (an entry that
// is not in use has no type), and of other files.
std::optional<std::string> port_attribute(const DeviceInfo& device, std::string_view file);

}  // namespace tulle::live

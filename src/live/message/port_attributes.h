#pragma once

// The attributes of a port that change while its device is in use, as a kernel's files show them.

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "live/message/device_info.h"

namespace tulle::live {

// Returns the text of a file below /sys/class/infiniband/NAME/ports/1 without its end of line:
// state, phys_state, gids/N, gid_attrs/types/N or gid_attrs/ndevs/N; for InfiniBand also those that
// infiniband_attributes names, and pkeys/N. Returns nothing for other files, and where a kernel
// fails to read the file (an entry that is not in use has no type).
std::optional<std::string> port_attribute(const DeviceInfo& device, std::string_view file);

// The files whose text the subnet manager decides, besides those of tables and states.
inline constexpr auto infiniband_attributes = std::to_array<std::string_view>(
    {"lid", "lid_mask_count", "sm_lid", "sm_sl", "rate", "cap_mask"});

}  // namespace tulle::live

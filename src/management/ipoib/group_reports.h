#pragma once

// The reports by which a host's IP tells routers of the multicast groups that it joins and leaves:
// IGMP (RFC 2236, 3376) and MLD (RFC 2710, 3810). An interface learns from them which groups of
// InfiniBand it must join.

#include <cstddef>
#include <functional>
#include <span>

#include "base/ids.h"

namespace tulle::ipoib {

// Calls `reported` with each group that an IP packet says to be joined or left. IPv4 groups are
// mapped into IPv6. Other packets have none.
void read_group_reports(std::span<const std::byte> packet,
                        const std::function<void(const Gid& group, bool joins)>& reported);

}  // namespace tulle::ipoib

#pragma once

#include <cstdint>
#include <tuple>

#include "base/ids.h"

namespace tulle::management::cm {

// Sender of a message: its GID, the GUID of its CA, its ID, and whether the message is a SIDR_REQ,
// which has separate numbers. The GUID alone would not suffice, because namespaces may share a
// machine.
using RemoteKey = std::tuple<Gid, std::uint64_t, std::uint32_t, bool>;

}  // namespace tulle::management::cm

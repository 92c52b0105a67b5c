#pragma once

#include <span>

#include "base/result.h"
#include "live/unique_fd.h"

namespace tulle::live {

// Makes this process, which must have one thread, enter the namespaces of a fabric's host, in their
// order, except for those that it is in already. It stays in its folder.
//
// Where a user namespace is among them, the process and what it executes get the capabilities that
// an administrator of the host has: to change its network, and to go on to other hosts of the
// fabric. They count in namespaces of this user alone.
Result<void> enter_namespaces(std::span<const UniqueFd> namespaces);

}  // namespace tulle::live

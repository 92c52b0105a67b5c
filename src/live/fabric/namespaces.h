#pragma once

#include <span>

#include "base/result.h"
#include "os/unique_fd.h"

namespace tulle::live {

// Lets this process, and what it executes, keep the capabilities that an administrator of a host
// has, of those that it has: to change networks, and to enter namespaces.
Result<void> keep_capabilities();

// Makes this process, which must have one thread, enter the namespaces of a fabric's host, in their
// order, except for those that it is in already. It stays in its folder.
//
// Where a user namespace is among them, the process keeps its capabilities, so that a program can
// change the host's network and enter other hosts. They count in namespaces of this user alone.
Result<void> enter_namespaces(std::span<const UniqueFd> namespaces);

}  // namespace tulle::live

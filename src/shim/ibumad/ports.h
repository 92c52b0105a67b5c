#pragma once

// Devices as libibumad shows them, and ports that are open on them.

#include <infiniband/umad.h>

#include <cstdint>
#include <vector>

#include "live/device.h"
#include "live/unique_fd.h"

namespace tulle::shim::umad {

// The devices of this host; none, and a line to the standard error, where the agent cannot be
// asked.
std::vector<live::DeviceInfo> devices();
// The device of that name, or the first for null; null: there is none. `all` keeps it.
const live::DeviceInfo* find_device(const std::vector<live::DeviceInfo>& all, const char* name);

inline constexpr int only_port = 1;
// 0 stands for any port.
constexpr bool is_port(int number) { return number == 0 || number == only_port; }

// The GUID that a port goes by: the low half of its first GID, as the files show it.
std::uint64_t port_guid(const live::DeviceInfo& device);
std::uint64_t gid_prefix(const live::DeviceInfo& device);

// Says why on the standard error, once a process.
void say_once(const Error& error);

// For calls that return a negative errno and set it too.
int fail(int error);

}  // namespace tulle::shim::umad

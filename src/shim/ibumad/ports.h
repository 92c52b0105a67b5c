#pragma once

// Devices as libibumad shows them, and ports that are open on them.

#include <infiniband/umad.h>

#include <cstdint>
#include <vector>

#include "live/process/device.h"
#include "live/unique_fd.h"

namespace tulle::shim::umad {

// Returns the devices of this host. Returns none, and prints a line to standard error, if the host
// agent cannot be asked.
std::vector<live::DeviceInfo> devices();
// Returns the device of that name, or the first one for a null name. Returns null if there is none.
// The result points into `all`.
const live::DeviceInfo* find_device(const std::vector<live::DeviceInfo>& all, const char* name);

inline constexpr int only_port = 1;
// 0 stands for any port.
constexpr bool is_port(int number) { return number == 0 || number == only_port; }

// Returns the GUID of the port: the low half of its first GID, as the files show it.
std::uint64_t port_guid(const live::DeviceInfo& device);
std::uint64_t gid_prefix(const live::DeviceInfo& device);

// Prints the reason to standard error, once a process.
void say_once(const Error& error);

// Sets errno and returns it negated, as the API's calls do.
int fail(int error);

}  // namespace tulle::shim::umad

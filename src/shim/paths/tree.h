#pragma once

// The files by which a kernel shows its RDMA devices, for programs that look for them. The
// preloaded library libtulle-paths.so (paths.c) answers from these files.

#include <span>
#include <string>

#include "base/result.h"
#include "live/fabric/client.h"
#include "live/process/device.h"

namespace tulle::shim {

struct TreeOptions {
  // Adds the connection manager's node, for programs that use the drop-in librdmacm. The system's
  // librdmacm would take the node for a kernel's.
  bool connection_manager = false;
  // Address of the host agent that counts and watches the interfaces, as in TULLE_AGENT. If it is
  // empty, no counters are shown, and addresses and states are those of now.
  std::string agent = {};
  live::DeviceChoice choice = {};  // the name does not count
  // The device is a host's port of a software fabric, whose process is asked in place of an agent.
  live::FabricPlace fabric = {};
};

// Makes the tree below `base` (which is made if it does not exist) and returns its root, the value
// for TULLE_SYSFS. It may be called again, also while programs use the tree, because each file is
// replaced as a whole. One base holds one set of devices.
Result<std::string> make_tree(const std::string& base, std::span<const live::DeviceInfo> devices,
                              const TreeOptions& options = {});

}  // namespace tulle::shim

#pragma once

// The files by which a kernel shows its RDMA devices, for programs that look for them there. The
// preloaded library libtulle-paths.so (paths.c) answers from them.

#include <span>
#include <string>

#include "base/result.h"
#include "live/device.h"

namespace tulle::shim {

struct TreeOptions {
  // The node of the connection manager: for programs whose librdmacm is the drop-in one. The
  // system's would take it for a kernel's.
  bool connection_manager = false;
  // The agent that counts and watches the interfaces, as TULLE_AGENT has it; empty: no counters are
  // shown, and addresses and states are those of now.
  std::string agent = {};
  std::string interfaces = {};  // as TULLE_INTERFACE has them
};

// Makes the tree below `base` (made if there is none), and returns its root: the value for
// TULLE_SYSFS. It may be called again, also while programs use the tree: each file is replaced as a
// whole. One base holds one set of devices.
Result<std::string> make_tree(const std::string& base, std::span<const live::DeviceInfo> devices,
                              const TreeOptions& options = {});

// A base for the devices that go by `name`: a folder that is this user's alone, below
// XDG_RUNTIME_DIR where that is set, else in /tmp. Made if there is none.
Result<std::string> tree_base(const std::string& name);

}  // namespace tulle::shim

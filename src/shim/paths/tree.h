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

// A folder that belongs to this user alone, and that nobody else can put another in the place of.
struct OwnFolder {
  std::string path;
  std::string warning;  // if not empty: which folder was not used, and why
};

// Returns the folder of all that belongs to this user, which is made if it does not exist. It is
// below XDG_RUNTIME_DIR where that is set, writable, and in the hands of this user or root. (Where
// su has kept the variable, it names another user's folder.) Without it, root's is in /run, and
// those of others are in /tmp.
Result<OwnFolder> own_folder();
// Returns a base for the devices that go by `name`: a folder in the one above, made if it does not
// exist.
Result<OwnFolder> tree_base(const std::string& name);

}  // namespace tulle::shim

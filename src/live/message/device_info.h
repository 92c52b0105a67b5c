#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "device/adapter.h"

namespace tulle::live {

// The largest GID table.
inline constexpr std::size_t gids_max = device::Adapter::gids_max;

struct GidEntry {
  Gid gid;
  std::uint32_t interface_index = 0;
  std::string interface;

  // Returns false for a hole: the entry that a removed address has left.
  bool in_use() const { return gid != Gid{}; }
  bool operator==(const GidEntry&) const = default;
};

// A device as the host agent describes it.
struct DeviceInfo {
  std::string name;                // "tulle0" unless TULLE_DEVICE gives another name
  std::uint64_t node_guid = 0;     // host order
  std::uint32_t mtu_bytes = 1024;  // active path MTU: the largest that fits the interface
  bool port_active = true;
  // Entries by GID index: IPv4 first, then addresses that came later (live/agent/gid_table.h).
  std::vector<GidEntry> gids;
};

}  // namespace tulle::live

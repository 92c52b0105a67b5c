#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "live/device_choice.h"
#include "rdma/device/adapter.h"

namespace tulle::live {

// The largest GID table.
inline constexpr std::size_t gids_max = device::Adapter::gids_max;

// Who still uses an address that a device has had: users who are limited (those other than the host
// agent's own), or the agent's own user, perhaps with them.
enum class HeldBy : std::uint8_t { nobody, limited_users, own_user };

struct GidEntry {
  Gid gid;
  std::uint32_t interface_index = 0;
  std::string interface;
  bool is_roce_v1 = false;  // packets from this address are RoCE v1's

  // Returns false for a hole: the entry that a removed address has left.
  bool in_use() const { return gid != Gid{}; }
  bool operator==(const GidEntry&) const = default;
};

// A port of an InfiniBand subnet, as its subnet manager has set it. Values are those of PortInfo
// (IBTA 14.2.5.6) where no other unit is named.
struct InfinibandPort {
  std::uint64_t port_guid = 0;
  std::uint64_t gid_prefix = 0;
  std::uint16_t lid = 0;
  std::uint8_t lmc = 0;
  std::uint16_t sm_lid = 0;
  std::uint8_t sm_sl = 0;
  std::uint8_t state = 0;
  std::uint8_t physical_state = 0;
  std::uint32_t capability_mask = 0;
  std::uint8_t mtu_code = 0;            // NeighborMTU: 1 is 256 bytes … 5 is 4096
  std::uint8_t virtual_lanes_code = 0;  // OperationalVLs
  std::uint8_t width = 0;               // LinkWidthActive
  std::uint8_t speed = 0;               // LinkSpeedActive
  std::uint8_t extended_speed = 0;      // LinkSpeedExtActive; 0: `speed` counts
  std::uint32_t gigabits_per_second = 0;
  std::vector<std::uint16_t> pkeys;

  bool operator==(const InfinibandPort&) const = default;
};

// A device as the host agent describes it, or the process of a software fabric.
struct DeviceInfo {
  std::string name;                // "tulle0" unless TULLE_DEVICE gives another name
  std::uint64_t node_guid = 0;     // host order
  std::uint32_t mtu_bytes = 1024;  // active path MTU: the largest that fits the interface
  bool port_active = true;
  // Entries by GID index: IPv4 first, then addresses that came later (live/agent/gid_table.h).
  std::vector<GidEntry> gids;
  // Nothing: the port is one of RoCE v2. Its first GID is made of the prefix and the port's GUID.
  std::optional<InfinibandPort> infiniband;
};

}  // namespace tulle::live

#pragma once

// The devices that processes of this host have open. The agent gives all processes that ask for the
// same interfaces by the same name one GID table, and keeps it as long as one of them lives.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "live/agent/address_watch.h"
#include "live/agent/gid_table.h"
#include "live/device_choice.h"
#include "live/message/device_info.h"

namespace tulle::live {

class KnownDevices {
 public:
  using Clock = std::chrono::steady_clock;

  struct Known {
    DeviceInfo info;
    std::uint32_t version = 1;  // incremented whenever the GIDs or the port's state change
  };

  // Returns who still uses the address that was at this index of the table.
  using HolderOf = std::function<HeldBy(const DeviceChoice& key, std::size_t index)>;
  // Path MTUs leave `free_bytes` of each datagram free.
  explicit KnownDevices(HolderOf holder_of, std::uint32_t free_bytes = 0)
      : holder_of_(std::move(holder_of)), free_bytes_(free_bytes) {}

  // Returns the device as it is now. The pointer is valid until forget() removes the device.
  Result<const Known*> find(const DeviceChoice& key);
  // Returns the device as of the last refresh; null if no process has it open.
  const Known* known(const DeviceChoice& key) const;
  // Adds a device as an earlier agent described it and then brings it up to date, unless the device
  // is already known.
  void adopt(const DeviceChoice& key, const DeviceInfo& info);
  // Updates all devices if anything has changed.
  void refresh();
  // Gives new addresses their places in devices that have lost all that they had. The places are
  // those of the former addresses, as soon as nothing refers to these, and others after a second.
  void settle();
  // Returns when settle() is next needed at the latest, or max().
  Clock::time_point next_settling() const;
  // Forgets those for which `is_used` is false.
  void forget(const std::function<bool(const DeviceChoice& key)>& is_used);
  // Counts the changes of the devices and their addresses.
  std::uint64_t changes() const { return changes_; }
  // Returns the addresses of all devices. Some may occur twice.
  std::vector<GidEntry> all_gids() const;
  // Returns the interface index of an address, or 0 if no device has the address.
  std::uint32_t interface_of(const Gid& gid) const;

  // Returns a descriptor that is readable when refresh() has something to do, or -1 if there is
  // none.
  int watch_fd() const { return watch_.fd(); }

 private:
  struct Entry : Known {
    GidTable gids;
    std::optional<Clock::time_point> settles_at;  // set while new addresses wait for places
  };

  Entry& add(const DeviceChoice& key, const DeviceInfo& info);
  void update(const DeviceChoice& key, Entry& entry);
  bool update_gids(const DeviceChoice& key, Entry& entry,
                   const std::vector<GidEntry>& present) const;

  HolderOf holder_of_;
  std::uint32_t free_bytes_;
  AddressWatch watch_;
  std::uint64_t changes_ = 0;
  std::map<DeviceChoice, Entry> entries_;
};

}  // namespace tulle::live

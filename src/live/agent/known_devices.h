#pragma once

// The devices that processes of this host have open, as the agent tells all of them: one table of
// GIDs for all who ask for the same interfaces by the same name, kept as long as one of them lives.

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/result.h"
#include "live/agent/address_watch.h"
#include "live/agent/gid_table.h"
#include "live/device.h"

namespace tulle::live {

class KnownDevices {
 public:
  struct Key {
    std::string name;
    std::string interfaces;  // as Settings::interfaces
    // clang-tidy 14 takes the comparison's own 0 for a null pointer.
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Known {
    DeviceInfo info;
    std::uint32_t version = 1;  // counts what has changed for who has it open
  };

  // Whether an address that was at this index of the table is still referred to by someone.
  using IsHeld = std::function<bool(const Key& key, std::size_t index)>;
  explicit KnownDevices(IsHeld is_held) : is_held_(std::move(is_held)) {}

  // As it is now. The pointer holds until forget().
  Result<const Known*> find(const Key& key);
  // As it was when it was looked at last; null: nobody has it.
  const Known* known(const Key& key) const;
  // As an earlier agent told it, and then as it is now; unless it is known already.
  void adopt(const Key& key, const DeviceInfo& info);
  // Looks whether anything has changed.
  void refresh();
  // Forgets those for which `is_used` is false.
  void forget(const std::function<bool(const Key& key)>& is_used);
  // Of an address; 0: no device has it.
  std::uint32_t interface_of(const Gid& gid) const;

  // Readable when refresh() has something to do; -1: never.
  int watch_fd() const { return watch_.fd(); }

 private:
  struct Entry : Known {
    GidTable gids;
  };

  Entry& add(const Key& key, const DeviceInfo& info);
  void update(const Key& key, Entry& entry);

  IsHeld is_held_;
  AddressWatch watch_;
  std::map<Key, Entry> entries_;
};

}  // namespace tulle::live

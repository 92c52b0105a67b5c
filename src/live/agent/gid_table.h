#pragma once

// The GID table of a device's port. It works as Linux's RoCE GID cache does
// (drivers/infiniband/core/cache.c): entries never move. An address that goes away leaves a hole. A
// new address takes the first hole to which nothing refers any more, else a new entry at the end.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "live/message/device_info.h"

namespace tulle::live {

class GidTable {
 public:
  GidTable() = default;
  explicit GidTable(std::vector<GidEntry> entries);

  // The entries by index. Holes are entries that are not in_use().
  const std::vector<GidEntry>& entries() const { return entries_; }

  // Returns true if something still refers to the address that was at that index.
  using IsHeld = std::function<bool(std::size_t index)>;
  // Updates the table to the addresses in `present`. An address that returns gets its hole back,
  // held or not. An address that finds no room is left out. Returns true if the table has changed.
  bool update(std::span<const GidEntry> present, const IsHeld& is_held);

 private:
  std::size_t place_for(const GidEntry& entry, const IsHeld& is_held) const;

  std::vector<GidEntry> entries_;
  std::vector<GidEntry> former_;  // for each hole, the entry that was there last
};

}  // namespace tulle::live

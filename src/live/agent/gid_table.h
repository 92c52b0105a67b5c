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

  // Returns who still uses the address that was at that index.
  using HolderOf = std::function<HeldBy(std::size_t index)>;
  // Updates the table to the addresses in `present`. An address that returns gets its hole back,
  // held or not. In a table that is full, an address takes a hole that only limited users hold, or
  // is left out. Returns true if the table has changed.
  bool update(std::span<const GidEntry> present, const HolderOf& holder_of);

 private:
  std::size_t place_for(const GidEntry& entry, const HolderOf& holder_of) const;

  std::vector<GidEntry> entries_;
  std::vector<GidEntry> former_;  // for each hole, the entry that was there last
};

}  // namespace tulle::live

#pragma once

// The GID table of a device's port, as Linux's RoCE GID cache keeps one (drivers/infiniband/core/
// cache.c): what is in it never moves. An address that goes away leaves a hole; one that is new
// takes the first hole that nobody still refers to, else the end.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "device/adapter.h"
#include "live/device.h"

namespace tulle::live {

inline constexpr std::size_t gids_max = device::Adapter::gids_max;

class GidTable {
 public:
  GidTable() = default;
  explicit GidTable(std::vector<GidEntry> entries);

  // By index; holes are entries that are not in_use.
  const std::vector<GidEntry>& entries() const { return entries_; }

  // Whether something still refers to an address that was at that index.
  using IsHeld = std::function<bool(std::size_t index)>;
  // `present` is what there is now. An address that returns gets its hole back, held or not; what
  // finds no room is left out. Returns whether the table has changed.
  bool update(std::span<const GidEntry> present, const IsHeld& is_held);

 private:
  std::size_t place_for(const GidEntry& entry, const IsHeld& is_held) const;

  std::vector<GidEntry> entries_;
  std::vector<GidEntry> former_;  // of holes: what was there last
};

}  // namespace tulle::live

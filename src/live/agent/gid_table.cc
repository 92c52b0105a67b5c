#include "live/agent/gid_table.h"

#include <algorithm>

namespace tulle::live {
namespace {

bool contains(std::span<const GidEntry> entries, const GidEntry& wanted) {
  return std::ranges::find(entries, wanted) != entries.end();
}

}  // namespace

GidTable::GidTable(std::vector<GidEntry> entries) : entries_(std::move(entries)) {
  if (entries_.size() > gids_max) entries_.resize(gids_max);
  former_ = entries_;
}

bool GidTable::update(std::span<const GidEntry> present, const HolderOf& holder_of) {
  std::vector<std::size_t> gone;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].in_use() && !contains(present, entries_[i])) gone.push_back(i);
  }
  bool has_changed = !gone.empty();
  // New addresses come first: the processes have not yet been asked whether they still refer to the
  // addresses that go away now.
  for (const GidEntry& entry : present) {
    if (contains(entries_, entry)) continue;
    const std::size_t place = place_for(entry, holder_of);
    if (place == gids_max) continue;
    if (place == entries_.size()) {
      entries_.emplace_back();
      former_.emplace_back();
    }
    entries_[place] = former_[place] = entry;
    has_changed = true;
  }
  for (const std::size_t index : gone) entries_[index] = {};
  return has_changed;
}

std::size_t GidTable::place_for(const GidEntry& entry, const HolderOf& holder_of) const {
  constexpr std::size_t none = gids_max;
  std::size_t free = none;
  std::size_t of_limited = none;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].in_use()) continue;
    if (former_[i] == entry) return i;
    if (free != none) continue;
    const HeldBy holder = holder_of(i);
    if (holder == HeldBy::nobody) free = i;
    if (holder == HeldBy::limited_users && of_limited == none) of_limited = i;
  }
  if (free == none && entries_.size() < gids_max) return entries_.size();
  return free != none ? free : of_limited;
}

}  // namespace tulle::live

#include "live/agent/known_devices.h"

#include <algorithm>

#include "live/agent/interfaces.h"

namespace tulle::live {
namespace {

constexpr auto settle_time = std::chrono::seconds(1);

// Returns true if there are addresses, and none of those that the table had is among them.
bool is_replaced(const std::vector<GidEntry>& table, const std::vector<GidEntry>& present) {
  const auto remains = [&](const GidEntry& entry) {
    return entry.in_use() && std::ranges::find(present, entry) != present.end();
  };
  return !present.empty() && std::ranges::any_of(table, &GidEntry::in_use) &&
         std::ranges::none_of(table, remains);
}

}  // namespace

Result<const KnownDevices::Known*> KnownDevices::find(const DeviceChoice& key) {
  refresh();
  const auto found = entries_.find(key);
  if (found != entries_.end()) return &found->second;
  auto device = describe_device(key, free_bytes_);
  if (!device) return device.error();
  return &add(key, *device);
}

const KnownDevices::Known* KnownDevices::known(const DeviceChoice& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

void KnownDevices::adopt(const DeviceChoice& key, const DeviceInfo& info) {
  refresh();
  if (!entries_.contains(key)) update(key, add(key, info));
}

KnownDevices::Entry& KnownDevices::add(const DeviceChoice& key, const DeviceInfo& info) {
  ++changes_;
  Entry& entry = entries_[key];
  entry.info = info;
  entry.gids = GidTable(info.gids);
  entry.info.gids = entry.gids.entries();
  return entry;
}

void KnownDevices::refresh() {
  if (!watch_.take_changes()) return;
  for (auto& [key, entry] : entries_) update(key, entry);
}

void KnownDevices::update(const DeviceChoice& key, Entry& entry) {
  const DeviceInfo now = redescribe_device(entry.info, key, free_bytes_);
  const bool has_changed = update_gids(key, entry, now.gids);
  if (has_changed || now.port_active != entry.info.port_active) {
    ++entry.version;
    ++changes_;
  }
  entry.info = now;
  entry.info.gids = entry.gids.entries();
}

// Returns true if the table has changed. A device that has lost all its addresses first withdraws
// them. Programs that name an address by a fixed index, which is mostly 0, then find the new one
// there.
bool KnownDevices::update_gids(const DeviceChoice& key, Entry& entry,
                               const std::vector<GidEntry>& present) const {
  const auto holder_of = [&](std::size_t index) { return holder_of_(key, index); };
  if (is_replaced(entry.gids.entries(), present)) {
    entry.settles_at = Clock::now() + settle_time;
    return entry.gids.update({}, holder_of);
  }
  if (entry.settles_at) return false;
  return entry.gids.update(present, holder_of);
}

void KnownDevices::settle() {
  for (auto& [key, entry] : entries_) {
    if (!entry.settles_at) continue;
    bool is_any_held = false;
    for (std::size_t i = 0; i < entry.gids.entries().size(); ++i)
      is_any_held |= holder_of_(key, i) != HeldBy::nobody;
    if (is_any_held && Clock::now() < *entry.settles_at) continue;
    entry.settles_at.reset();
    update(key, entry);
  }
}

KnownDevices::Clock::time_point KnownDevices::next_settling() const {
  auto next = Clock::time_point::max();
  for (const auto& [key, entry] : entries_) next = std::min(next, entry.settles_at.value_or(next));
  return next;
}

void KnownDevices::forget(const std::function<bool(const DeviceChoice& key)>& is_used) {
  changes_ += std::erase_if(entries_, [&](const auto& each) { return !is_used(each.first); });
}

std::vector<GidEntry> KnownDevices::all_gids() const {
  std::vector<GidEntry> all;
  for (const auto& [key, entry] : entries_) {
    all.insert(all.end(), entry.info.gids.begin(), entry.info.gids.end());
  }
  return all;
}

std::uint32_t KnownDevices::interface_of(const Gid& gid) const {
  for (const auto& [key, entry] : entries_) {
    for (const GidEntry& each : entry.info.gids) {
      if (each.gid == gid) return each.interface_index;
    }
  }
  return 0;
}

}  // namespace tulle::live

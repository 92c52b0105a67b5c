#include "live/agent/known_devices.h"

#include "live/agent/interfaces.h"

namespace tulle::live {

Result<const KnownDevices::Known*> KnownDevices::find(const Key& key) {
  refresh();
  const auto found = entries_.find(key);
  if (found != entries_.end()) return &found->second;
  auto device = describe_device(key.name, key.interfaces, free_bytes_);
  if (!device) return device.error();
  return &add(key, *device);
}

const KnownDevices::Known* KnownDevices::known(const Key& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

void KnownDevices::adopt(const Key& key, const DeviceInfo& info) {
  refresh();
  if (!entries_.contains(key)) update(key, add(key, info));
}

KnownDevices::Entry& KnownDevices::add(const Key& key, const DeviceInfo& info) {
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

void KnownDevices::update(const Key& key, Entry& entry) {
  const DeviceInfo now = redescribe_device(entry.info, key.interfaces, free_bytes_);
  const bool has_changed =
      entry.gids.update(now.gids, [&](std::size_t index) { return is_held_(key, index); });
  if (has_changed || now.port_active != entry.info.port_active) ++entry.version;
  entry.info = now;
  entry.info.gids = entry.gids.entries();
}

void KnownDevices::forget(const std::function<bool(const Key& key)>& is_used) {
  std::erase_if(entries_, [&](const auto& each) { return !is_used(each.first); });
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

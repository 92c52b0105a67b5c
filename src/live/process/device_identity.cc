#include "live/process/device_identity.h"

#include <algorithm>
#include <vector>

#include "live/fabric/client.h"
#include "rdma/port/framing/roce_v1.h"

namespace tulle::live {

void DeviceIdentity::apply() {
  set_gids();
  set_port();
}

// Takes over what the subnet manager has set.
void DeviceIdentity::set_port() {
  if (!info_.infiniband) return;
  const InfinibandPort& port = *info_.infiniband;
  std::vector<Pkey> pkeys;
  for (const std::uint16_t pkey : port.pkeys) pkeys.emplace_back(pkey);
  if (!pkeys.empty()) adapter_.set_pkeys(pkeys);
  adapter_.set_lid(Lid(port.lid), port.lmc);
}

void DeviceIdentity::set_gids() {
  std::vector<Gid> gids;
  for (const GidEntry& entry : info_.gids) gids.push_back(entry.gid);
  // A queue pair that has a withdrawn address keeps its framing, too.
  for (std::size_t i = 0; i < std::min(gids.size(), gids_max); ++i) {
    if (info_.gids[i].in_use()) of_roce_v1_[i] = info_.gids[i].is_roce_v1;
  }
  device::Adapter::OtherFraming other{};
  if (of_roce_v1_.any()) other = {&port::roce_v1, of_roce_v1_};
  adapter_.set_gids(gids, 1, other);
  links_.set_addresses(info_);
}

void DeviceIdentity::tell(verbs::EventType type) {
  device::Event event;
  event.kind = device::Event::Kind::asynchronous;
  event.type = type;
  sink_(event);
}

void DeviceIdentity::take(const PortChanged& changed) {
  using verbs::EventType;
  if (!info_.infiniband) return;
  const InfinibandPort before = *info_.infiniband;
  const InfinibandPort& now = changed.port;
  const bool was_active = info_.port_active;
  const DeviceInfo as_now = device_of(info_.name, {info_.node_guid, now, {}});
  const bool has_other_gids = as_now.gids != info_.gids;
  info_ = as_now;
  apply();
  // A kernel tells of these in the order in which its driver's firmware does; no program relies on
  // an order.
  if (now.lid != before.lid || now.lmc != before.lmc) tell(EventType::lid_change);
  if (now.sm_lid != before.sm_lid || now.sm_sl != before.sm_sl) tell(EventType::sm_change);
  if (now.pkeys != before.pkeys) tell(EventType::pkey_change);
  if (has_other_gids) tell(EventType::gid_change);
  if (info_.port_active != was_active) {
    tell(info_.port_active ? EventType::port_active : EventType::port_error);
  }
  if (changed.must_register_anew) tell(EventType::client_reregister);
}

void DeviceIdentity::take(const DeviceInfo& changed, std::uint32_t version) {
  using verbs::EventType;
  const bool has_turned = changed.port_active != info_.port_active;
  const bool has_other_gids = changed.gids != info_.gids;
  info_.port_active = changed.port_active;
  info_.gids = changed.gids;
  set_gids();
  if (has_turned) tell(info_.port_active ? EventType::port_active : EventType::port_error);
  if (has_other_gids) tell(EventType::gid_change);
  version_ = version;
  tell_held();
}

void DeviceIdentity::check_withdrawn(Time now) {
  if (now < checked_ + check_interval) return;
  checked_ = now;
  set_gids();
  if (adapter_.withdrawn_gids() != held_) tell_held();
}

void DeviceIdentity::tell_held() {
  held_ = adapter_.withdrawn_gids();
  agent_.tell_held(version_, held_);
}

void DeviceIdentity::lose_network(int other) {
  const bool was_active = info_.port_active;
  links_.lose_network(info_, other);
  if (was_active && !info_.port_active) tell(verbs::EventType::port_error);
  tell(verbs::EventType::device_fatal);
}

}  // namespace tulle::live

#pragma once

// What a device is called and can reach: its addresses, and its port on a subnet. The host agent,
// or a fabric's process, reports changes, and the adapter, the links and the program get them. An
// address that goes away keeps its index while it is used (decision 012).

#include <bitset>
#include <cstdint>
#include <utility>

#include "base/time.h"
#include "live/fabric/messages.h"
#include "live/links.h"
#include "live/message/device_info.h"
#include "live/process/agent_link.h"
#include "live/process/device.h"
#include "rdma/device/adapter.h"

namespace tulle::live {

class DeviceIdentity {
 public:
  // Interval between checks whether an address that went away is still in use.
  static constexpr Time check_interval = Time::milliseconds(100);

  // What it is given must outlive this object.
  DeviceIdentity(DeviceInfo info, device::Adapter& adapter, Links& links, AgentLink& agent,
                 Device::EventSink sink)
      : info_(std::move(info)), adapter_(adapter), links_(links), agent_(agent), sink_(sink) {}

  const DeviceInfo& info() const { return info_; }
  // Hands the addresses and the port to the adapter and the links.
  void apply();
  void take(const PortChanged& changed);
  void take(const DeviceInfo& changed, std::uint32_t version);
  // Returns true if addresses that went away were still used when that was checked last.
  bool holds_withdrawn() const { return held_.any(); }
  // Tells the agent if one of these is not used any more.
  void check_withdrawn(Time now);
  // The network is gone for good. A socket without a use becomes another name of `other`.
  void lose_network(int other);
  void rebase(Time by) { tulle::rebase(by, checked_); }

 private:
  void set_port();
  void set_gids();
  void tell(verbs::EventType type);
  void tell_held();

  DeviceInfo info_;
  device::Adapter& adapter_;
  Links& links_;
  AgentLink& agent_;
  Device::EventSink sink_;
  std::bitset<gids_max> of_roce_v1_;
  // The version of the device that the host agent told last, and the withdrawn addresses that were
  // still in use at that time or at the last check.
  std::uint32_t version_ = 0;
  std::bitset<gids_max> held_;
  Time checked_;
};

}  // namespace tulle::live

#pragma once

// A network gives a device its links. There is one for a host with a host agent, and one for a host
// of a software fabric. Another one is a class and the call of make_device() that names it
// (tests/extension/courier).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "fabric/faults.h"
#include "live/driver_counters.h"
#include "live/links.h"
#include "live/message/device_info.h"
#include "live/path/fabric/rings.h"
#include "live/path/packets/capture_tap.h"
#include "live/path/packets/raw_link.h"
#include "live/process/agent_link.h"
#include "live/security/seal.h"
#include "live/settings.h"
#include "os/unique_fd.h"
#include "rdma/port/framing/framing.h"
#include "rdma/port/settings.h"

namespace tulle::live {

// What links need of their device, which outlives them.
struct LinkContext {
  const DeviceInfo& device;
  const Settings& settings;
  device::Adapter& adapter;
  CaptureTap& tap;
  DriverCounters& counters;
  AgentLink& agent;
  int doorbell_button = -1;  // peers by memory get it
};

class Network {
 public:
  virtual ~Network() = default;

  // The framing of all packets, and the settings of the port; null: those of RoCE v2.
  virtual const port::Framing* framing() const { return nullptr; }
  virtual const port::Settings* port() const { return nullptr; }
  // Adds the links, in the order in which datagrams are offered to them. Called once, before the
  // device's thread starts.
  virtual Result<void> open(const LinkContext& context, Links& links) = 0;
  // Returns the link of raw packets, which the driver adds once it is open; null: this network has
  // no frames of Ethernet.
  virtual RawLink* raw() { return nullptr; }
};

// RoCE over the sockets that a host agent granted.
class HostNetwork final : public Network {
 public:
  struct Grant {
    std::uint32_t slot = 0;
    std::uint16_t port = 0;
    bool is_relayed = false;
    UniqueFd socket;             // of the slot, or the end of a relay
    std::unique_ptr<Seal> seal;  // null: datagrams are plain
    fabric::FaultSettings faults;
  };
  explicit HostNetwork(Grant grant) : grant_(std::move(grant)) {}

  Result<void> open(const LinkContext& context, Links& links) override;
  RawLink* raw() override { return raw_.get(); }

 private:
  Result<void> add_host_link(const LinkContext& context, Links& links) const;
  Result<void> add_roce_v1(const LinkContext& context, Links& links) const;
  void add_udp(const LinkContext& context, Links& links);

  Grant grant_;
  std::unique_ptr<RawLink> raw_;
};

// A host's port of a software fabric.
class FabricNetwork final : public Network {
 public:
  explicit FabricNetwork(FabricRings rings) : rings_(std::move(rings)) {}

  const port::Framing* framing() const override;
  const port::Settings* port() const override;
  Result<void> open(const LinkContext& context, Links& links) override;

 private:
  FabricRings rings_;
};

}  // namespace tulle::live

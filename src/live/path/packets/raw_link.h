#pragma once

// The link of raw packets, whole frames of a program's own (live/path/packets/packet_port.h). It is
// closed until the program makes the first queue pair for them.

#include <memory>
#include <optional>
#include <string>

#include "live/link.h"
#include "live/message/device_info.h"
#include "live/path/packets/packet_port.h"
#include "rdma/device/raw_packets.h"

namespace tulle::live {

class RawLink final : public Link {
 public:
  // Frames go over the interface of the device's first GID. All must outlive this object.
  RawLink(const DeviceInfo& device, device::RawPackets& packets, DriverCounters& counters)
      : device_(device), packets_(packets), counters_(counters) {}

  // Returns 0 if this process may use raw packets, or an errno. The kernel takes milliseconds to
  // close a packet socket, so that the answer is kept.
  int may_open();
  // Returns 0 or an errno. The other calls are for a link that is open.
  int open();
  bool is_open() const { return port_ != nullptr; }
  // watch() must be called before a flow is created, and unwatch() when it has been destroyed.
  // Returns 0 or an errno.
  int watch(const device::FlowRule& rule);
  void unwatch(const device::FlowRule& rule);

  bool takes_datagrams() const override { return false; }
  [[nodiscard]] bool resume(Time now) override;
  // A full interface queue gives no notice when it has room again, nor does a queue pair when it
  // has receive requests again.
  Time next_deadline() const override;
  int blocked_socket() const override {
    return sent_ == PacketPort::Sent::socket_is_full ? port_->sending_socket() : -1;
  }
  int receive(device::Adapter& adapter, Time now) override;
  int receiving_socket() const override { return port_->receiving_socket(); }
  bool wants_wake() const override { return !port_->is_waiting(); }
  void rebase(Time by) override;

 private:
  static constexpr Time look_again_after = Time::milliseconds(1);

  struct Probed {
    std::string interface;
    int error = 0;  // 0: this process may use packet sockets there
  };

  const DeviceInfo& device_;
  device::RawPackets& packets_;
  DriverCounters& counters_;
  std::optional<Probed> probed_;
  std::unique_ptr<PacketPort> port_;
  PacketPort::Sent sent_ = PacketPort::Sent::all;
  Time look_again_;
};

}  // namespace tulle::live

#pragma once

// The link by RoCE v1's frames (live/path/packets/roce_v1_port.h).

#include <memory>
#include <optional>

#include "live/link.h"
#include "live/path/packets/roce_v1_port.h"

namespace tulle::live {

class RoceV1Link final : public Link {
 public:
  RoceV1Link(std::unique_ptr<RoceV1Port> port, DriverCounters& counters)
      : port_(std::move(port)), counters_(counters) {}

  // Packets are copied at once, since the memory of what was pulled before them stays as it is
  // until the next call into the adapter.
  Offer offer(device::Datagram& datagram, Time now) override;
  Flushed flush(Time now) override;
  [[nodiscard]] bool resume(Time now) override {
    return sent_ == RoceV1Port::Sent::all || send(now);
  }
  // A full interface queue gives no notice when it has room again.
  Time next_deadline() const override {
    return sent_ == RoceV1Port::Sent::queue_is_full ? look_again_ : Time::never();
  }
  int blocked_socket() const override {
    return sent_ == RoceV1Port::Sent::socket_is_full ? port_->sending_socket() : -1;
  }

  int receive(device::Adapter& adapter, Time now) override;
  int receiving_socket() const override { return port_->receiving_socket(); }

  void set_addresses(const DeviceInfo& device) override;
  int join(const Gid& group) override { return port_->join(group); }
  void leave(const Gid& group) override { port_->leave(group); }
  std::optional<Neighbour> unknown_neighbour(const DeviceInfo& device,
                                             const verbs::AddressVector& to) const override;
  void set_neighbour(const Neighbour& neighbour, const wire::MacAddress& mac) override {
    port_->set_neighbour(neighbour.interface_index, neighbour.gid, mac);
  }

  void rebase(Time by) override { tulle::rebase(by, look_again_); }
  void forget_in_child(int other) override { port_->replace_sockets(other); }

 private:
  static constexpr Time look_again_after = Time::milliseconds(1);

  bool send(Time now);

  std::unique_ptr<RoceV1Port> port_;
  DriverCounters& counters_;
  bool has_added_ = false;
  RoceV1Port::Sent sent_ = RoceV1Port::Sent::all;
  Time look_again_;
};

}  // namespace tulle::live

#pragma once

// Congestion control of one queue pair: how many packets may be in flight, and when the next one
// may be sent.
//
// The window belongs to a reliable connection, which learns of deliveries and losses. The rate is
// limited by one algorithm (RateControl), which the adapter's settings choose, or by none.

#include <cstdint>
#include <memory>
#include <utility>

#include "base/ids.h"
#include "base/time.h"
#include "rdma/transport/congestion/endpoint_limit.h"
#include "rdma/transport/congestion/settings.h"
#include "rdma/transport/congestion/window.h"

namespace tulle::transport::congestion {

class Injection;

// Decides when the next packet may be sent.
class RateControl {
 public:
  virtual ~RateControl() = default;

  // The network told that this queue pair's packets find congestion.
  virtual void notified(Time /*now*/) {}
  // The earliest time for the next packet; a past time means now. `has_packet` tells whether there
  // is a packet to send: an algorithm that gives out turns gives none for nothing.
  virtual Time next_send(Time now, bool has_packet) = 0;
  // A packet of `bytes` on the link was sent.
  virtual void sent(Time now, std::uint32_t bytes) = 0;
  // The clock's zero has moved (base/time.h). This leaves what queue pairs share as it is.
  virtual void rebase(Time /*by*/) {}
};

// The queue pairs of one adapter share these. Both members must outlive the queue pairs.
struct Shared {
  EndpointLimits* endpoint_limits = nullptr;
  // One flow for each of the 16 service levels. Null means that each queue pair is a flow by
  // itself.
  Injection* injections = nullptr;
};

// The algorithm that the settings choose, for a queue pair that sends to this host at this service
// level. Returns null if the rate is not limited. `settings` must outlive what is returned.
std::unique_ptr<RateControl> make_rate_control(const Settings& settings, const Shared& shared,
                                               const PortAddress& destination,
                                               std::uint8_t service_level);

class Control {
 public:
  // The queue pair begins to send. `settings` must outlive it.
  void start(const Settings& settings, std::unique_ptr<RateControl> rate) {
    window_.reset(settings.window);
    rate_ = std::move(rate);
    may_send_at_ = Time::zero();
    waits_ = false;
  }

  // --- the window ---

  std::uint32_t window_packets() const { return window_.packets(); }
  void delivered(std::uint32_t packets) { window_.acknowledged(packets); }
  void lost() { window_.lost(); }

  // --- the rate ---

  bool limits_rate() const { return rate_ != nullptr; }
  void notified(Time now) {
    if (rate_ != nullptr) rate_->notified(now);
  }
  // Returns false if the next packet must wait; next_deadline() then says until when. `has_packet`
  // returns true if there is a packet to send.
  template <typename HasPacket>
  bool may_send(Time now, const HasPacket& has_packet) {
    if (rate_ == nullptr) return true;
    may_send_at_ = rate_->next_send(now, has_packet());
    waits_ = now < may_send_at_;
    return !waits_;
  }
  void sent(Time now, std::uint32_t bytes) {
    if (rate_ != nullptr) rate_->sent(now, bytes);
  }
  Time next_deadline() const { return waits_ ? may_send_at_ : Time::never(); }
  void handle_deadline(Time now) {
    if (now >= may_send_at_) waits_ = false;
  }
  void rebase(Time by) {
    tulle::rebase(by, may_send_at_);
    if (rate_ != nullptr) rate_->rebase(by);
  }

 private:
  Window window_;
  std::unique_ptr<RateControl> rate_;  // null: not limited
  Time may_send_at_;
  bool waits_ = false;
};

}  // namespace tulle::transport::congestion

#pragma once

// When a queue pair may send its next packet, where its rate is limited.

#include <cstdint>
#include <memory>

#include "base/time.h"
#include "transport/congestion/dcqcn.h"

namespace tulle::transport::congestion {

class Pacing {
 public:
  void start(const DcqcnSettings& settings) {
    dcqcn_ = settings.enabled ? std::make_unique<Dcqcn>(settings) : nullptr;
    may_send_at_ = Time::zero();
    waits_ = false;
  }
  void notified(Time now) {
    if (dcqcn_) dcqcn_->notified(now);
  }
  // False: not yet; next_deadline() then says when.
  bool may_send(Time now) {
    waits_ = dcqcn_ && now < may_send_at_;
    return !waits_;
  }
  void sent(Time now, std::uint32_t bytes) {
    if (!dcqcn_) return;
    dcqcn_->sent(now, bytes);
    const std::int64_t rate = dcqcn_->bits_per_second(now);
    if (!dcqcn_->is_limited()) return;
    constexpr std::int64_t bits_ps_per_byte = 8'000'000'000'000;
    may_send_at_ = now + Time{static_cast<std::int64_t>(bytes) * bits_ps_per_byte / rate};
  }
  Time next_deadline() const { return waits_ ? may_send_at_ : Time::never(); }
  void handle_deadline(Time now) {
    if (now >= may_send_at_) waits_ = false;
  }

 private:
  std::unique_ptr<Dcqcn> dcqcn_;
  Time may_send_at_;
  bool waits_ = false;
};

}  // namespace tulle::transport::congestion

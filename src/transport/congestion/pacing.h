#pragma once

// When a queue pair may send its next packet, where its rate is limited.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/time.h"
#include "transport/congestion/dcqcn.h"
#include "transport/congestion/endpoint_limit.h"

namespace tulle::transport::congestion {

class Pacing {
 public:
  // The limit is shared with all that goes to the same host; null: there is none ever.
  void start(const DcqcnSettings& settings, EndpointLimit* endpoint = nullptr) {
    limits_ = settings.enabled || endpoint != nullptr ? std::make_unique<Limits>() : nullptr;
    if (settings.enabled) limits_->dcqcn.emplace(settings);
    if (limits_) limits_->endpoint = endpoint;
    may_send_at_ = Time::zero();
    waits_ = false;
  }
  void notified(Time now) {
    if (limits_ && limits_->dcqcn) limits_->dcqcn->notified(now);
  }
  // False: not yet; next_deadline() then says when.
  bool may_send(Time now) {
    if (!limits_) return true;
    if (limits_->endpoint != nullptr) {
      may_send_at_ = std::max(may_send_at_, limits_->endpoint->may_send_at());
    }
    waits_ = now < may_send_at_;
    return !waits_;
  }
  void sent(Time now, std::uint32_t bytes) {
    if (!limits_) return;
    if (limits_->endpoint != nullptr) limits_->endpoint->sent(now, bytes);
    if (!limits_->dcqcn) return;
    limits_->dcqcn->sent(now, bytes);
    const std::int64_t rate = limits_->dcqcn->bits_per_second(now);
    if (!limits_->dcqcn->is_limited()) return;
    constexpr std::int64_t bits_ps_per_byte = 8'000'000'000'000;
    may_send_at_ = now + Time{static_cast<std::int64_t>(bytes) * bits_ps_per_byte / rate};
  }
  Time next_deadline() const { return waits_ ? may_send_at_ : Time::never(); }
  void handle_deadline(Time now) {
    if (now >= may_send_at_) waits_ = false;
  }

 private:
  struct Limits {
    std::optional<Dcqcn> dcqcn;
    EndpointLimit* endpoint = nullptr;
  };

  std::unique_ptr<Limits> limits_;  // null: none
  Time may_send_at_;
  bool waits_ = false;
};

}  // namespace tulle::transport::congestion

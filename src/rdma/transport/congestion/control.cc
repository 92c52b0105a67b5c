#include "rdma/transport/congestion/control.h"

#include <algorithm>

#include "base/check.h"
#include "rdma/transport/congestion/dcqcn.h"
#include "rdma/transport/congestion/infiniband.h"

namespace tulle::transport::congestion {
namespace {

constexpr std::int64_t bits_ps_per_byte = 8'000'000'000'000;

class DcqcnControl final : public RateControl {
 public:
  explicit DcqcnControl(const DcqcnSettings& settings) : dcqcn_(settings) {}

  void notified(Time now) override { dcqcn_.notified(now); }
  Time next_send(Time, bool) override { return may_send_at_; }
  void sent(Time now, std::uint32_t bytes) override {
    dcqcn_.sent(now, bytes);
    const std::int64_t rate = dcqcn_.bits_per_second(now);
    if (!dcqcn_.is_limited()) return;
    may_send_at_ = now + Time{static_cast<std::int64_t>(bytes) * bits_ps_per_byte / rate};
  }
  void rebase(Time by) override {
    tulle::rebase(by, may_send_at_);
    dcqcn_.rebase(by);
  }

 private:
  Dcqcn dcqcn_;
  Time may_send_at_;
};

class EndpointControl final : public RateControl {
 public:
  explicit EndpointControl(EndpointLimit& limit) : limit_(limit) {}

  Time next_send(Time, bool) override {
    may_send_at_ = std::max(may_send_at_, limit_.may_send_at());
    return may_send_at_;
  }
  void sent(Time now, std::uint32_t bytes) override { limit_.sent(now, bytes); }
  void rebase(Time by) override { tulle::rebase(by, may_send_at_); }

 private:
  EndpointLimit& limit_;
  Time may_send_at_;
};

class InfinibandControl final : public RateControl {
 public:
  InfinibandControl(const InfinibandSettings& settings, Injection* shared)
      : settings_(settings), shared_(shared) {}

  void notified(Time now) override { flow().notified(settings_, now); }

  // The queue pairs of a shared flow are given times one after the other, in the order in which
  // they ask.
  Time next_send(Time now, bool has_packet) override {
    if (now < may_send_at_ || shared_ == nullptr || has_turn_) return may_send_at_;
    if (now >= shared_->free_at || !has_packet) return may_send_at_;
    may_send_at_ = shared_->free_at;
    has_turn_ = true;
    shared_->free_at += shared_->last_spacing;
    return may_send_at_;
  }

  void sent(Time now, std::uint32_t bytes) override {
    Injection& flow = this->flow();
    flow.last_spacing = flow.spacing(settings_, now, bytes);
    if (shared_ == nullptr) {
      may_send_at_ = now + flow.last_spacing;
    } else if (has_turn_) {
      has_turn_ = false;  // free_at counted this packet when the turn was given
    } else {
      flow.free_at = now + flow.last_spacing;
    }
  }
  void rebase(Time by) override {
    tulle::rebase(by, may_send_at_);
    own_.rebase(by);
  }

 private:
  Injection& flow() { return shared_ != nullptr ? *shared_ : own_; }

  const InfinibandSettings& settings_;
  Injection* shared_;  // null: the queue pair is a flow by itself
  Injection own_;
  Time may_send_at_;
  bool has_turn_ = false;  // may_send_at_ is this queue pair's turn in the shared flow
};

}  // namespace

std::unique_ptr<RateControl> make_rate_control(const Settings& settings, const Shared& shared,
                                               const PortAddress& destination,
                                               std::uint8_t service_level) {
  TULLE_CHECK(settings.dcqcn.enabled + settings.infiniband.enabled + settings.endpoint_limits <= 1);
  if (settings.dcqcn.enabled) return std::make_unique<DcqcnControl>(settings.dcqcn);
  if (settings.endpoint_limits) {
    return std::make_unique<EndpointControl>((*shared.endpoint_limits)[destination]);
  }
  if (settings.infiniband.enabled) {
    Injection* flow =
        shared.injections != nullptr ? &shared.injections[service_level % 16u] : nullptr;
    return std::make_unique<InfinibandControl>(settings.infiniband, flow);
  }
  return nullptr;
}

}  // namespace tulle::transport::congestion

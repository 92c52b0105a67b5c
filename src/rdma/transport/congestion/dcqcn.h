#pragma once

// DCQCN's reaction point: the rate of one queue pair (Zhu et al., "Congestion Control for
// Large-Scale RDMA Deployments", SIGCOMM 2015, algorithm 1). Two things are as in deployed
// adapters: there is a least time between decreases, and a timer updates α, not each notification.
//
// The timers cause no events. Their steps are made up for when the rate is needed, at a packet or a
// notification, so that a queue pair that sends nothing costs nothing.

#include <cstdint>

#include "base/time.h"

namespace tulle::transport::congestion {

struct DcqcnSettings {
  bool enabled = false;
  std::int64_t line_bits_per_second = 100'000'000'000;
  // The values are those of the paper: section 5 and its table of parameters.
  double g = 1.0 / 256;
  Time alpha_interval = Time::microseconds(55);
  Time decrease_interval = Time::microseconds(50);  // equals the notification point's interval
  Time increase_interval = Time::microseconds(55);
  std::uint64_t increase_bytes = 10'000'000;  // 0: no byte counter
  std::uint32_t fast_recovery_rounds = 5;
  std::int64_t additive_bits_per_second = 40'000'000;
  std::int64_t hyper_bits_per_second = 400'000'000;
  std::int64_t least_bits_per_second = 40'000'000;
  // True if every decrease lowers the target rate, false if only one that follows an increase does.
  bool clamp_target = true;
};

class Dcqcn {
 public:
  explicit Dcqcn(const DcqcnSettings& settings)
      : settings_(&settings),
        rate_(settings.line_bits_per_second),
        target_(settings.line_bits_per_second) {}

  void notified(Time now);
  void sent(Time now, std::uint32_t bytes);
  std::int64_t bits_per_second(Time now);
  bool is_limited() const { return rate_ < settings_->line_bits_per_second; }
  double alpha() const { return alpha_; }
  void rebase(Time by) { tulle::rebase(by, next_alpha_, next_increase_, last_decrease_); }

 private:
  void advance(Time now);
  void run_timers(Time now);
  void update_alpha(Time now);
  void decrease(Time at);
  void increase();

  const DcqcnSettings* settings_;
  std::int64_t rate_;
  std::int64_t target_;
  double alpha_ = 1;
  Time next_alpha_ = Time::never();  // never: no notification has come yet
  Time next_increase_ = Time::never();
  Time last_decrease_ = Time::never();
  bool notified_since_alpha_ = false;
  bool decrease_due_ = false;
  std::uint32_t timer_rounds_ = 0;
  std::uint32_t byte_rounds_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace tulle::transport::congestion

#include "rdma/transport/congestion/dcqcn.h"

#include <algorithm>

#include "base/power.h"

namespace tulle::transport::congestion {

void Dcqcn::notified(Time now) {
  if (next_alpha_.is_never()) {
    next_alpha_ = now + settings_->alpha_interval;
    decrease(now);
    return;
  }
  advance(now);
  notified_since_alpha_ = true;
  if (now >= last_decrease_ + settings_->decrease_interval) {
    decrease(now);
  } else {
    decrease_due_ = true;
  }
}

void Dcqcn::sent(Time now, std::uint32_t bytes) {
  if (next_alpha_.is_never() || settings_->increase_bytes == 0) return;
  advance(now);
  bytes_ += bytes;
  if (bytes_ < settings_->increase_bytes) return;
  bytes_ -= settings_->increase_bytes;
  ++byte_rounds_;
  increase();
}

std::int64_t Dcqcn::bits_per_second(Time now) {
  advance(now);
  return rate_;
}

// Runs the steps in the order in which they were due: a decrease that waits comes between
// increases.
void Dcqcn::advance(Time now) {
  if (next_alpha_.is_never()) return;
  if (decrease_due_ && now >= last_decrease_ + settings_->decrease_interval) {
    const Time at = last_decrease_ + settings_->decrease_interval;
    run_timers(at);
    decrease(at);
  }
  run_timers(now);
}

void Dcqcn::run_timers(Time now) {
  update_alpha(now);
  while (next_increase_ <= now) {
    next_increase_ += settings_->increase_interval;
    ++timer_rounds_;
    increase();
    if (rate_ >= settings_->line_bits_per_second && target_ >= settings_->line_bits_per_second) {
      next_increase_ = Time::never();  // the rate is at its maximum; a decrease restarts the timer
    }
  }
}

// α = (1 − g)·α + g after an interval with a notification, (1 − g)·α after one without.
void Dcqcn::update_alpha(Time now) {
  if (next_alpha_ > now) return;
  const std::int64_t intervals = (now - next_alpha_).ps / settings_->alpha_interval.ps + 1;
  if (notified_since_alpha_) {
    alpha_ = (1 - settings_->g) * alpha_ + settings_->g;
    alpha_ *= power(1 - settings_->g, intervals - 1);
  } else {
    alpha_ *= power(1 - settings_->g, intervals);
  }
  notified_since_alpha_ = false;
  next_alpha_ += settings_->alpha_interval * intervals;
}

void Dcqcn::decrease(Time at) {
  if (settings_->clamp_target || timer_rounds_ > 0 || byte_rounds_ > 0) target_ = rate_;
  rate_ = std::max(static_cast<std::int64_t>(static_cast<double>(rate_) * (1 - alpha_ / 2)),
                   settings_->least_bits_per_second);
  decrease_due_ = false;
  last_decrease_ = at;
  timer_rounds_ = byte_rounds_ = 0;
  bytes_ = 0;
  next_increase_ = at + settings_->increase_interval;
}

void Dcqcn::increase() {
  const std::uint32_t most = std::max(timer_rounds_, byte_rounds_);
  const std::uint32_t least = std::min(timer_rounds_, byte_rounds_);
  const std::uint32_t rounds = settings_->fast_recovery_rounds;
  // Without a byte counter, the timer alone moves the rate through the stages.
  const bool hyper = settings_->increase_bytes == 0 ? most > rounds : least > rounds;
  if (hyper) {
    target_ += settings_->hyper_bits_per_second;
  } else if (most >= rounds) {
    target_ += settings_->additive_bits_per_second;
  }
  target_ = std::min(target_, settings_->line_bits_per_second);
  rate_ = std::min((rate_ + target_ + 1) / 2, settings_->line_bits_per_second);
}

}  // namespace tulle::transport::congestion

#include "rdma/transport/congestion/infiniband.h"

namespace tulle::transport::congestion {

// The index rises at once, up to the limit. The first notification starts the timer, which then
// runs on by itself, as in hfi1 (Linux, drivers/infiniband/hw/hfi1, process_becn and cca_timer_fn).
void Injection::notified(const InfinibandSettings& settings, Time now) {
  advance(settings, now);
  const auto room = static_cast<std::uint16_t>(settings.limit() - settings.least - above_least_);
  above_least_ =
      static_cast<std::uint16_t>(above_least_ + std::min<std::uint16_t>(settings.increase, room));
  if (next_step_.is_never() && settings.timer > Time::zero()) next_step_ = now + settings.timer;
}

std::uint16_t Injection::index(const InfinibandSettings& settings, Time now) {
  advance(settings, now);
  return static_cast<std::uint16_t>(settings.least + above_least_);
}

Time Injection::spacing(const InfinibandSettings& settings, Time now, std::uint32_t bytes) {
  constexpr std::int64_t bits_ps_per_byte = 8'000'000'000'000;
  const TableEntry& entry = settings.table[index(settings, now)];
  const std::int64_t time = std::int64_t{bytes} * bits_ps_per_byte / settings.line_bits_per_second;
  return Time{time + (time * entry.multiplier >> entry.shift)};
}

// Takes all the steps down that have become due.
void Injection::advance(const InfinibandSettings& settings, Time now) {
  if (now < next_step_) return;
  const std::int64_t steps = (now - next_step_).ps / settings.timer.ps + 1;
  if (steps < above_least_) {
    above_least_ = static_cast<std::uint16_t>(above_least_ - steps);
    next_step_ += settings.timer * steps;
  } else {
    above_least_ = 0;
    next_step_ = Time::never();
  }
}

}  // namespace tulle::transport::congestion

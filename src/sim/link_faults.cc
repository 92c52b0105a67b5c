#include "sim/link_faults.h"

#include <algorithm>

#include "base/power.h"

namespace tulle::sim {

using port::Frame;

bool LinkFaults::disturb_any(const LinkEnd& end, Frame& frame, std::int64_t arrives) {
  const NetworkSettings& settings = nodes_.settings;
  const bool has_faults = !nodes_.port_faults.empty();
  const double rate = has_faults ? faults_of(end).bit_error_rate : settings.bit_error_rate;
  const bool is_lost = settings.lose_every > 0 && is_to_lose(end.node, frame);
  if (is_lost || (rate > 0 && is_damaged(end.node, frame.buffer_bytes, rate))) {
    frame.damaged = 1;
    ++end.port->counters().damaged;
  }
  if (!has_faults || !has_down_by(end, arrives)) return false;
  port::Counters& counters = end.port->counters();
  ++counters.lost;
  counters.lost_bytes += frame.buffer_bytes;
  last_loss_ = std::max(last_loss_, Time{faults_of(end).downs.back()});
  return true;
}

bool LinkFaults::has_down_by(const LinkEnd& end, std::int64_t arrives) const {
  const PortFaults& faults = nodes_.port_faults[nodes_.end_index(end.node, end.number)];
  return !faults.downs.empty() && faults.downs.back() <= arrives;
}

// True if a frame has a wrong bit at the other end. The probability is 1 - (1 - p)^bits.
bool LinkFaults::is_damaged(std::uint32_t node, std::uint32_t bytes, double bit_error_rate) {
  const double whole = power(1 - bit_error_rate, std::int64_t{bytes} * 8);
  return !nodes_.noise[node].chance(whole);
}

bool LinkFaults::is_to_lose(std::uint32_t node, const Frame& frame) {
  if (!nodes_.is_host(node) || frame.payload_bytes == 0) return false;
  std::uint32_t& since_lost = nodes_.hosts[node].since_lost;
  if (++since_lost < nodes_.settings.lose_every) return false;
  since_lost = 0;
  return true;
}

}  // namespace tulle::sim

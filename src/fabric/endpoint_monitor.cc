#include "fabric/endpoint_monitor.h"

#include <algorithm>
#include <bit>

namespace tulle::fabric {
namespace {

// True if the rate told is within an eighth of the due one. If not, the source is told the new rate
// at once.
bool is_near(std::int64_t told, std::int64_t due) {
  return told <= due + due / 8 && told >= due - due / 8;
}
// A notice holds for this many windows. It is repeated after half of that time.
constexpr std::int64_t windows_held = 4;
// A source that sends less than this part of its share does not want the share.
constexpr double idle_share = 0.5;
constexpr std::int64_t frames_each = 4;
constexpr double gain = 0.25;

}  // namespace

EndpointMonitor::EndpointMonitor(const EndpointSettings& settings, std::int64_t bits_per_second,
                                 std::uint32_t longest_frame_bytes)
    : settings_(&settings),
      link_bits_per_second_(bits_per_second),
      longest_frame_bytes_(longest_frame_bytes) {}

EndpointMonitor::Advice EndpointMonitor::arrived(Time now, std::uint32_t source,
                                                 std::uint32_t bytes, std::uint64_t queue_bytes) {
  const std::size_t known = entries_.size();
  Entry& from = entry(source);
  const bool is_new = entries_.size() > known;
  from.is_fresh = true;
  from.bytes += bytes;
  const bool is_full = queue_bytes > settings_->queue_bytes;
  if (now >= window_began_ + window()) {
    end_window(now, queue_bytes);
  } else if (is_full && (!is_congested_ || is_new)) {
    // Shares out to all sources seen lately, as each will want all that it can get.
    is_congested_ = true;
    share_out(static_cast<double>(link_bits_per_second_) * settings_->target / 2);
  }
  return is_congested_ ? tell(now, entry(source)) : Advice{};
}

// Returns the length of a window, in which each contributor can send some frames at its share.
Time EndpointMonitor::window() const {
  const std::int64_t frame_ps =
      std::int64_t{longest_frame_bytes_} * 8'000'000'000'000 / link_bits_per_second_;
  return std::max(settings_->window,
                  Time{frames_each * frame_ps * static_cast<std::int64_t>(entries_.size())});
}

void EndpointMonitor::end_window(Time now, std::uint64_t queue_bytes) {
  const Time taken = now - window_began_;
  const double arrived = measure(taken);
  const bool is_full = queue_bytes > settings_->queue_bytes;
  const bool is_used = arrived > idle_share * given_;
  is_congested_ = is_full || (is_congested_ && is_used);
  if (is_congested_) {
    // The bytes beyond the threshold drain first, within the next window and with up to half of the
    // link.
    const auto link = static_cast<double>(link_bits_per_second_);
    const double excess = is_full ? static_cast<double>(queue_bytes - settings_->queue_bytes) : 0;
    const double drain = std::min(excess * 8 / window().to_seconds(), link / 2);
    share_out(link * settings_->target - drain);
  } else {
    share_ = 0;
    given_ = 0;
  }
  forget_silent();
  window_began_ = now;
}

// Measures the rate of each source, smoothed because a source sends few frames in a window. Returns
// the total rate of arrivals in bits a second.
double EndpointMonitor::measure(Time taken) {
  double all = 0;
  for (Entry& each : entries_) {
    const double rate = static_cast<double>(each.bytes) * 8 / taken.to_seconds();
    each.rate = each.rate < 0 ? rate : each.rate + (rate - each.rate) * gain;
    all += rate;
  }
  return all;
}

// Sets the share of each source that wants it. A source that sends clearly less than it may keeps
// its rate, and the others share the rest.
void EndpointMonitor::share_out(double capacity) {
  const auto all = static_cast<double>(entries_.size());
  const double content_below = idle_share * (share_ > 0 ? static_cast<double>(share_) : 0);
  double left = capacity;
  double wanting = all;
  for (const Entry& each : entries_) {
    if (each.rate < 0 || each.rate >= std::min(content_below, capacity / all)) continue;
    left -= each.rate;
    wanting -= 1;
  }
  constexpr double least = 1e6;
  given_ = capacity;
  share_ = static_cast<std::int64_t>(std::max(wanting < 1 ? capacity : left / wanting, least));
}

// Forgets sources that have not sent in two windows.
void EndpointMonitor::forget_silent() {
  std::erase_if(entries_, [](const Entry& each) { return !each.is_fresh && !each.was_fresh; });
  for (Entry& each : entries_) {
    each.was_fresh = each.is_fresh;
    each.is_fresh = false;
    each.bytes = 0;
  }
  index_entries();
}

void EndpointMonitor::index_entries() {
  std::ranges::fill(place_of_, 0);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    place_of_[slot_of(entries_[i].source)] = static_cast<std::uint32_t>(i + 1);
  }
}

// Returns the slot where a source is stored or must be inserted.
std::size_t EndpointMonitor::slot_of(std::uint32_t source) const {
  std::size_t at = source & (place_of_.size() - 1);
  while (place_of_[at] != 0 && entries_[place_of_[at] - 1].source != source) {
    at = (at + 1) & (place_of_.size() - 1);
  }
  return at;
}

EndpointMonitor::Entry& EndpointMonitor::entry(std::uint32_t source) {
  if (entries_.size() * 2 >= place_of_.size()) {
    place_of_.resize(std::bit_ceil(entries_.size() * 4 + 16));
    index_entries();
  }
  const std::size_t at = slot_of(source);
  if (place_of_[at] == 0) {
    entries_.emplace_back().source = source;
    place_of_[at] = static_cast<std::uint32_t>(entries_.size());
  }
  return entries_[place_of_[at] - 1];
}

EndpointMonitor::Advice EndpointMonitor::tell(Time now, Entry& to) const {
  const Time hold{window().ps * windows_held};
  const bool is_due = to.told_rate == 0 || now >= to.told_at + Time{hold.ps / 2};
  if (!is_due && is_near(to.told_rate, share_)) return {};
  to.told_rate = share_;
  to.told_at = now;
  return {share_, hold};
}

}  // namespace tulle::fabric

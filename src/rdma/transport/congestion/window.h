#pragma once

#include <algorithm>
#include <cstdint>

namespace tulle::transport::congestion {

// A bound on the packets that one queue pair may have in flight. IBTA bounds it only by the PSN
// space, since InfiniBand's links do not drop packets. The receive buffer of a UDP socket does drop
// them. The window is disabled where the fabric is lossless.
struct WindowSettings {
  bool enabled = true;
  std::uint32_t initial_packets = 64;
  std::uint32_t max_packets = 1'024;
  bool adapts = true;  // false: losses do not shrink the window
};

// Returns the same settings with at most `packets` in flight.
inline WindowSettings bounded(const WindowSettings& settings, std::uint32_t packets) {
  if (!settings.enabled) return {true, packets, packets, false};
  return {true, std::min(settings.initial_packets, packets),
          std::min(settings.max_packets, packets), settings.adapts};
}

// Additive increase, multiplicative decrease (Chiu and Jain 1989), with TCP's slow start until the
// first loss.
class Window {
 public:
  // A quarter of the PSN space: half of the range within which PSNs can be ordered.
  static constexpr std::uint32_t unlimited = 1u << 22;

  // `settings` must outlive the window.
  void reset(const WindowSettings& settings) {
    settings_ = &settings;
    packets_ = settings.enabled ? settings.initial_packets : unlimited;
    threshold_ = settings.enabled ? settings.max_packets : unlimited;
    acked_ = 0;
  }
  std::uint32_t packets() const { return packets_; }

  void acknowledged(std::uint32_t packets) {
    if (!settings_->enabled || packets_ >= settings_->max_packets) return;
    if (packets_ < threshold_) {
      packets_ = std::min(packets_ + packets, settings_->max_packets);
      return;
    }
    acked_ += packets;
    if (acked_ >= packets_) {
      acked_ -= packets_;
      ++packets_;
    }
  }
  void lost() {
    if (!settings_->enabled || !settings_->adapts) return;
    packets_ = std::max(packets_ / 2, std::min(4u, settings_->max_packets));
    threshold_ = packets_;
    acked_ = 0;
  }

 private:
  const WindowSettings* settings_ = nullptr;  // the adapter's settings; null before the first reset
  std::uint32_t packets_ = 0;
  std::uint32_t threshold_ = 0;
  std::uint32_t acked_ = 0;
};

}  // namespace tulle::transport::congestion

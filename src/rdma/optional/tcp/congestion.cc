#include "rdma/optional/tcp/congestion.h"

#include <algorithm>

namespace tulle::transport::tcp {

namespace {

// RFC 9438 §4.1.2 and §4.6: C in segments a second cubed, and the multiplicative decrease.
constexpr double cubic_c = 0.4;
constexpr double cubic_beta = 0.7;
// RFC 9438 §4.3: the growth that equals Reno's, given CUBIC's decrease.
constexpr double reno_alpha = 3 * (1 - cubic_beta) / (1 + cubic_beta);

}  // namespace

double cube_root(double x) {
  if (x <= 0) return 0;
  double root = x < 1 ? 1 : x;
  // Newton's steps come from above, and stop descending at the precision of doubles.
  for (;;) {
    const double next = (2 * root + x / (root * root)) / 3;
    if (next >= root) return root;
    root = next;
  }
}

double Cubic::increase(Time now, Time round_trip, std::uint64_t window_bytes,
                       std::uint32_t mss_bytes, std::uint64_t bytes) {
  const double window = static_cast<double>(window_bytes) / mss_bytes;
  const double acknowledged = static_cast<double>(bytes) / mss_bytes;
  if (epoch_.is_never()) {
    epoch_ = now;
    reno_window_ = window;
    // RFC 9438 §4.2: K follows from the window at the beginning of this stage.
    if (window_max_ <= window) {
      window_max_ = window;
      time_to_max_ = 0;
    } else {
      time_to_max_ = cube_root((window_max_ - window) / cubic_c);
    }
  }
  // §4.2: the window that should be reached one round trip from now. It is at most one and a half
  // times the present one (§4.4).
  const double from_max = (now - epoch_ + round_trip).to_seconds() - time_to_max_;
  const double wanted = cubic_c * from_max * from_max * from_max + window_max_;
  const double target = std::clamp(wanted, window, 1.5 * window);
  // §4.3: the window grows as fast as Reno's if that is faster. Alpha is 1 once the old maximum is
  // reached.
  const double alpha = reno_window_ >= window_max_ ? 1 : reno_alpha;
  reno_window_ += alpha * acknowledged / window;
  const double now_from_max = (now - epoch_).to_seconds() - time_to_max_;
  const double cubic_now = cubic_c * now_from_max * now_from_max * now_from_max + window_max_;
  if (cubic_now < reno_window_) return std::max(reno_window_ - window, 0.0) * mss_bytes;
  return (target - window) / window * acknowledged * mss_bytes;
}

std::uint64_t Cubic::reduce(std::uint64_t window_bytes, std::uint32_t mss_bytes) {
  const double window = static_cast<double>(window_bytes) / mss_bytes;
  // RFC 9438 §4.7, fast convergence: a window that reached less than the last time leaves room to
  // others.
  window_max_ = window < window_max_ ? window * (1 + cubic_beta) / 2 : window;
  epoch_ = Time::never();
  return static_cast<std::uint64_t>(window * cubic_beta * mss_bytes);
}

void Dctcp::acknowledged(std::uint64_t bytes, bool marked, std::uint64_t end,
                         std::uint64_t sent_end) {
  acknowledged_ += bytes;
  if (marked) marked_ += bytes;
  if (end < window_end_) return;
  // RFC 8257 §3.3 steps 5 to 8: alpha is updated about once a round trip.
  if (acknowledged_ > 0) {
    const double share = static_cast<double>(marked_) / static_cast<double>(acknowledged_);
    alpha_ = alpha_ * (1 - gain_) + gain_ * share;
  }
  acknowledged_ = marked_ = 0;
  window_end_ = sent_end;
}

Congestion::Congestion(const Settings& settings)
    : settings_(settings),
      window_(std::uint64_t{settings.initial_window_segments} * settings.mss_bytes) {
  if (settings.congestion_control == CongestionControl::dctcp) {
    control_.emplace<Dctcp>(settings.dctcp_gain);
  }
}

void Congestion::acknowledged(Time now, Time round_trip, std::uint64_t bytes, bool limited) {
  if (!limited) return;
  // A window beyond what the peer takes and the socket holds is of no use.
  const std::uint64_t most =
      2ull * std::max(settings_.receive_buffer_bytes, settings_.send_buffer_bytes);
  if (window_ >= most) return;
  if (in_slow_start()) {
    // RFC 3465's byte counting, unlimited as in Linux.
    const std::uint64_t growth = std::min(bytes, threshold_ - window_);
    window_ += growth;
    bytes -= growth;
    if (bytes == 0) return;
  }
  double growth = 0;
  if (auto* cubic = std::get_if<Cubic>(&control_)) {
    growth = cubic->increase(now, round_trip, window_, settings_.mss_bytes, bytes);
  } else {
    // RFC 5681 §3.1: the window grows by a segment a round trip.
    growth = static_cast<double>(settings_.mss_bytes) * static_cast<double>(bytes) /
             static_cast<double>(window_);
  }
  fraction_ += growth;
  const auto whole = static_cast<std::uint64_t>(fraction_);
  fraction_ -= static_cast<double>(whole);
  window_ += whole;
}

// HyStart's train of acknowledgements (Ha and Rhee, "Taming the elephants", Computer Networks
// 2011), as in Linux's tcp_cubic.c. Slow start ends if the acknowledgements of one round follow
// each other closely (2 ms) for longer than half of the shortest round trip, from 16 segments on.
// HyStart's other test looks for a growing round trip. It begins at 4 ms in Linux (and in RFC
// 9406), which the queues of a data centre do not reach.
void Congestion::watch_slow_start(Time now, Time least, std::uint64_t end, std::uint64_t sent_end) {
  constexpr std::uint64_t window_min_segments = 16;
  constexpr Time close = Time::milliseconds(2);
  if (!in_slow_start() || !std::holds_alternative<Cubic>(control_)) return;
  if (end > round_end_) {
    round_end_ = sent_end;
    round_start_ = round_last_ = now;
  }
  if (window_ < window_min_segments * settings_.mss_bytes || now - round_last_ > close) return;
  round_last_ = now;
  if (now - round_start_ > Time{least.ps / 2}) threshold_ = window_;
}

void Congestion::observe(std::uint64_t bytes, bool marked, std::uint64_t end,
                         std::uint64_t sent_end) {
  if (auto* dctcp = std::get_if<Dctcp>(&control_)) {
    dctcp->acknowledged(bytes, marked, end, sent_end);
  }
}

std::uint64_t Congestion::reduced() {
  std::uint64_t threshold = window_ / 2;  // RFC 5681 §3.1, and RFC 8257 §3.5 for a loss
  if (auto* cubic = std::get_if<Cubic>(&control_)) {
    threshold = cubic->reduce(window_, settings_.mss_bytes);
  }
  return std::max<std::uint64_t>(threshold, 2ull * settings_.mss_bytes);
}

void Congestion::lost() {
  threshold_ = window_ = reduced();
  fraction_ = 0;
}

void Congestion::marked() {
  if (const auto* dctcp = std::get_if<Dctcp>(&control_)) {
    // RFC 8257 §3.3: cwnd * (1 - alpha / 2).
    const auto kept =
        static_cast<std::uint64_t>(static_cast<double>(window_) * (1 - dctcp->share_marked() / 2));
    threshold_ = window_ = std::max<std::uint64_t>(kept, 2ull * settings_.mss_bytes);
    fraction_ = 0;
  } else {
    lost();
  }
}

// RFC 5681 §3.1 (4) and (5). RFC 9438 §4.8: CUBIC's maximum becomes the window at which congestion
// avoidance begins afterwards.
void Congestion::timed_out(bool again) {
  if (!again) threshold_ = reduced();
  if (auto* cubic = std::get_if<Cubic>(&control_)) cubic->timed_out();
  window_ = settings_.mss_bytes;
  fraction_ = 0;
}

void Congestion::restarted() {
  window_ =
      std::min(window_, std::uint64_t{settings_.initial_window_segments} * settings_.mss_bytes);
  if (auto* cubic = std::get_if<Cubic>(&control_)) cubic->restart();
}

}  // namespace tulle::transport::tcp
